// GraphShadows: how shadows are made, and how they end.
#include "server/handlers/graphs/graph_shadows.h"

#include <sys/mman.h>

#include <utility>

#include "base/log.h"
#include "protocol/calls/graph_host.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/executor.h"

namespace gpurun::server {
namespace {

constexpr unsigned kHostRegisterPortable = 1;  // CU_MEMHOSTREGISTER_PORTABLE (cuda.h).
constexpr int kErrorNotRegistered = 713;       // CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED.

constexpr std::size_t kPageBytes = 4096;
// Beyond this all spare memory ends.
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
  if (!take_spare(size, context, &memory)) {
    if (const int failed = map(size, &memory); failed != 0) return failed;
    if (const int refused = register_memory(&memory, context); refused != 0) {
      tell_refusal(refused);
      give_back(memory, true);
      return refused;
    }
  }
  const std::lock_guard lock(mutex_);
  ++living_;
  *made = std::shared_ptr<Shadow>(new Shadow(*this, std::move(memory), size));
  return 0;
}

// Takes spare memory that is less than about twice as large as needed.
bool GraphShadows::take_spare(std::size_t byte_count, const void* context, Memory* memory) {
  const std::lock_guard lock(mutex_);
  for (auto at = spares_.lower_bound(byte_count);
       at != spares_.end() && at->first / 2 <= byte_count + kPageBytes; ++at) {
    const std::shared_ptr<Registered>& registered = at->second.registered;
    if (registered != nullptr && registered->context != context) continue;
    if (!has_room(at->first)) return false;
    *memory = std::move(at->second);
    spare_bytes_ -= memory->capacity;
    bytes_ += memory->capacity;
    spares_.erase(at);
    return true;
  }
  return false;
}

// With the lock held. Spare memory that is ending may come on top of the bound.
bool GraphShadows::has_room(std::size_t byte_count) const {
  return bytes_ <= protocol::kGraphShadowBytesMax &&
         byte_count <= protocol::kGraphShadowBytesMax - bytes_;
}

int GraphShadows::map(std::size_t byte_count, Memory* memory) {
  memory->capacity = (byte_count + kPageBytes - 1) / kPageBytes * kPageBytes;
  {
    const std::lock_guard lock(mutex_);
    if (!has_room(memory->capacity)) return kErrorOutOfMemory;
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

// Drivers of tests may lack these functions. Returns 0 or the CUresult.
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
  if (refused != 0) return refused;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Registered>& registered = contexts_[context];
  if (registered == nullptr) registered = std::make_shared<Registered>(Registered{context});
  memory->registered = registered;
  return 0;
}

// Only once, because a client can cause refusals as often as it likes.
void GraphShadows::tell_refusal(int refused) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(told_of_refusal_, true)) return;
  GPURUN_LOG(kWarning, "the driver does not register memory for copies of graphs (error %d)",
             refused);
}

// Runs on the thread that dropped the last share. That may be a thread of the driver, which must
// not call the driver.
void GraphShadows::end(const Memory& memory) {
  std::vector<Memory> ending;
  {
    const std::lock_guard lock(mutex_);
    --living_;
    if (memory.registered == nullptr || memory.registered->over) {
      ending.push_back(memory);
    } else {
      bytes_ -= memory.capacity;
      spare_bytes_ += memory.capacity;
      spares_.emplace(memory.capacity, memory);
    }
    if (living_ == 0 || spare_bytes_ > kSpareBytesMax) {
      for (Memory& spare : take_spares()) ending.push_back(std::move(spare));
    }
  }
  for (const Memory& each : ending) unregister(each);
}

// With the lock held.
std::vector<GraphShadows::Memory> GraphShadows::take_spares() {
  std::vector<Memory> taken;
  for (auto& [capacity, memory] : spares_) taken.push_back(std::move(memory));
  spares_.clear();
  bytes_ += std::exchange(spare_bytes_, 0);
  return taken;
}

// On a helper. Memory that cannot be unregistered stays mapped. Otherwise the driver would take a
// later mapping at that place for the registered memory.
void GraphShadows::unregister(const Memory& memory) {
  if (memory.registered == nullptr) return give_back(memory, true);
  const auto task = [this, memory](const DriverFunctions& driver, int entered) {
    {
      const std::lock_guard lock(mutex_);
      if (memory.registered->over) entered = kErrorInvalidContext;
      ++memory.registered->helpers_at;
    }
    const int ended = entered != 0 ? entered : driver.cuMemHostUnregister(memory.data);
    give_back(memory, ended == 0 || ended == kErrorNotRegistered);
    {
      const std::lock_guard lock(mutex_);
      --memory.registered->helpers_at;
    }
    unregistered_.notify_all();
  };
  {
    const std::lock_guard lock(mutex_);  // The executor exists until set_executor(nullptr).
    if (executor_ == nullptr) return;    // The process ends.
    const std::shared_ptr<Registered>& registered = memory.registered;
    if (!registered->over && executor_->call_driver(registered->context, task)) return;
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

void GraphShadows::context_ends(void* context) {
  std::vector<Memory> ending;
  std::unique_lock lock(mutex_);
  const auto found = contexts_.find(context);
  if (found == contexts_.end()) return;
  const std::shared_ptr<Registered> registered = found->second;
  contexts_.erase(found);
  registered->over = true;
  for (Memory& spare : take_spares()) ending.push_back(std::move(spare));
  lock.unlock();
  for (const Memory& each : ending) unregister(each);
  lock.lock();
  unregistered_.wait(lock, [&] { return registered->helpers_at == 0; });
}

}  // namespace gpurun::server
