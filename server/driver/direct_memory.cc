// DirectMemory: ranges, their registrations, and what the GPUs offer.
#include "server/driver/direct_memory.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "base/unique_fd.h"

namespace gpurun::server {
namespace {

std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Makes a context current, and then the one before again: this thread may also issue calls, and the
// executor remembers which context each thread has.
class Within {
 public:
  Within(const CudaDriver& driver, void* context) : driver_(driver) {
    (void)GPURUN_DRIVER(driver_, cuCtxGetCurrent, &before_);
    result_ = GPURUN_DRIVER(driver_, cuCtxSetCurrent, static_cast<CUcontext>(context));
  }
  ~Within() { (void)GPURUN_DRIVER(driver_, cuCtxSetCurrent, before_); }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
  CUresult result() const { return result_; }

 private:
  const CudaDriver& driver_;
  CUcontext before_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
};

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

}  // namespace

void DirectMemory::begin(transport::RemoteMemory* remote) {
  const std::lock_guard lock(mutex_);
  remote_ = allowed_ ? remote : nullptr;
}

void DirectMemory::end() {
  abandon();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return borrowers_ == 0; });
  remote_ = nullptr;
}

void DirectMemory::abandon() {
  std::vector<std::uint32_t> keys;
  std::unique_lock lock(mutex_);
  off_ = true;
  if (remote_ == nullptr) return;
  keys.swap(stale_);
  for (auto& [start, range] : ranges_) {
    if (range.key != 0) keys.push_back(std::exchange(range.key, 0));
    range.uses = 0;
  }
  registered_ = 0;
  transport::RemoteMemory& remote = *remote_;
  ++borrowers_;
  lock.unlock();
  withdraw(keys, remote);
  lock.lock();
  --borrowers_;
  changed_.notify_all();
}

void DirectMemory::withdraw(const std::vector<std::uint32_t>& keys,
                            transport::RemoteMemory& remote) noexcept {
  for (const std::uint32_t key : keys) {
    if (remote.withdraw_device(key)) continue;
    GPURUN_LOG(kWarning, "the RDMA device has not given up memory of a GPU");
  }
}

void DirectMemory::add_piece(int device, std::uint64_t address, std::uint64_t bytes) {
  if (!allowed_) return;
  const std::lock_guard lock(mutex_);
  // What is still known there has ended without a notice.
  if (!drop_overlapping(address, bytes)) return;
  Range range;
  range.bytes = bytes;
  range.device = device;
  ranges_.emplace(address, range);
}

// Waits until nothing uses the range, and forgets it.
void DirectMemory::leave(std::unique_lock<std::mutex>& lock, std::uint64_t start) {
  const auto found = ranges_.find(start);
  if (found == ranges_.end() || std::exchange(found->second.leaving, true)) return;
  Range& range = found->second;
  changed_.wait(lock, [&range] { return range.uses == 0 && !range.registering; });
  const std::uint32_t key = range.key;
  plain_ -= range.buffer != 0 ? 1 : 0;
  registered_ -= key != 0 ? 1 : 0;
  ranges_.erase(found);
  if (key == 0 || remote_ == nullptr) return;
  transport::RemoteMemory& remote = *remote_;
  ++borrowers_;
  lock.unlock();
  withdraw({key}, remote);
  lock.lock();
  --borrowers_;
  changed_.notify_all();
}

void DirectMemory::remove(std::uint64_t address) {
  if (!allowed_) return;
  std::unique_lock lock(mutex_);
  leave(lock, address);
}

void DirectMemory::context_ends(void* context) {
  if (!allowed_) return;
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto next = std::find_if(ranges_.begin(), ranges_.end(), [context](const auto& each) {
      return each.second.buffer != 0 && each.second.context == context && !each.second.leaving;
    });
    if (next == ranges_.end()) return;
    leave(lock, next->first);
  }
}

DirectMemory::Ranges::iterator DirectMemory::containing(std::uint64_t address) {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return ranges_.end();
  const auto at = std::prev(after);
  return address - at->first < at->second.bytes ? at : ranges_.end();
}

bool DirectMemory::has_pieces(int device, std::uint64_t address, std::uint64_t bytes) {
  for (std::uint64_t done = 0; done < bytes;) {
    const auto at = containing(address + done);
    if (at == ranges_.end()) return false;
    const Range& range = at->second;
    if (range.buffer != 0 || range.device != device || range.leaving || range.refused) return false;
    done = at->first + range.bytes - address;
  }
  return true;
}

// False: a range there is in use.
bool DirectMemory::drop_overlapping(std::uint64_t start, std::uint64_t bytes) {
  auto at = containing(start);
  if (at == ranges_.end()) at = ranges_.lower_bound(start);
  while (at != ranges_.end() && at->first < start + bytes) {
    const Range& range = at->second;
    if (range.uses != 0 || range.registering || range.leaving) return false;
    if (range.key != 0) {
      stale_.push_back(range.key);
      --registered_;
    }
    plain_ -= range.buffer != 0 ? 1 : 0;
    at = ranges_.erase(at);
  }
  return true;
}

DirectMemory::Device DirectMemory::device_facts(int device) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = devices_.find(device);
    if (known != devices_.end()) return known->second;
  }
  const auto asked = [this, device](CUdevice_attribute attribute) {
    int value = 0;
    return GPURUN_DRIVER(driver_, cuDeviceGetAttribute, &value, attribute, device) == 0 ? value : 0;
  };
  Device facts;
  facts.dma_buf = asked(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0;
  facts.peer = asked(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) != 0;
  // Other devices may read the memory, too.
  facts.ordered = asked(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
                  CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES;
  facts.may_flush = (asked(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS) &
                     CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0;
  const char* const why = !facts.dma_buf && !facts.peer ? "offers its memory to no other device"
                          : !facts.ordered && !facts.may_flush
                              ? "neither orders nor flushes what other devices write"
                              : nullptr;
  if (why != nullptr) GPURUN_LOG(kInfo, "no GPUDirect: GPU %d %s", device, why);
  const std::lock_guard lock(mutex_);
  if (why != nullptr) why_ = std::string("the GPU ") + why;
  return devices_.emplace(device, facts).first->second;
}

bool DirectMemory::reaches(std::uint64_t address, std::uint64_t bytes) {
  if (bytes == 0 || address + bytes < address) return false;
  {
    const std::lock_guard lock(mutex_);
    if (!is_on()) return false;
  }
  CUdevice device = 0;
  if (GPURUN_DRIVER(driver_, cuCtxGetDevice, &device) != 0) return false;
  const Device facts = device_facts(device);
  if (!(facts.dma_buf || facts.peer) || !(facts.ordered || facts.may_flush)) return false;
  {
    const std::lock_guard lock(mutex_);
    if (has_pieces(device, address, bytes)) return true;
  }
  return is_plain(device, address, bytes);
}

// Only memory of cuMemAlloc can be exported to processes of old CUDA. So memory of pools, of VMM
// and of other processes is left out, and host memory is, too.
bool DirectMemory::is_plain(int device, std::uint64_t address, std::uint64_t bytes) {
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                 CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_CONTEXT};
  unsigned plain = 0;
  CUdeviceptr start = 0;
  std::size_t size = 0;
  unsigned long long buffer = 0;
  int ordinal = -1;
  CUcontext context = nullptr;
  void* values[] = {&plain, &start, &size, &buffer, &ordinal, &context};
  if (GPURUN_DRIVER(driver_, cuPointerGetAttributes, unsigned{std::size(names)}, names, values,
                    address) != 0) {
    return false;
  }
  if (plain == 0 || ordinal != device || buffer == 0 || start % page_bytes() != 0 ||
      address < start || address - start > size || bytes > size - (address - start)) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  const auto known = ranges_.find(start);
  if (known != ranges_.end() && known->second.buffer == buffer && known->second.bytes == size) {
    return !known->second.leaving && !known->second.refused;
  }
  if (!drop_overlapping(start, size) || plain_ == kPlainMax) return false;
  Range range;
  range.bytes = size;
  range.device = device;
  range.buffer = buffer;
  range.context = context;
  ranges_.emplace(start, range);
  ++plain_;
  return true;
}

bool DirectMemory::prepare(void* context, std::uint64_t address, std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  for (std::uint64_t done = 0; done < bytes;) {
    const auto at = containing(address + done);
    const bool may = is_on() && at != ranges_.end() && !at->second.leaving && !at->second.refused;
    if (!may || (at->second.key == 0 && !enroll(lock, at->first, context))) {
      let_go(address, done);
      return false;
    }
    ++at->second.holds;
    at->second.used = ++uses_;
    done = at->first + at->second.bytes - address;
  }
  return true;
}

void DirectMemory::release(std::uint64_t address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  let_go(address, bytes);
}

// Some of it may have been removed meanwhile.
void DirectMemory::let_go(std::uint64_t address, std::uint64_t bytes) {
  auto at = containing(address);
  if (at == ranges_.end()) at = ranges_.lower_bound(address);
  for (; at != ranges_.end() && at->first < address + bytes; ++at) {
    if (at->second.holds != 0) --at->second.holds;
  }
}

// The registration that was used longest ago becomes stale.
void DirectMemory::make_room() {
  while (registered_ >= kRegisteredMax) {
    Range* oldest = nullptr;
    for (auto& [start, range] : ranges_) {
      if (range.key == 0 || range.uses != 0 || range.holds != 0 || range.leaving) continue;
      if (oldest == nullptr || range.used < oldest->used) oldest = &range;
    }
    if (oldest == nullptr) return;
    stale_.push_back(std::exchange(oldest->key, 0));
    --registered_;
  }
}

// A range that is being registered stays, because leave() waits for that.
bool DirectMemory::enroll(std::unique_lock<std::mutex>& lock, std::uint64_t start, void* context) {
  make_room();
  if (registered_ >= kRegisteredMax) return false;
  Range& range = ranges_.at(start);
  const std::uint64_t bytes = range.bytes;
  const Device device = devices_[range.device];
  transport::RemoteMemory& remote = *remote_;
  std::vector<std::uint32_t> stale;
  stale.swap(stale_);
  Way way = way_;
  range.registering = true;
  ++borrowers_;
  lock.unlock();
  withdraw(stale, remote);
  Result<std::uint32_t> key = register_range(remote, device, context, start, bytes, &way);
  lock.lock();
  --borrowers_;
  range.registering = false;
  changed_.notify_all();
  if (key.ok() && off_) {  // abandon() has not seen it.
    stale_.push_back(*key);
    return false;
  }
  if (key.ok()) {
    if (way_ == Way::kUnknown) {
      GPURUN_LOG(kInfo, "large copies are read into GPU memory (GPUDirect by %s)",
                 way == Way::kDmaBuf ? "dma-buf" : "peer memory");
    }
    way_ = way;
    range.key = *key;
    ++registered_;
    return true;
  }
  range.refused = true;
  why_ = key.status().message();
  // Without any success the next range would be refused, too.
  if (way_ == Way::kUnknown) off_ = true;
  GPURUN_LOG(kWarning, "%s is not read into over RDMA: %s",
             off_ ? "GPU memory" : "an allocation of GPU memory", key.status().message().c_str());
  return false;
}

// dma-buf needs no module of the kernel beside the drivers, so it comes first.
Result<std::uint32_t> DirectMemory::register_range(transport::RemoteMemory& remote,
                                                   const Device& device, void* context,
                                                   std::uint64_t start, std::uint64_t bytes,
                                                   Way* way) {
  std::string why = "the GPU has no dma-buf";
  if (device.dma_buf && *way != Way::kPeer) {
    int file = -1;
    const std::uint64_t whole = whole_pages(bytes);
    CUresult result = CUDA_SUCCESS;
    {
      const Within within(driver_, context);
      result = within.result();
      if (result == 0) {
        result = GPURUN_DRIVER(driver_, cuMemGetHandleForAddressRange, static_cast<void*>(&file),
                               start, whole, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0ULL);
      }
    }
    const UniqueFd dma_buf(result == 0 ? file : -1);
    if (dma_buf.valid()) {
      Result<std::uint32_t> key = remote.enroll_device({start, whole, dma_buf.get()});
      if (key.ok()) {
        *way = Way::kDmaBuf;
        return key;
      }
      why = key.status().message();
    } else {
      why = "the driver gives no dma-buf (error " + std::to_string(result) + ")";
    }
  }
  if (!device.peer || *way == Way::kDmaBuf) return Status(Code::kUnavailable, why);
  Result<std::uint32_t> key = remote.enroll_device({start, bytes, -1});
  if (key.ok()) {
    *way = Way::kPeer;
    return key;
  }
  return Status(Code::kUnavailable, why + "; as peer memory: " + key.status().message());
}

DirectMemory::Use DirectMemory::begin_use(std::uint64_t address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto at = containing(address);
  if (!is_on() || at == ranges_.end() || at->second.key == 0 || at->second.leaving) return {};
  Range& range = at->second;
  ++range.uses;
  range.used = ++uses_;
  return {range.key, static_cast<std::size_t>(
                         std::min<std::uint64_t>(bytes, at->first + range.bytes - address))};
}

void DirectMemory::end_use(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto at = containing(address);
  if (at == ranges_.end() || at->second.uses == 0) return;  // abandon() has ended it.
  --at->second.uses;
  if (at->second.uses == 0) changed_.notify_all();
}

bool DirectMemory::flush(void* context) {
  const Within within(driver_, context);
  CUdevice device = 0;
  if (within.result() != 0 || GPURUN_DRIVER(driver_, cuCtxGetDevice, &device) != 0) return false;
  if (device_facts(device).ordered) return true;
  const CUresult result = GPURUN_DRIVER(driver_, cuFlushGPUDirectRDMAWrites,
                                        CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                        CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES);
  if (result == 0) return true;
  GPURUN_LOG(kWarning, "GPU memory is not read into over RDMA: no flush (error %d)", int{result});
  const std::lock_guard lock(mutex_);
  off_ = true;
  why_ = "the driver does not flush (error " + std::to_string(int{result}) + ")";
  return false;
}

std::string DirectMemory::why_refused() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

std::size_t DirectMemory::registered() const {
  const std::lock_guard lock(mutex_);
  return registered_;
}

}  // namespace gpurun::server
