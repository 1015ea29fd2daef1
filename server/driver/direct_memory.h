// DirectMemory: the memory of this worker's GPUs that its RDMA device reads into by itself
// (GPUDirect, docs/adr/0055).
//
// A range is an allocation of the driver: a piece of a device window, which its owner adds, or
// memory of cuMemAlloc, which a copy finds. The RDMA device gets a range at the first copy into it,
// by dma-buf or else as peer memory, and keeps it for later copies. The range leaves the RDMA
// device before the driver frees it, and never while a read fills it (remove()).
//
// A range of cuMemAlloc may end without a notice, as with cuMemFreeAsync. So each copy asks the
// driver for the number of the allocation, which is never used again, and an old range is dropped.
//
// Any thread, except where a comment restricts it. No lock is held across a call of driver or
// verbs.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "server/driver/cuda_driver.h"
#include "transport/remote_memory.h"

namespace gpurun::server {

class DirectMemory {
 public:
  // Ranges that the RDMA device has at once. The one that was used longest ago makes room.
  static constexpr std::size_t kRegisteredMax = 512;
  // Known allocations of cuMemAlloc. Copies to others take the staging memory.
  static constexpr std::size_t kPlainMax = 4096;

  // `driver` is borrowed. The constructor does not call it.
  explicit DirectMemory(const CudaDriver& driver) : driver_(driver) {}
  DirectMemory(const DirectMemory&) = delete;
  DirectMemory& operator=(const DirectMemory&) = delete;

  // Sessions of this worker may use RDMA, and the operator allows GPUDirect. Before other calls.
  void allow() noexcept { allowed_ = true; }
  bool is_allowed() const noexcept { return allowed_; }

  // For the session's reader (BulkPulls). Borrows `remote` until end(). Nothing is read into device
  // memory before begin() and after end().
  void begin(transport::RemoteMemory* remote);
  void end();

  // For owners of memory.

  // The driver has mapped one allocation at `address`. It stays until remove().
  void add_piece(int device, std::uint64_t address, std::uint64_t bytes);
  // For the owner of an allocation that begins there, before the driver frees it. Blocks until no
  // read fills it, which takes no longer than the deadlines of BulkPulls.
  void remove(std::uint64_t address);
  // As remove(), for all memory of cuMemAlloc in `context`, the driver's.
  void context_ends(void* context);

  // For the executor, with the context of the copy current.

  // Whether all of [address, address + bytes) is memory of the current context's device that can be
  // read into, as far as it is known. Such a copy calls prepare() next.
  bool reaches(std::uint64_t address, std::uint64_t bytes);

  // For the reader, one thread at a time.

  // Gives the RDMA device the ranges of [address, address + bytes), and keeps them there until
  // release(), unless their owner removes them. `context`: the copy's. Blocks in driver and kernel.
  // False: something refuses, and the copy takes the staging memory.
  bool prepare(void* context, std::uint64_t address, std::uint64_t bytes);
  // Any thread.
  void release(std::uint64_t address, std::uint64_t bytes);
  struct Use {
    std::uint32_t key = 0;
    std::size_t bytes = 0;  // From the address on. 0: no read may begin there.
  };
  // Begins a read of up to `bytes`, which lie in one range. Its owner waits for end_use().
  Use begin_use(std::uint64_t address, std::size_t bytes);
  void end_use(std::uint64_t address);
  // Makes what reads have written visible to the GPU, for work that is issued afterwards.
  // `context`: the copy's. False: the driver refuses, and the bytes must be written again.
  bool flush(void* context);
  // Takes all memory from the RDMA device, for good. Reads without an end write nothing any more.
  void abandon();

  // For tests and reports.
  std::size_t registered() const;
  // The last reason why memory of a GPU was not read into, for people. Empty: none.
  std::string why_refused() const;

 private:
  enum class Way : std::uint8_t { kUnknown, kDmaBuf, kPeer };
  // What a GPU offers.
  struct Device {
    bool dma_buf = false;
    bool peer = false;
    bool ordered = false;    // Its work sees what other devices have written before.
    bool may_flush = false;  // Else cuFlushGPUDirectRDMAWrites is needed, and works.
  };
  struct Range {
    std::uint64_t bytes = 0;
    int device = 0;
    std::uint64_t buffer = 0;  // The allocation's number. 0: a piece.
    void* context = nullptr;   // The owner's, of memory of cuMemAlloc.
    std::uint32_t key = 0;     // 0: the RDMA device does not have it.
    std::uint64_t used = 0;    // When, in uses.
    unsigned uses = 0;         // Reads under way.
    unsigned holds = 0;        // Copies between prepare() and release().
    bool registering = false;
    bool refused = false;
    bool leaving = false;
  };
  using Ranges = std::map<std::uint64_t, Range>;

  bool is_plain(int device, std::uint64_t address, std::uint64_t bytes);
  Device device_facts(int device);

  // With the lock held. Some release it meanwhile.
  bool is_on() const noexcept { return remote_ != nullptr && !off_; }
  Ranges::iterator containing(std::uint64_t address);
  bool has_pieces(int device, std::uint64_t address, std::uint64_t bytes);
  bool drop_overlapping(std::uint64_t start, std::uint64_t bytes);
  void leave(std::unique_lock<std::mutex>& lock, std::uint64_t start);
  void make_room();
  void let_go(std::uint64_t address, std::uint64_t bytes);
  bool enroll(std::unique_lock<std::mutex>& lock, std::uint64_t start, void* context);

  void withdraw(const std::vector<std::uint32_t>& keys, transport::RemoteMemory& remote) noexcept;
  Result<std::uint32_t> register_range(transport::RemoteMemory& remote, const Device& device,
                                       void* context, std::uint64_t start, std::uint64_t bytes,
                                       Way* way);

  const CudaDriver& driver_;
  bool allowed_ = false;

  mutable std::mutex mutex_;  // Guards all below.
  std::condition_variable changed_;
  transport::RemoteMemory* remote_ = nullptr;
  unsigned borrowers_ = 0;  // Threads that use remote_ without the lock.
  bool off_ = false;
  Way way_ = Way::kUnknown;  // The one that has worked.
  Ranges ranges_;            // By their starts. Disjoint.
  std::size_t registered_ = 0;
  std::size_t plain_ = 0;
  std::uint64_t uses_ = 0;
  std::vector<std::uint32_t> stale_;  // Keys of ranges that are forgotten. prepare() ends them.
  std::map<int, Device> devices_;
  std::string why_;  // why_refused().
};

}  // namespace gpurun::server
