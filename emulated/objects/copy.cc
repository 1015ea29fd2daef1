// Byte loops of copies and fills.
#include "emulated/objects/copy.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated {
namespace {

std::byte* at(std::uint64_t address) { return reinterpret_cast<std::byte*>(address); }

template <typename T>
void fill_row(std::uint64_t address, std::uint64_t width, std::uint32_t value) {
  std::fill_n(reinterpret_cast<T*>(address), width, static_cast<T>(value));
}

bool is_there(const BoxSide& side, const CopyBox& box) {
  std::uint64_t bytes = 0;
  return box_span(side, box, &bytes) && memory_registry().permits(side.address, bytes);
}

// Freed device memory is not known either.
bool is_pageable(std::uint64_t address) {
  return !memory_registry().find(address).has_value() && memory_registry().permits(address, 1);
}

}  // namespace

bool box_span(const BoxSide& side, const CopyBox& box, std::uint64_t* bytes) {
  const auto wide = static_cast<unsigned __int128>(side.slice_pitch) * (box.depth - 1) +
                    static_cast<unsigned __int128>(side.row_pitch) * (box.height - 1) +
                    box.width_bytes;
  if (wide > std::numeric_limits<std::uint64_t>::max() / 2) return false;
  *bytes = static_cast<std::uint64_t>(wide);
  return true;
}

CUresult copy_box(const CopyBox& box) {
  if (box.width_bytes == 0 || box.height == 0 || box.depth == 0) return CUDA_SUCCESS;
  if (!is_there(box.source, box) || !is_there(box.destination, box)) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  const bool one_piece =
      box.depth == 1 && (box.height == 1 || (box.source.row_pitch == box.width_bytes &&
                                             box.destination.row_pitch == box.width_bytes));
  if (one_piece) {
    // memmove, because overlapping copies are undefined in CUDA but must not crash.
    std::memmove(at(box.destination.address), at(box.source.address), box.width_bytes * box.height);
    return CUDA_SUCCESS;
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
  return CUDA_SUCCESS;
}

CopyOperation::CopyOperation(const CopyBox& box, std::vector<std::byte> staged)
    : box_(box), staged_(std::move(staged)) {
  box_.source.address = reinterpret_cast<std::uint64_t>(staged_.data());
}

CUresult CopyOperation::run(Context&) { return copy_box(box_); }

bool CopyOperation::writes_pageable() const { return is_pageable(box_.destination.address); }

OperationPtr CopyOperation::for_launch() const {
  std::uint64_t bytes = 0;
  const bool reads_now = staged_.empty() && is_pageable(box_.source.address) &&
                         !is_pageable(box_.destination.address) && is_there(box_.source, box_) &&
                         box_span(box_.source, box_, &bytes);
  if (!reads_now) return nullptr;
  const std::byte* from = at(box_.source.address);
  return std::make_shared<CopyOperation>(box_, std::vector<std::byte>(from, from + bytes));
}

CUresult fill(const Fill& what) {
  if (what.width == 0 || what.height == 0) return CUDA_SUCCESS;
  const std::uint64_t bytes =
      what.row_pitch * (what.height - 1) + what.width * what.element_bytes;  // As check_fill().
  if (!memory_registry().permits(what.address, bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
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
  return CUDA_SUCCESS;
}

CUresult FillOperation::run(Context&) { return fill(fill_); }

}  // namespace gpurun::emulated
