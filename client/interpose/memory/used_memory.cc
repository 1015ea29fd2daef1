// UsedMemory: sums by device, and their publication on the board.
#include "client/interpose/memory/used_memory.h"

#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <unordered_map>

#include "client/interpose/call/process.h"
#include "client/process/fork_guard.h"
#include "client/process/shared_memory_pressure.h"

namespace gpurun::client::interpose {
namespace {

struct Counted {
  int ordinal = 0;
  std::uint64_t bytes = 0;
};
struct UsedMemory {
  std::mutex mutex;
  // Guarded by mutex. `bytes` by the program's device number, `contexts` by the worker's.
  std::array<std::uint64_t, SharedMemoryPressure::kDevices> bytes{};
  std::array<unsigned, SharedMemoryPressure::kDevices> contexts{};
  std::unordered_map<Handle, Counted> by_handle;
  bool refused = false;  // The board had no place. Looking for one costs system calls.
};

// Never destroyed, because calls come after exit handlers have run. A forked child makes its own.
std::atomic<UsedMemory*> g_used{nullptr};
void forget_parents_use() { g_used.store(nullptr, std::memory_order_release); }

UsedMemory& used_memory() {
  UsedMemory* found = g_used.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  fork_guard::in_each_child(&forget_parents_use);
  auto* const made = new UsedMemory;
  if (g_used.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *found;
}

bool in_table(int device) { return device >= 0 && device < SharedMemoryPressure::kDevices; }

// The board and this process's place there. nullptr: no board or no place. The mutex must be held.
SharedMemoryPressure* board_of_ours(UsedMemory& used, int* place) {
  if (used.refused) return nullptr;
  SharedMemoryPressure* const board = shared_memory_board.load(std::memory_order_acquire);
  const bool joined = shared_memory_place.load(std::memory_order_acquire) >= 0;
  *place = join_memory_board();
  used.refused = board != nullptr && *place < 0;
  if (*place < 0) return nullptr;
  // A process without credits has no thread that answers questions.
  if (!joined) board->stay_silent(*place);
  return board;
}

// The mutex must be held, so that later values are newer.
void add(UsedMemory& used, int ordinal, std::uint64_t bytes, bool added) {
  if (!in_table(ordinal)) return;
  std::uint64_t& sum = used.bytes[static_cast<std::size_t>(ordinal)];
  sum = added ? sum + bytes : sum - bytes;
  const Process* const process = connected_already();
  const Device* const device = process == nullptr ? nullptr : process->devices->device(ordinal);
  int place = -1;
  SharedMemoryPressure* const board = device == nullptr ? nullptr : board_of_ours(used, &place);
  if (board != nullptr) board->say_used(place, device->server_ordinal, sum);
}

}  // namespace

void count_range(int ordinal, std::uint64_t bytes, bool added) noexcept {
  UsedMemory& used = used_memory();
  const std::lock_guard<std::mutex> lock(used.mutex);
  add(used, ordinal, bytes, added);
}

void count_memory(Handle handle, int ordinal, std::uint64_t bytes) noexcept try {
  UsedMemory& used = used_memory();
  const std::lock_guard<std::mutex> lock(used.mutex);
  if (!used.by_handle.emplace(handle, Counted{ordinal, bytes}).second) return;
  add(used, ordinal, bytes, true);
} catch (const std::bad_alloc&) {
}

void forget_memory(Handle handle) noexcept {
  UsedMemory& used = used_memory();
  const std::lock_guard<std::mutex> lock(used.mutex);
  const auto found = used.by_handle.find(handle);
  if (found == used.by_handle.end()) return;
  add(used, found->second.ordinal, found->second.bytes, false);
  used.by_handle.erase(found);
}

void count_context(int server_ordinal, bool begun) noexcept {
  if (!in_table(server_ordinal)) return;
  UsedMemory& used = used_memory();
  const std::lock_guard<std::mutex> lock(used.mutex);
  unsigned& count = used.contexts[static_cast<std::size_t>(server_ordinal)];
  if (!begun && count == 0) return;
  count += begun ? 1 : -1U;
  int place = -1;
  if (connected_already() == nullptr) return;
  if (SharedMemoryPressure* const board = board_of_ours(used, &place)) {
    board->say_contexts(place, server_ordinal, count != 0);
  }
}

}  // namespace gpurun::client::interpose
