// Copies of boxes of bytes: what all of cuMemcpy* come down to.
//
// Lines that lie close together are one line. What remains is one record as a box (box_record.cc);
// only long lines to the device from memory with gaps, and what must wait for its turn to be read,
// go line by line: each is a record of its own, and nothing is waited for until the last.
#pragma once

#include <cstdint>
#include <optional>

#include "client/interpose/forward.h"

namespace gpurun::client::interpose {

enum class Place : std::uint8_t { kDevice, kArray, kPinned, kPageable };

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
  // kArray, in place of all that: where in it, in bytes, lines and slices.
  Handle array = 0;
  std::uint64_t x = 0, y = 0, z = 0;

  bool on_device() const { return place == Place::kDevice || place == Place::kArray; }
};

// The start of a one-dimensional copy's side in an array; INVALID_HANDLE.
int side_in_array(const Here& here, CUarray array, std::uint64_t offset, CopySide* side);

struct Copy {
  CopySide source;
  CopySide destination;
  std::uint64_t width = 0;  // Bytes of a line.
  std::uint64_t lines = 1;
  std::uint64_t slices = 1;

  bool has_array() const {
    return source.place == Place::kArray || destination.place == Place::kArray;
  }
  // Lines, then slices, without gaps on either side become one line; not in arrays.
  void merge();
  bool single_line() const { return lines == 1 && slices == 1; }
  // Between its first byte there and its last there is nothing but its bytes.
  bool is_dense(const CopySide& side) const {
    return (lines == 1 || side.line_pitch == width) &&
           (slices == 1 || side.slice_pitch == width * lines);
  }
};

// The box of bytes that the structure describes, in as few lines as it can be; INVALID_VALUE, or
// INVALID_HANDLE for what is no array.
int describe_copy(const Here& here, const CUDA_MEMCPY3D& given, Copy* copy);
// Device memory and arrays that we know hold all of it, and host memory can be where it is said to
// be; and there are no more bytes than a copy may have.
bool stays_inside(const Here& here, const Copy& copy);

enum class Waiting : std::uint8_t {
  kSynchronous,   // cuMemcpy: done, or as good as done, on return.
  kAsynchronous,  // cuMemcpyAsync: pageable memory is still waited for.
  kReadNow,       // Likewise, but the source on the host is read at once, in no stream's order.
};

// In the order of `stream`. `code` names the call for errors and statistics. A CUresult.
int run_copy(const Here& here, std::uint16_t code, Handle stream, const Copy& copy,
             Waiting waiting);
// Likewise, as one record where that can be; of a copy that stays_inside(), with a side on the
// device, into a stream that captures nothing but copies within the device.
int run_box_copy(const Here& here, std::uint16_t code, Handle stream, const Copy& copy,
                 Waiting waiting);

// From its start, one past a side's last byte; nothing for what no memory can hold.
std::optional<std::uint64_t> extent(const CopySide& side, const Copy& copy);

// A synchronous copy to the device may return before it is complete: nobody could tell.
bool may_return_early(const Here& here, const CallSite& site, const CopySide& destination,
                      Waiting waiting);

// When the source of a copy to the device is read, which `stays` as it is until the copy is
// complete, or not. May wait for the stream first: 0, or that wait's failure.
int choose_reading(const Here& here, const CallSite& site, Waiting waiting, bool stays,
                   ByteView source, Session::Reading* reading);

}  // namespace gpurun::client::interpose
