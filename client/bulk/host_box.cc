// read_box(), write_box(): copy piece by piece, each within one line.
#include "client/bulk/host_box.h"

#include <algorithm>
#include <cstring>

namespace gpurun::client {
namespace {

// Returns the piece of a line at the box's byte `offset`, of at most `most` bytes.
std::byte* piece_at(const HostBox& box, std::uint64_t offset, std::size_t most, std::size_t* size) {
  const std::uint64_t line = offset / box.width;
  const std::uint64_t within = offset % box.width;
  *size = static_cast<std::size_t>(std::min<std::uint64_t>(most, box.width - within));
  return reinterpret_cast<std::byte*>(box.address + line / box.lines * box.slice_pitch +
                                      line % box.lines * box.line_pitch + within);
}

template <typename Visit>
void for_each_piece(const HostBox& box, std::uint64_t offset, std::size_t bytes, Visit visit) {
  for (std::size_t at = 0; at < bytes;) {
    std::size_t size = 0;
    std::byte* piece = piece_at(box, offset + at, bytes - at, &size);
    visit(piece, at, size);
    at += size;
  }
}

}  // namespace

void read_box(const HostBox& box, std::uint64_t offset, MutableBytes bytes) noexcept {
  for_each_piece(box, offset, bytes.size(), [&](std::byte* piece, std::size_t at, std::size_t n) {
    std::memcpy(bytes.data() + at, piece, n);
  });
}

void write_box(const HostBox& box, std::uint64_t offset, ByteView bytes) noexcept {
  for_each_piece(box, offset, bytes.size(), [&](std::byte* piece, std::size_t at, std::size_t n) {
    std::memcpy(piece, bytes.data() + at, n);
  });
}

}  // namespace gpurun::client
