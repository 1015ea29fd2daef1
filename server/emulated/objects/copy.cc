// Byte loops of copies and fills.
#include "server/emulated/objects/copy.h"

#include <algorithm>
#include <cstring>

namespace gpurun::emulated {
namespace {

std::byte* at(std::uint64_t address) { return reinterpret_cast<std::byte*>(address); }

template <typename T>
void fill_row(std::uint64_t address, std::uint64_t width, std::uint32_t value) {
  std::fill_n(reinterpret_cast<T*>(address), width, static_cast<T>(value));
}

}  // namespace

void copy_box(const CopyBox& box) {
  const bool one_piece =
      box.depth == 1 && (box.height == 1 || (box.source.row_pitch == box.width_bytes &&
                                             box.destination.row_pitch == box.width_bytes));
  if (one_piece) {
    // memmove: overlapping copies are undefined in CUDA, a crash is not.
    std::memmove(at(box.destination.address), at(box.source.address), box.width_bytes * box.height);
    return;
  }
  for (std::uint64_t slice = 0; slice < box.depth; ++slice) {
    for (std::uint64_t row = 0; row < box.height; ++row) {
      std::memmove(
          at(box.destination.address + slice * box.destination.slice_pitch +
             row * box.destination.row_pitch),
          at(box.source.address + slice * box.source.slice_pitch + row * box.source.row_pitch),
          box.width_bytes);
    }
  }
}

CopyOperation::CopyOperation(const CopyBox& box, std::vector<std::byte> staged)
    : box_(box), staged_(std::move(staged)) {
  box_.source.address = reinterpret_cast<std::uint64_t>(staged_.data());
}

CUresult CopyOperation::run(Context&) {
  copy_box(box_);
  return CUDA_SUCCESS;
}

void fill(const Fill& what) {
  for (std::uint64_t row = 0; row < what.height; ++row) {
    const std::uint64_t address = what.address + row * what.row_pitch;
    if (what.element_bytes == 1) {
      std::memset(at(address), static_cast<int>(what.value & 0xff), what.width);
    } else if (what.element_bytes == 2) {
      fill_row<std::uint16_t>(address, what.width, what.value);
    } else {
      fill_row<std::uint32_t>(address, what.width, what.value);
    }
  }
}

CUresult FillOperation::run(Context&) {
  fill(fill_);
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated
