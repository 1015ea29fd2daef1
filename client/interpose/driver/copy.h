// Copies of boxes: the common form of all cuMemcpy* calls.
//
// Adjacent lines are merged into one line. A box that remains travels as one record
// (box_record.cc). Some boxes go line by line: long lines to the device from memory with gaps,
// sources that must not be read before their turn, copies between two devices, and pitches that no
// device supports. Each such line is a record of its own, and only the last one is waited for.
#pragma once

#include <cstdint>
#include <optional>

#include "client/interpose/call/forward.h"

namespace gpurun::client::interpose {

enum class Place : std::uint8_t { kDevice, kArray, kPinned, kPageable };

// Where the memory at this address lies, for the purpose of a copy.
Place place_of(std::uint64_t address, std::uint64_t bytes) noexcept;

struct CopySide;
// Whether a side that claims to be pageable is mapped at all. Costs one system call.
bool is_memory(const CopySide& side, std::uint64_t bytes) noexcept;

struct CopySide {
  Place place = Place::kPageable;
  std::uint64_t address = 0;
  std::uint64_t line_pitch = 0;   // Bytes from line to line.
  std::uint64_t slice_pitch = 0;  // Bytes from slice to slice.
  // For kArray instead of all that: the position in the array, in bytes, lines and slices.
  Handle array = 0;
  std::uint64_t x = 0, y = 0, z = 0;

  bool on_device() const { return place == Place::kDevice || place == Place::kArray; }
};

// The start of a one-dimensional copy's side in an array. Returns 0 or INVALID_HANDLE.
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
  // Merges lines, then slices, that lie without gaps on both sides. Never in arrays.
  void merge();
  bool single_line() const { return lines == 1 && slices == 1; }
  // Whether nothing but the copy's bytes lies between its first and its last byte on that side.
  bool is_dense(const CopySide& side) const {
    return (lines == 1 || side.line_pitch == width) &&
           (slices == 1 || side.slice_pitch == width * lines);
  }
};

// The box of bytes that the structure describes, in as few lines as possible. Returns INVALID_VALUE
// for a wrong structure, and INVALID_HANDLE for a wrong array handle.
int describe_copy(const Here& here, const CUDA_MEMCPY3D& given, Copy* copy);
// Whether known device memory and arrays hold all of the copy, and host memory can lie at its
// addresses. Also checks the size limit of a copy.
bool stays_inside(const Here& here, const Copy& copy);
// Whether the client knows the memory or array of a side on the device. If not, only the worker's
// driver can refuse the copy, so the call waits for its result.
bool is_known(const Here& here, const CopySide& side, const Copy& copy);

enum class Waiting : std::uint8_t {
  kSynchronous,   // cuMemcpy: complete on return, or not distinguishable from complete.
  kAsynchronous,  // cuMemcpyAsync: still waits for pageable memory.
  kReadNow,       // As kAsynchronous, but reads a host source at once, in no stream's order.
};

// Runs the copy in the order of `stream`. `code` names the call for errors and statistics. Returns
// a CUresult.
int run_copy(const Here& here, std::uint16_t code, Handle stream, const Copy& copy,
             Waiting waiting);
// As run_copy(), but as one record where possible. The copy must pass stays_inside() and have a
// side on the device. If the stream captures, both sides must be on the device.
int run_box_copy(const Here& here, std::uint16_t code, Handle stream, const Copy& copy,
                 Waiting waiting);

// The distance from a side's start to one past its last byte. Nothing if no memory can hold it.
std::optional<std::uint64_t> extent(const CopySide& side, const Copy& copy);

// Whether a synchronous copy to the device may return before it is complete, because the program
// could not notice. Waits up to 20 ms until the sources of earlier copies are read.
bool may_return_early(const Here& here, const CallSite& site, const CopySide& destination,
                      Waiting waiting);

// Decides when the source of a copy to the device is read. `stays`: the source does not change
// until the copy is complete. May wait for the stream first. Returns 0, or that wait's failure.
int choose_reading(const Here& here, const CallSite& site, Waiting waiting, bool stays,
                   ByteView source, Session::Reading* reading);

}  // namespace gpurun::client::interpose
