// MemoryRanges: what the client knows of addresses: ranges of device memory that the program holds,
// and host memory that it allocated or registered with CUDA. Answers what a pointer is without a
// round trip.
//
// Addresses of device memory are blocked in this process (PROT_NONE), so that no memory of the
// program ever gets the same ones. Immortal state; any thread; short locks, and
// none for the few ranges that a thread has found last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "client/handles.h"

namespace gpurun::client::interpose {

enum class MemoryKind : std::uint8_t {
  kDevice,      // cuMemAlloc and its relatives.
  kPool,        // cuMemAllocAsync, cuMemAllocFromPoolAsync.
  kReserved,    // cuMemAddressReserve: mapped or not.
  kModule,      // A global variable of a module or library.
  kImported,    // Another process's, cuIpcOpenMemHandle.
  kHost,        // cuMemHostAlloc, cuMemAllocHost.
  kRegistered,  // cuMemHostRegister.
};

struct MemoryRange {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  int ordinal = 0;  // The program's number of the device.
  Handle context = 0;
  Handle owner = 0;             // Pool, module or library; 0: none.
  bool shared = false;          // Of kDevice: other processes may have it open.
  unsigned flags = 0;           // As given to cuMemHostAlloc or cuMemHostRegister.
  std::uint64_t buffer_id = 0;  // CU_POINTER_ATTRIBUTE_BUFFER_ID; chosen by add_range().

  bool on_host() const { return kind == MemoryKind::kHost || kind == MemoryKind::kRegistered; }
  // Whoever ends it waits for what `context_of_work` was given before: so it may be written after
  // the program was told that it has been. Unmapping and unloading do not, nor does the end of
  // another context's memory.
  bool ends_behind(Handle context_of_work) const {
    return kind == MemoryKind::kPool || (kind == MemoryKind::kDevice && context == context_of_work);
  }
  bool covers(std::uint64_t address, std::uint64_t count) const {
    return address >= base && address - base <= bytes && count <= bytes - (address - base);
  }
};

// False, and nothing done, when it overlaps another one, or without memory. Blocks the addresses of
// device memory.
bool add_range(MemoryRange range) noexcept;
// The range that `address` lies in.
std::optional<MemoryRange> find_range(std::uint64_t address) noexcept;
// find_range(). `held`: where there is none, whether the address is one that we keep from this
// process because a device's memory is, or was, there.
std::optional<MemoryRange> find_range(std::uint64_t address, bool* held) noexcept;
// Forgets the range that starts at `base` if it is of `kind`.
std::optional<MemoryRange> remove_range(std::uint64_t base, MemoryKind kind) noexcept;
// The range that starts at `base` is shared with other processes from now on. False: it was, or
// there is none.
bool note_shared(std::uint64_t base) noexcept;
// Whether the program has, or had, pinned or registered host memory. No lock.
bool host_memory_exists() noexcept;
// False: `address` is in none of it. Else find_range() knows. No lock.
bool may_be_host_memory(std::uint64_t address) noexcept;
// Of a context, or of an owner, that ends.
std::vector<MemoryRange> take_ranges_of_context(Handle context);
void remove_ranges_of_owner(Handle owner) noexcept;

// Whether this process shall hold windows of device addresses: its user has not said otherwise
// (GPURUN_DEVICE_WINDOWS=off), and its own address space is not scarce.
bool windows_wanted() noexcept;
// Maps nothing over [base, base + bytes), so that nothing else of this process comes to lie there.
// False, and nothing done, when something does already.
bool hold_addresses(std::uint64_t base, std::uint64_t bytes) noexcept;
// Of hold_addresses().
void let_go_of_addresses(std::uint64_t base, std::uint64_t bytes) noexcept;

// The window [base, base + bytes) of a device, one of up to kWindowedDevicesMax, is in use from now
// on (device_windows.h).
inline constexpr int kWindowedDevicesMax = 64;
void add_device_window(int server_ordinal, std::uint64_t base, std::uint64_t bytes) noexcept;
bool has_device_window(int server_ordinal) noexcept;
// Whose window the address lies in, whether or not anything lives there; -1: nobody's. No lock.
int device_of_window(std::uint64_t address) noexcept;
// Whether any of [address, address + bytes), which does not overflow, is in a window. No lock.
bool reaches_window(std::uint64_t address, std::uint64_t bytes) noexcept;

// Gives back memory that cuMemHostAlloc made; nothing for other kinds.
void free_host_range(const MemoryRange& range) noexcept;

}  // namespace gpurun::client::interpose
