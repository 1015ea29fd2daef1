// Copy memory: the memory that a copy names. It is known device memory, an array, or host memory.
#pragma once

#include <cstdint>

#include "client/interpose/call/forward.h"
#include "client/interpose/driver/copy_box.h"

namespace gpurun::client::interpose {

// Where the memory at this address lies, for the purpose of a copy.
Place place_of(std::uint64_t address, std::uint64_t bytes) noexcept;
// The same for an address that the program gives as one of the device. It may be that of pinned
// memory.
Place place_on_device(std::uint64_t address) noexcept;

// A side in registered memory that the device reaches gets the device's address
// (MemoryRange::view).
void enter_views(Copy* copy) noexcept;
// A side in the arena becomes other pinned memory, at the program's address, so that this process
// reads or writes it.
void leave_arena(Copy* copy) noexcept;

// Whether a side that claims to be pageable is mapped at all. Costs one system call.
bool is_memory(const CopySide& side, std::uint64_t bytes) noexcept;

// The start of a one-dimensional copy's side in an array. Returns 0 or INVALID_HANDLE.
int side_in_array(const EntryContext& here, CUarray array, std::uint64_t offset, CopySide* side);

// Whether known device memory and arrays hold all of the copy, and host memory can lie at its
// addresses. Also checks the size limit of a copy.
bool stays_inside(const EntryContext& here, const Copy& copy);
// Whether the client knows the memory or array of a side on the device. If not, only the worker's
// driver can refuse the copy, so the call waits for its result.
bool is_known(const EntryContext& here, const CopySide& side, const Copy& copy);
// As is_known(), for a copy of which the bytes come from the host. It could wait for its result
// only by waiting for the stream. So its failure in memory of a graph is returned later
// (docs/adr/0003).
bool is_found(const EntryContext& here, const CopySide& side, const Copy& copy);

}  // namespace gpurun::client::interpose
