// Packed chunk: checks of its head, and its two packings.
#include "protocol/bulk/packed_chunk.h"

#include <lz4.h>

namespace gpurun::protocol {
namespace {

bool is_zero(ByteView bytes) noexcept {
  // All zeros: the bytes begin with 0 and equal themselves one byte further. memcmp() runs at
  // memory speed.
  return bytes.front() == std::byte{0} &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace

std::uint64_t pages_with_bytes(ByteView chunk) noexcept {
  std::uint64_t pages = 0;
  for (std::size_t page = 0; page * kPageBytes < chunk.size(); ++page) {
    const std::size_t first = page * kPageBytes;
    const ByteView bytes = chunk.subspan(first, std::min(kPageBytes, chunk.size() - first));
    std::uint64_t word = 0;
    if (bytes.size() >= sizeof word) std::memcpy(&word, bytes.data(), sizeof word);
    if (word != 0 || !is_zero(bytes)) pages |= std::uint64_t{1} << page;
  }
  return pages;
}

Result<PackedHead> parse_packed_head(ByteView bytes, std::size_t chunk_bytes,
                                     std::size_t packed_bytes) {
  PackedHead head;
  if (bytes.size() < sizeof head) return Status(Code::kProtocol, "packed head cut short");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.reserved != 0) return Status(Code::kProtocol, "a packed chunk with unknown words");
  if (head.packing == Packing::kLz4) {
    if (head.pages == 0 && packed_bytes != 0 && packed_bytes < chunk_bytes) return head;
    return Status(Code::kProtocol, "a packed chunk that is no smaller than it was");
  }
  if (head.packing != Packing::kSparse) {
    return Status(Code::kProtocol, "a chunk packed in an unknown way");
  }
  const std::size_t count = (chunk_bytes + kPageBytes - 1) / kPageBytes;
  if (count < kPagesMax && head.pages >> count != 0) {
    return Status(Code::kProtocol, "a packed chunk with pages beyond its end");
  }
  std::size_t present = 0;
  for_each_run(head.pages, chunk_bytes, [&](std::size_t, std::size_t run_bytes, bool here) {
    if (here) present += run_bytes;
  });
  if (present != packed_bytes || present == chunk_bytes) {
    return Status(Code::kProtocol, "a packed chunk of other bytes than its pages are");
  }
  return head;
}

Status unpack_lz4(ByteView block, MutableBytes into) {
  const int written = LZ4_decompress_safe(
      reinterpret_cast<const char*>(block.data()), reinterpret_cast<char*>(into.data()),
      static_cast<int>(block.size()), static_cast<int>(into.size()));
  if (written >= 0 && static_cast<std::size_t>(written) == into.size()) return {};
  return Status(Code::kProtocol, "a packed chunk does not unpack to its size");
}

}  // namespace gpurun::protocol
