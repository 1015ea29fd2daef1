// Where shadows come from, and how they end.
#include "server/handlers/graph_shadows.h"

#include <sys/mman.h>

#include <utility>

#include "base/log.h"
#include "protocol/graph_host.h"
#include "server/worker/call.h"
#include "server/worker/executor.h"

namespace gpurun::server {
namespace {

constexpr unsigned kHostRegisterPortable = 1;  // CU_MEMHOSTREGISTER_PORTABLE (cuda.h).
constexpr int kErrorAlreadyRegistered = 712;   // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED.
constexpr int kErrorNotRegistered = 713;       // CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED.

constexpr std::size_t kPageBytes = 4096;
// Beyond, what is spare ends.
constexpr std::size_t kSpareBytesMax = std::size_t{256} << 20;

}  // namespace

void GraphShadows::set_executor(Executor* executor) {
  const std::lock_guard lock(mutex_);
  executor_ = executor;
}

int GraphShadows::make(std::uint64_t byte_count, void* context, std::shared_ptr<Shadow>* made) {
  if (byte_count == 0 || byte_count > protocol::kGraphShadowBytesMax) return kErrorOutOfMemory;
  const auto size = static_cast<std::size_t>(byte_count);
  Memory memory;
  if (!take_spare(size, &memory)) {
    if (const int failed = map(size, &memory); failed != 0) return failed;
  }
  const int refused = register_memory(&memory, context);
  if (refused != 0) {
    GPURUN_LOG(kWarning, "the driver does not register %zu bytes for a copy of a graph (error %d)",
               size, refused);
    give_back(memory, memory.registered_in == nullptr);
    return refused;
  }
  const std::lock_guard lock(mutex_);
  ++living_;
  *made = std::shared_ptr<Shadow>(new Shadow(*this, memory, size));
  return 0;
}

// One that is not twice as large as it must be.
bool GraphShadows::take_spare(std::size_t byte_count, Memory* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = spares_.lower_bound(byte_count);
  if (found == spares_.end() || found->first / 2 > byte_count + kPageBytes) return false;
  *memory = found->second;
  spare_bytes_ -= memory->capacity;
  spares_.erase(found);
  return true;
}

int GraphShadows::map(std::size_t byte_count, Memory* memory) {
  memory->capacity = (byte_count + kPageBytes - 1) / kPageBytes * kPageBytes;
  {
    std::unique_lock lock(mutex_);
    if (memory->capacity > protocol::kGraphShadowBytesMax - bytes_) {
      end_spares(lock);  // There may be room next time.
      return kErrorOutOfMemory;
    }
    bytes_ += memory->capacity;
  }
  void* mapped =
      mmap(nullptr, memory->capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped != MAP_FAILED) {
    memory->data = static_cast<std::byte*>(mapped);
    return 0;
  }
  const std::lock_guard lock(mutex_);
  bytes_ -= memory->capacity;
  return kErrorOutOfMemory;
}

// What was spare may be registered still: unless its context has ended meanwhile. Drivers of tests
// may have no functions for it. 0 or the CUresult.
int GraphShadows::register_memory(Memory* memory, void* context) {
  const DriverFunctions* driver = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (executor_ == nullptr) return 0;
    driver = &executor_->options().driver;
  }
  if (driver->cuMemHostRegister == nullptr || driver->cuMemHostUnregister == nullptr) return 0;
  const int refused =
      driver->cuMemHostRegister(memory->data, memory->capacity, kHostRegisterPortable);
  if (refused == kErrorAlreadyRegistered && memory->registered_in != nullptr) return 0;
  if (refused == 0) memory->registered_in = context;
  return refused;
}

// By whoever had the last share of it: it may be a thread of the driver's, which must not call it.
void GraphShadows::end(const Memory& memory) {
  std::unique_lock lock(mutex_);
  if (executor_ == nullptr) {  // The process ends.
    lock.unlock();
    if (memory.registered_in == nullptr) give_back(memory, true);
    return;
  }
  spares_.emplace(memory.capacity, memory);
  spare_bytes_ += memory.capacity;
  if (--living_ == 0 || spare_bytes_ > kSpareBytesMax) end_spares(lock);
}

void GraphShadows::end_spares(std::unique_lock<std::mutex>& lock) {
  const auto spares = std::exchange(spares_, {});
  spare_bytes_ = 0;
  lock.unlock();
  for (const auto& [capacity, memory] : spares) unregister(memory);
  lock.lock();
}

// By a helper. What cannot be unregistered stays mapped: the driver would take what is mapped there
// next for what it has registered.
void GraphShadows::unregister(const Memory& memory) {
  if (memory.registered_in == nullptr) return give_back(memory, true);
  const auto errand = [this, memory](const DriverFunctions& driver, int entered) {
    const int ended = entered != 0 ? entered : driver.cuMemHostUnregister(memory.data);
    give_back(memory, ended == 0 || ended == kErrorNotRegistered);
  };
  {
    const std::lock_guard lock(mutex_);  // Before set_executor(nullptr) it lives.
    if (executor_ == nullptr) return;
    if (executor_->call_driver(memory.registered_in, errand)) return;
  }
  give_back(memory, false);
}

void GraphShadows::give_back(const Memory& memory, bool unmaps) {
  if (unmaps) {
    munmap(memory.data, memory.capacity);
  } else {
    (void)madvise(memory.data, memory.capacity, MADV_DONTNEED);
  }
  const std::lock_guard lock(mutex_);
  bytes_ -= memory.capacity;
}

}  // namespace gpurun::server
