// Packed chunk: the bytes of a chunk in fewer bytes (FrameKind::kChunkPacked, docs/adr/0028).
//
// Behind the BulkHeader comes a PackedHead, then
//   kSparse  the pages of the chunk whose bits are set in `pages`, one after the other; the others
//            are zeros;
//   kLz4     one LZ4 block of exactly the chunk's bytes.
// Which bytes these are the BulkHeader says alone: chunks lie on a grid of kBulkChunkBytes.
//
// No threads here; every function is pure but for what it is given to write to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/frame.h"

namespace gpurun::protocol {

inline constexpr std::size_t kPagesMax = 64;  // A bit of PackedHead::pages for each.
// Of the chunk's, not of the memory's: two of the processor's pages.
inline constexpr std::size_t kPageBytes = limits::kBulkChunkBytes / kPagesMax;

enum class Packing : std::uint32_t { kSparse = 1, kLz4 = 2 };

struct PackedHead {
  Packing packing = Packing::kSparse;
  std::uint32_t reserved = 0;  // 0.
  std::uint64_t pages = 0;     // kSparse: bit i: page i is here. kLz4: 0.
};
static_assert(sizeof(PackedHead) == kPackedHeadBytes);

// The bytes of the chunk that begins at header.offset, which is on the grid and below header.total.
constexpr std::size_t chunk_bytes_at(const BulkHeader& header) {
  return static_cast<std::size_t>(
      std::min<std::uint64_t>(limits::kBulkChunkBytes, header.total - header.offset));
}

// Copies and checks, for a chunk of `chunk_bytes` of which `packed_bytes` follow. kProtocol: an
// unknown packing, pages beyond the chunk, other bytes than the pages are, or a block that is no
// smaller than the chunk.
Result<PackedHead> parse_packed_head(ByteView bytes, std::size_t chunk_bytes,
                                     std::size_t packed_bytes);

// Bit i: page i of `chunk` (at most kBulkChunkBytes) has a byte that is not 0. Looks at one word of
// a page that has one there, which almost every page has that is not zeros.
std::uint64_t pages_with_bytes(ByteView chunk) noexcept;

// Calls visit(first byte, bytes, present) for each run of pages of either kind, in their order.
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

// `block` into exactly `into`. kProtocol when it is not that, with `into` in no known state.
Status unpack_lz4(ByteView block, MutableBytes into);

// The chunk into `into`, from what receive(MutableBytes) -> Status brings: packed_bytes in all, as
// parse_packed_head() has checked. `scratch` is grown as needed, to kBulkChunkBytes.
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
