// MemoryRegistry: every range of addresses that CUDA handed out or registered in this process. Each
// pointer that a program passes is looked up here before it is used.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "driver_abi/state/memory_advice.h"

namespace gpurun::emulated {

enum class MemoryKind : std::uint8_t {
  kDevice,      // cuMemAlloc, cuMemAllocPitch.
  kPool,        // cuMemAllocAsync.
  kGraph,       // A memory node of a graph.
  kMapped,      // cuMemMap: memory of a VMM allocation.
  kModule,      // Variables of a module.
  kArray,       // cuArrayCreate, cuMipmappedArrayCreate.
  kManaged,     // cuMemAllocManaged.
  kHost,        // cuMemAllocHost, cuMemHostAlloc.
  kRegistered,  // cuMemHostRegister.
  kImported,    // cuIpcOpenMemHandle: another process's.
};

struct MemoryRange {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;
  std::uint64_t context_handle = 0;  // 0: belongs to no context (pools, VMM).
  std::uint64_t buffer_id = 0;       // Unique in the process. Set by add().
  unsigned flags = 0;                // The flags of the call that made it.
  std::uint64_t owner_handle = 0;    // The pool or VMM allocation.
  // Of a pool's memory: the context of the stream that it was allocated in.
  std::uint64_t maker_handle = 0;
  bool accessible = true;  // False: mapped, before cuMemSetAccess.

  std::uint64_t end() const { return base + bytes; }
  bool on_host() const { return kind == MemoryKind::kHost || kind == MemoryKind::kRegistered; }
  // Whether the program itself reads and writes it, so that it sees when a call has taken effect.
  bool is_seen_by_host() const { return on_host() || kind == MemoryKind::kManaged; }
};

// Any thread. Ranges never overlap.
class MemoryRegistry {
 public:
  // False, and nothing is added: the range would overlap a known one.
  bool add(MemoryRange range);
  // The range that holds `address`.
  std::optional<MemoryRange> find(std::uint64_t address) const;
  // Whether all of [address, address + bytes) may be accessed. Neighbouring ranges count together.
  bool covers(std::uint64_t address, std::uint64_t bytes) const;
  // Removes and returns the range that begins at `base`, if its kind is one of `kinds`.
  std::optional<MemoryRange> take(std::uint64_t base, std::initializer_list<MemoryKind> kinds);
  // The range that begins at `base` is of kind `to` from now on, if it was of kind `from`. Other
  // threads find it at all times.
  bool change_kind(std::uint64_t base, MemoryKind from, MemoryKind to);
  // Removes and returns all ranges of a context, which is being destroyed.
  std::vector<MemoryRange> take_of_context(std::uint64_t context_handle);
  // Addresses of devices. They are never host memory, whether or not a range is there now.
  void add_device_addresses(std::uint64_t base, std::uint64_t bytes);
  void remove_device_addresses(std::uint64_t base);
  // Whether [address, address + bytes) can be copied from or to without a fault, as far as devices
  // are concerned. Either it has no device addresses, or all of it is covered.
  bool permits(std::uint64_t address, std::uint64_t bytes) const;
  // Sets `accessible` of the mapped ranges inside [base, base + bytes). False: not all of it is
  // mapped.
  bool set_accessible(std::uint64_t base, std::uint64_t bytes, bool accessible);
  // What the program has said about managed memory. It holds the ranges of kind kManaged.
  driver_abi::MemoryAdvice& advice() { return advice_; }

 private:
  bool covers_locked(std::uint64_t address, std::uint64_t bytes) const;

  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, MemoryRange> ranges_;
  std::map<std::uint64_t, std::uint64_t> device_addresses_;  // Start to end, disjoint.
  std::uint64_t next_buffer_id_ = 1;
  driver_abi::MemoryAdvice advice_;
};

// The only registry of the process. Never destroyed.
MemoryRegistry& memory_registry();

}  // namespace gpurun::emulated
