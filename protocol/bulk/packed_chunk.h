// Packed chunk: the bytes of a chunk in fewer bytes (FrameKind::kChunkPacked, docs/adr/0028).
//
// A PackedHead follows the BulkHeader, and then:
//   kSparse  the pages of the chunk that have their bits set in `pages`, one after the other. All
//            other pages are zeros.
//   kLz4     one LZ4 block of exactly the chunk's bytes.
// The BulkHeader alone determines which bytes these are: chunks are on a grid of kBulkChunkBytes.
//
// No threads here. Every function is pure, except for the memory that it is given to write to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/log/frame.h"

namespace gpurun::protocol {

inline constexpr std::size_t kPagesMax = 64;  // One bit of PackedHead::pages each.
// A page of a chunk, not of memory: two of the processor's pages.
inline constexpr std::size_t kPageBytes = limits::kBulkChunkBytes / kPagesMax;

enum class Packing : std::uint32_t { kSparse = 1, kLz4 = 2 };

struct PackedHead {
  Packing packing = Packing::kSparse;
  std::uint32_t reserved = 0;  // 0.
  std::uint64_t pages = 0;     // kSparse: bit i is set when page i follows. kLz4: 0.
};
static_assert(sizeof(PackedHead) == kPackedHeadBytes);

// Size of the chunk that begins at header.offset, which is on the grid and below header.total.
constexpr std::size_t chunk_bytes_at(const BulkHeader& header) {
  return static_cast<std::size_t>(
      std::min<std::uint64_t>(limits::kBulkChunkBytes, header.total - header.offset));
}

// Copies, then checks the head of a chunk of `chunk_bytes` of which `packed_bytes` follow.
// kProtocol: an unknown packing, pages beyond the chunk, a size that differs from the pages', or a
// block that is not smaller than the chunk.
Result<PackedHead> parse_packed_head(ByteView bytes, std::size_t chunk_bytes,
                                     std::size_t packed_bytes);

// Bit i is set when page i of `chunk` (at most kBulkChunkBytes) has a byte that is not 0. Reads
// only one word of almost every page that is not all zeros.
std::uint64_t pages_with_bytes(ByteView chunk) noexcept;

// Calls visit(first byte, bytes, present) for each run of present or absent pages, in order.
template <typename Visit>
void for_each_run(std::uint64_t pages, std::size_t chunk_bytes, Visit visit) {
  const std::size_t count = (chunk_bytes + kPageBytes - 1) / kPageBytes;
  for (std::size_t page = 0; page < count;) {
    const bool present = (pages >> page & 1) != 0;
    std::size_t end = page + 1;
    while (end < count && ((pages >> end & 1) != 0) == present) ++end;
    const std::size_t first = page * kPageBytes;
    visit(first, std::min(end * kPageBytes, chunk_bytes) - first, present);
    page = end;
  }
}

// Unpacks `block` into exactly `into`. kProtocol: it does not fit, and `into` has undefined
// content.
Status unpack_lz4(ByteView block, MutableBytes into);

// Receives a packed chunk into `into` by calls of receive(MutableBytes) -> Status. They receive
// packed_bytes together, as parse_packed_head() has checked. `scratch` grows as needed, to
// kBulkChunkBytes.
template <typename Receive>
Status receive_packed(const PackedHead& head, std::size_t packed_bytes, MutableBytes into,
                      Bytes& scratch, Receive receive) {
  if (head.packing == Packing::kLz4) {
    scratch.resize(limits::kBulkChunkBytes);
    const MutableBytes block = MutableBytes(scratch).first(packed_bytes);
    GPURUN_RETURN_IF_ERROR(receive(block));
    return unpack_lz4(block, into);
  }
  Status status;
  for_each_run(head.pages, into.size(), [&](std::size_t first, std::size_t bytes, bool present) {
    if (!status.ok()) return;
    const MutableBytes run = into.subspan(first, bytes);
    if (present) {
      status = receive(run);
    } else {
      std::memset(run.data(), 0, run.size());
    }
  });
  return status;
}

}  // namespace gpurun::protocol
