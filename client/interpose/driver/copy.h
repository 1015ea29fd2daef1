// Copies of boxes of bytes: what all of cuMemcpy* come down to.
//
// Lines that lie close together are one line. What remains goes line by line: each is a record of
// its own, and nothing is waited for until the last.
#pragma once

#include <cstdint>

#include "client/interpose/forward.h"

namespace gpurun::client::interpose {

enum class Place : std::uint8_t { kDevice, kPinned, kPageable };

// Where memory at this address is, as far as copies are concerned.
Place place_of(std::uint64_t address, std::uint64_t bytes) noexcept;

struct CopySide;
// Whether there is memory at all where a side is said to be pageable: one system call for it.
bool is_memory(const CopySide& side, std::uint64_t bytes) noexcept;

struct CopySide {
  Place place = Place::kPageable;
  std::uint64_t address = 0;
  std::uint64_t line_pitch = 0;   // From line to line,
  std::uint64_t slice_pitch = 0;  // from slice to slice, in bytes.
};

struct Copy {
  CopySide source;
  CopySide destination;
  std::uint64_t width = 0;  // Bytes of a line.
  std::uint64_t lines = 1;
  std::uint64_t slices = 1;

  // Lines, then slices, without gaps on either side become one line.
  void merge();
};

// The box of bytes that the structure describes, in as few lines as it can be; INVALID_VALUE, or
// NOT_SUPPORTED for arrays.
int describe_copy(const CUDA_MEMCPY3D& given, Copy* copy);
// Device memory that we know holds all of it, and host memory can be where it is said to be.
bool stays_inside(const Copy& copy);

enum class Waiting : std::uint8_t {
  kSynchronous,   // cuMemcpy: done, or as good as done, on return.
  kAsynchronous,  // cuMemcpyAsync: pageable memory is still waited for.
  kReadNow,       // Likewise, but the source on the host is read at once, in no stream's order.
};

// In the order of `stream`. `code` names the call for errors and statistics. A CUresult.
int run_copy(const Here& here, std::uint16_t code, Handle stream, const Copy& copy,
             Waiting waiting);

}  // namespace gpurun::client::interpose
