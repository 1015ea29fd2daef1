// Copy box: the bytes of a copy. A box has lines and slices, with a pitch from one to the next on
// each side. Adjacent lines are merged into one line.
#pragma once

#include <cstdint>
#include <optional>

#include "client/log/handles.h"

namespace gpurun::client::interpose {

// Where a side lies (copy_memory.h).
enum class Place : std::uint8_t {
  kDevice,
  kArray,
  kArena,   // Host memory that the device reaches, at the device's address (docs/adr/0040, 0042).
  kPinned,  // Other pinned or registered memory.
  kPageable
};

struct CopySide {
  Place place = Place::kPageable;
  std::uint64_t address = 0;
  std::uint64_t line_pitch = 0;   // Bytes from line to line.
  std::uint64_t slice_pitch = 0;  // Bytes from slice to slice.
  // For kArray instead of all that: the position in the array, in bytes, lines and slices.
  Handle array = 0;
  std::uint64_t x = 0, y = 0, z = 0;

  // Whether the device reads or writes it by itself, without bytes on the wire.
  bool by_device() const { return place != Place::kPinned && place != Place::kPageable; }
};

struct Copy {
  CopySide source;
  CopySide destination;
  std::uint64_t width = 0;  // Bytes of a line.
  std::uint64_t lines = 1;
  std::uint64_t slices = 1;

  bool in_arena() const {
    return source.place == Place::kArena || destination.place == Place::kArena;
  }
  // A side in the arena becomes other pinned memory. See leave_arena() of copy_memory.h.
  void leave_arena();
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

// The distance from a side's start to one past its last byte. Nothing if no memory can hold it.
std::optional<std::uint64_t> extent(const CopySide& side, const Copy& copy);

}  // namespace gpurun::client::interpose
