// HostPointers: keeps the last few kernels. The line is logged when the failure arrives, because a
// kernel may get such a pointer without ever following it.
#include "client/interpose/modules/host_pointers.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "base/log.h"
#include "client/interpose/memory/host_arena.h"
#include "client/interpose/modules/kernel_table.h"
#include "client/session/lost_context.h"
#include "driver_abi/cuda_abi.h"

namespace gpurun::client::interpose::modules {
namespace {

struct Suspect {
  std::string kernel;
  Handle context = 0;
  std::size_t offset = 0;  // In the parameter block.
  std::size_t index = 0;   // Of the parameter. kUnknown: the block's layout is not known.
  bool registered = false;
};
constexpr std::size_t kUnknown = ~std::size_t{0};
constexpr std::size_t kKept = 16;

struct Suspects {
  std::mutex mutex;
  std::array<Suspect, kKept> kept;  // The newest is at (count - 1) % kKept. Guarded by mutex.
  std::size_t count = 0;            // Guarded by mutex.
};

// Never destroyed, because contexts end after exit handlers have run.
Suspects& suspects() {
  static auto* const all = new Suspects;
  return *all;
}

std::size_t parameter_at(const Kernel& kernel, std::size_t offset) noexcept {
  for (std::size_t i = 0; kernel.layout_known && i < kernel.parameters.size(); ++i) {
    const protocol::KernelParameter& each = kernel.parameters[i];
    if (offset >= each.offset && offset - each.offset < each.bytes) return i;
  }
  return kUnknown;
}

// Whether the 8 bytes at `at` may be a pointer. Bytes of two parameters are no pointer, because a
// program may pass two numbers of 32 bits that look like one.
bool may_be_pointer(const Kernel& kernel, std::size_t at) noexcept {
  if (!kernel.layout_known) return true;
  const std::size_t index = parameter_at(kernel, at);
  return index != kUnknown &&
         kernel.parameters[index].bytes - (at - kernel.parameters[index].offset) >=
             sizeof(std::uint64_t);
}

// Logs once for each process, because the first failure causes the others.
void name_suspect(Handle context, int result) {
  static std::atomic<bool> named{false};
  if (result != CUDA_ERROR_ILLEGAL_ADDRESS) return;
  Suspect found;
  {
    Suspects& all = suspects();
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (std::size_t back = 1; back <= std::min(all.count, kKept); ++back) {
      const Suspect& each = all.kept[(all.count - back) % kKept];
      if (each.context != context && context != 0) continue;
      found = each;
      break;
    }
  }
  if (found.kernel.empty() || named.exchange(true)) return;
  const std::string where = found.index == kUnknown
                                ? "at byte " + std::to_string(found.offset) + " of its parameters"
                                : "in parameter " + std::to_string(found.index);
  GPURUN_LOG(
      kWarning,
      "a kernel used an illegal address, perhaps because kernel %.300s was given a pointer "
      "to %s host memory %s. Kernels cannot reach that memory through gpurun: copy the data to "
      "device memory",
      found.kernel.c_str(), found.registered ? "registered" : "pinned", where.c_str());
}

void remember(const Kernel& kernel, Handle context, std::size_t offset, bool registered) {
  Suspects& all = suspects();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.count != 0) {
    const Suspect& last = all.kept[(all.count - 1) % kKept];
    if (last.context == context && last.offset == offset && last.kernel == kernel.name) return;
  }
  all.kept[all.count++ % kKept] = {kernel.name, context, offset, parameter_at(kernel, offset),
                                   registered};
  on_context_lost.store(&name_suspect, std::memory_order_release);
}

}  // namespace

void note_host_pointers(const EntryContext& here, const Kernel& kernel, ByteView block,
                        Handle context) noexcept try {
  bool noted = false;
  // Pointers are aligned, inside structures too.
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= block.size();
       at += sizeof(std::uint64_t)) {
    std::uint64_t value = 0;
    std::memcpy(&value, block.data() + at, sizeof value);
    if (!may_be_host_memory(value) || !may_be_pointer(kernel, at)) continue;
    const auto range = find_range(value);
    if (!range.has_value() || !range->on_host() || range->reached) continue;
    // The device reaches registered memory at another address alone.
    const bool registered = range->kind == MemoryKind::kRegistered;
    if ((!registered && let_device_reach(here, *range) == 0) || noted) continue;
    remember(kernel, context, at, registered);
    noted = true;  // One pointer is enough for the line.
  }
} catch (...) {
  // Memory ran out. No line will be logged.
}

}  // namespace gpurun::client::interpose::modules
