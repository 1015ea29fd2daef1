// Copy box: what lies without gaps, and how far a side reaches.
#include "client/interpose/driver/copy_box.h"

namespace gpurun::client::interpose {

void Copy::leave_arena() {
  for (CopySide* side : {&source, &destination}) {
    if (side->place == Place::kArena) side->place = Place::kPinned;
  }
}

std::optional<std::uint64_t> extent(const CopySide& side, const Copy& copy) {
  std::uint64_t slices = 0, lines = 0, all = 0;
  if (__builtin_mul_overflow(copy.slices - 1, side.slice_pitch, &slices) ||
      __builtin_mul_overflow(copy.lines - 1, side.line_pitch, &lines) ||
      __builtin_add_overflow(slices, lines, &all) ||
      __builtin_add_overflow(all, copy.width, &all)) {
    return std::nullopt;
  }
  return all;
}

void Copy::merge() {
  if (has_array()) return;
  if (lines == 1) {
    lines = slices;
    source.line_pitch = source.slice_pitch;
    destination.line_pitch = destination.slice_pitch;
    slices = 1;
  }
  const auto dense = [](const CopySide& side, std::uint64_t wide) {
    return side.line_pitch == wide;
  };
  if (!dense(source, width) || !dense(destination, width)) return;
  width *= lines;
  lines = slices;
  source.line_pitch = source.slice_pitch;
  destination.line_pitch = destination.slice_pitch;
  slices = 1;
  if (lines > 1 && dense(source, width) && dense(destination, width)) {
    width *= lines;
    lines = 1;
  }
}

}  // namespace gpurun::client::interpose
