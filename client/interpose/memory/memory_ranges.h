// MemoryRanges: the address ranges that the client knows. They are the program's device memory, and
// the host memory that it allocated or registered with CUDA. They answer what a pointer is without
// a round trip.
//
// Addresses of device memory are blocked in this process (PROT_NONE), so that no memory of the
// program ever gets the same addresses. The state is immortal. Any thread. Locks are short, and the
// few ranges that a thread found last need none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "client/early_answers/memory_end.h"
#include "client/log/handles.h"

namespace gpurun::client::interpose {

enum class MemoryKind : std::uint8_t {
  kDevice,      // cuMemAlloc and similar calls.
  kPool,        // cuMemAllocAsync, cuMemAllocFromPoolAsync.
  kGraph,       // A memory node of a graph, also a captured one. See is_sure().
  kReserved,    // cuMemAddressReserve: mapped or not.
  kModule,      // A global variable of a module or library.
  kImported,    // Memory of another process, cuIpcOpenMemHandle.
  kHost,        // cuMemHostAlloc, cuMemAllocHost.
  kManaged,     // cuMemAllocManaged, cuLibraryGetManaged: always reached.
  kRegistered,  // cuMemHostRegister.
  kView,        // The device's addresses of registered memory: always reached.
};

struct MemoryRange {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  int ordinal = 0;  // The program's number of the device.
  Handle context = 0;
  Handle owner = 0;        // Pool, module or library, also of a managed variable. 0: none.
  bool shared = false;     // kDevice only: other processes may have it open.
  bool in_arena = false;   // kHost, kManaged: of host_arena.h, or of managed_variables.h.
  bool reached = false;    // kHost, kManaged: the device uses the same address now.
  std::uint64_t host = 0;  // kView: the address of the memory. `base` is the device's.
  std::uint64_t view = 0;  // kRegistered: the base of its kView. 0: the device does not reach it.
  unsigned flags = 0;      // As given to cuMemHostAlloc or cuMemHostRegister.
  std::uint64_t buffer_id = 0;  // CU_POINTER_ATTRIBUTE_BUFFER_ID. add_range() chooses it.

  // False for memory of graphs. A launch allocates it, and only the driver knows whether it is
  // allocated now, or whether the graph still exists (graph_memory.h).
  bool is_sure() const { return kind != MemoryKind::kGraph; }
  // The program's own address of host memory.
  bool on_host() const { return kind == MemoryKind::kHost || kind == MemoryKind::kRegistered; }
  // Unmapping and unloading do not wait for earlier work of `context_of_work`, nor does the end of
  // another context's memory.
  MemoryEnd end(Handle context_of_work) const {
    if (kind == MemoryKind::kModule) return MemoryEnd::kUnloaded;
    const bool behind =
        kind == MemoryKind::kPool || (kind == MemoryKind::kDevice && context == context_of_work);
    return behind ? MemoryEnd::kBehindWork : MemoryEnd::kUnknown;
  }
  bool covers(std::uint64_t address, std::uint64_t count) const {
    return address >= base && address - base <= bytes && count <= bytes - (address - base);
  }
};

// Adds a range, and blocks the addresses of device memory. It replaces the parts of memory of
// graphs that it overlaps, because the driver gives out addresses of memory that has ended. Graphs
// may also share addresses. False, without an effect, when it overlaps another range. False when
// memory runs out.
bool add_range(MemoryRange range) noexcept;
// The range that contains `address`.
std::optional<MemoryRange> find_range(std::uint64_t address) noexcept;
// Returns the end of the device memory at `address`, for work of `context_of_work`.
inline MemoryEnd end_of_memory(std::uint64_t address, Handle context_of_work) noexcept {
  const std::optional<MemoryRange> range = find_range(address);
  return range.has_value() ? range->end(context_of_work) : MemoryEnd::kUnknown;
}
// As find_range(). `held`: whether this process keeps an address without a range blocked, because
// it is or was an address of device memory.
std::optional<MemoryRange> find_range(std::uint64_t address, bool* held) noexcept;
// Removes the range that starts at `base` if it is of `kind`.
std::optional<MemoryRange> remove_range(std::uint64_t base, MemoryKind kind) noexcept;
// Marks the range that starts at `base` as shared with other processes. False: it was shared
// already, or does not exist.
bool note_shared(std::uint64_t base) noexcept;
// The device reaches the pinned memory that starts at `base` from now on.
void note_reached(std::uint64_t base) noexcept;
// The device reaches the registered memory that starts at `base` at `view` from now on.
void note_view(std::uint64_t base, std::uint64_t view) noexcept;
// Whether the program has, or ever had, pinned or registered host memory. No lock.
bool host_memory_exists() noexcept;
// Whether the program has, or ever had, memory of a graph. No lock.
bool graph_memory_exists() noexcept;
// False: `address` is not in host memory of the program. True: ask find_range(). No lock.
bool may_be_host_memory(std::uint64_t address) noexcept;
// Remove the ranges of a context or an owner that ends.
std::vector<MemoryRange> take_ranges_of_context(Handle context);
void remove_ranges_of_owner(Handle owner) noexcept;

// Reserves [base, base + bytes) with an inaccessible mapping, so that no other mapping of this
// process lands there. False, without an effect, when the range is already in use.
bool hold_addresses(std::uint64_t base, std::uint64_t bytes) noexcept;
// Maps memory of zeros at [base, base + bytes), in whole pages, that is this process's alone.
// Addresses that are blocked become usable. All others must be free. False: some are in use, also
// by known memory other than managed memory and variables, or by a window. The others may be
// blocked then.
bool open_addresses(std::uint64_t base, std::uint64_t bytes) noexcept;
// Ends what open_addresses() has mapped. The addresses stay blocked.
void close_addresses(std::uint64_t base, std::uint64_t bytes) noexcept;
// Ends a reservation of hold_addresses().
void let_go_of_addresses(std::uint64_t base, std::uint64_t bytes) noexcept;

// Puts the window [base, base + bytes) of a device into use (device_windows.h). At most
// kWindowedDevicesMax devices have one.
inline constexpr int kWindowedDevicesMax = 64;
void add_device_window(int server_ordinal, std::uint64_t base, std::uint64_t bytes) noexcept;
bool has_device_window(int server_ordinal) noexcept;
// The device in which window `address` lies, whether or not it is allocated. -1: none. No lock.
int device_of_window(std::uint64_t address) noexcept;
// Whether any of [address, address + bytes) is in a window. The sum must not overflow. No lock.
bool reaches_window(std::uint64_t address, std::uint64_t bytes) noexcept;

}  // namespace gpurun::client::interpose
