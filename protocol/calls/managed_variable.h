// Managed variable: the answer of a worker about a `__managed__` variable of a library. It is the
// reply to form kRaw of cuLibraryGetManaged. The payload of that call is a NameRequest
// (module_calls.h) with the library as its owner and no handle.
//
// The driver has the variable at one address in the worker's process, for the host and for kernels
// (CUDA Driver API manual, "Library Management": cuLibraryGetManaged). The client maps memory of
// its own at that address, and the ends exchange what changes (host_mirror.h, docs/adr/0042). From
// the answer on, the worker takes part in that for the variable's lines, until the library ends.
// Its twin of them begins as zeros, as does the client's memory. So the client collects the
// variable's lines first.
#pragma once

#include <cstdint>

#include "protocol/calls/host_mirror.h"
#include "protocol/limits.h"

namespace gpurun::protocol {

struct ManagedVariable {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;

  // The lines that hold it.
  std::uint64_t first_line() const { return address & ~(kMirrorLineBytes - 1); }
  std::uint64_t lines_end() const {
    return (address + bytes + kMirrorLineBytes - 1) & ~(kMirrorLineBytes - 1);
  }
};
static_assert(sizeof(ManagedVariable) == 16);

// Whether a process can have the variable there: among the addresses that Linux gives to programs
// (x86-64 with 4 levels of pages), and within the bounds of one session.
inline bool is_sound(const ManagedVariable& variable) {
  constexpr std::uint64_t kFirst = std::uint64_t{1} << 20;
  constexpr std::uint64_t kEnd = (std::uint64_t{1} << 47) - (1 << 20);
  return variable.bytes != 0 && variable.bytes <= limits::kManagedVariableBytesMax &&
         variable.address >= kFirst && variable.address < kEnd &&
         variable.bytes <= kEnd - variable.address;
}

}  // namespace gpurun::protocol
