// ChunkPacker: chooses a packing by the measurements.
#include "protocol/bulk/chunk_packer.h"

#include <lz4.h>

#include <bit>

namespace gpurun::protocol {

ChunkPacker::Packed ChunkPacker::pack(ByteView chunk) {
  if (!enabled_ || chunk.size() < kChunkBytesMin) return {};
  const std::uint64_t pages = pages_with_bytes(chunk);
  const std::size_t count = (chunk.size() + kPageBytes - 1) / kPageBytes;
  const std::size_t zero = count - static_cast<std::size_t>(std::popcount(pages));
  Packed sparse;
  if (zero != 0) {
    sparse = pack_sparse(chunk, pages);
    if (zero < kZeroPagesPerRun * sparse.parts.size()) sparse = {};
  }
  if (!compresses()) {
    worth_.passed_over();
    return sparse;
  }
  // The codec also shrinks zeros, and the bytes between them.
  const double left = static_cast<double>(chunk.size()) * worth_.left_of_a_byte();
  if (sparse.packed && static_cast<double>(sparse.bytes) <= left) return sparse;
  if (!worth_.is_due()) return sparse;
  const Packed compressed = compress(chunk);
  return compressed.packed ? compressed : sparse;
}

ChunkPacker::Packed ChunkPacker::pack_sparse(ByteView chunk, std::uint64_t pages) {
  Packed packed;
  std::size_t parts = 0;
  for_each_run(pages, chunk.size(), [&](std::size_t first, std::size_t bytes, bool present) {
    if (!present) return;
    parts_[parts++] = chunk.subspan(first, bytes);
    packed.bytes += bytes;
  });
  packed.packed = true;
  packed.head.pages = pages;
  packed.parts = std::span(parts_.data(), parts);
  return packed;
}

ChunkPacker::Packed ChunkPacker::compress(ByteView chunk) {
  state_.resize(static_cast<std::size_t>(LZ4_sizeofState()));
  block_.resize(limits::kBulkChunkBytes);
  const auto most =
      static_cast<int>(static_cast<double>(chunk.size()) * CodecWorth::kWorthwhileShare);
  const Clock::time_point start = Clock::now();
  // A copy, because the program may change bytes that the codec refers back to.
  taken_.assign(chunk.begin(), chunk.end());
  // 0: the result would be larger than `most`.
  const int bytes = LZ4_compress_fast_extState(
      state_.data(), reinterpret_cast<const char*>(taken_.data()),
      reinterpret_cast<char*>(block_.data()), static_cast<int>(taken_.size()), most, 1);
  const Clock::duration took =
      codec_time_ != Clock::duration{} ? codec_time_ : Clock::now() - start;
  if (bytes <= 0) {
    worth_.gave_up(chunk.size(), took);
    return {};
  }
  const auto out = static_cast<std::size_t>(bytes);
  worth_.compressed(chunk.size(), out, took);
  Packed packed;
  packed.packed = true;
  packed.head.packing = Packing::kLz4;
  parts_[0] = ByteView(block_).first(out);
  packed.parts = std::span(parts_.data(), 1);
  packed.bytes = out;
  return packed;
}

}  // namespace gpurun::protocol
