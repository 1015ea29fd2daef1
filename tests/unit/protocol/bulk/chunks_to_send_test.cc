// ChunksToSend: short chunks are sent together as far as they fit, a packed chunk is the last of
// them, and accepted bytes are not sent again.
#include <gtest/gtest.h>

#include <random>

#include "protocol/bulk/chunk_wire.h"

namespace gpurun::protocol {
namespace {

constexpr std::size_t kShort = std::size_t{64} << 10;

Bytes random_bytes(std::size_t count) {
  std::mt19937_64 random(count);
  Bytes bytes(count);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

BulkHeader header(std::uint64_t transfer, std::size_t bytes) { return {transfer, 0, bytes, 0}; }

Bytes joined(std::span<const ByteView> parts) {
  Bytes bytes;
  for (const ByteView part : parts) bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

struct Counting {
  Status send(std::span<const ByteView> parts, Deadline) {
    ++sends;
    bytes = joined(parts);
    return {};
  }
  int sends = 0;
  Bytes bytes;
};

TEST(ChunksToSend, ShortChunksShareOneSend) {
  ChunkPacker packer(false);
  ChunksToSend chunks;
  const Bytes bytes = random_bytes(kShort);
  EXPECT_TRUE(chunks.left().empty());
  EXPECT_TRUE(chunks.fits(limits::kBulkChunkBytes));
  std::uint64_t count = 0;
  for (; chunks.fits(kShort); ++count) chunks.add(packer, header(count + 1, kShort), bytes);
  EXPECT_EQ(count, ChunksToSend::kBytesMax / kShort);
  EXPECT_FALSE(chunks.fits(1));
  Counting connection;
  ASSERT_TRUE(chunks.send_rest(packer, connection).ok());
  EXPECT_EQ(connection.sends, 1);
  ASSERT_EQ(connection.bytes.size(), count * (kChunkHeadBytes + kShort));
  for (std::uint64_t i = 0; i < count; ++i) {
    const ByteView frame = ByteView(connection.bytes).subspan(i * (kChunkHeadBytes + kShort));
    const auto head = parse_frame_header(frame);
    ASSERT_TRUE(head.ok());
    EXPECT_EQ(head->kind, FrameKind::kChunk);
    const auto bulk = parse_bulk_header(head->kind, frame.subspan(kFrameHeaderBytes), kShort);
    ASSERT_TRUE(bulk.ok());
    EXPECT_EQ(bulk->transfer, i + 1);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), frame.begin() + kChunkHeadBytes));
  }
  EXPECT_TRUE(chunks.left().empty());
  EXPECT_TRUE(chunks.fits(limits::kBulkChunkBytes)) << "they have gone";
}

TEST(ChunksToSend, WholeChunkIsSentAlone) {
  ChunkPacker packer(false);
  ChunksToSend chunks;
  const Bytes whole = random_bytes(limits::kBulkChunkBytes);
  const Bytes bytes = random_bytes(4);
  chunks.add(packer, header(1, bytes.size()), bytes);
  EXPECT_FALSE(chunks.fits(whole.size()));
  Counting connection;
  ASSERT_TRUE(chunks.send_rest(packer, connection).ok());
  chunks.add(packer, header(2, whole.size()), whole);
  EXPECT_FALSE(chunks.fits(bytes.size()));
}

TEST(ChunksToSend, NumberOfChunksIsBounded) {
  ChunkPacker packer(false);
  ChunksToSend chunks;
  const Bytes bytes = random_bytes(4);
  for (std::size_t i = 0; i < ChunksToSend::kChunksMax; ++i) {
    ASSERT_TRUE(chunks.fits(bytes.size()));
    chunks.add(packer, header(i + 1, bytes.size()), bytes);
  }
  EXPECT_FALSE(chunks.fits(bytes.size()));
}

// The packer owns a packed chunk's parts until it packs the next chunk.
TEST(ChunksToSend, NoChunkFollowsPackedChunk) {
  ChunkPacker packer(true);
  ChunksToSend chunks;
  const Bytes bytes = random_bytes(kShort);
  const Bytes zeros(kShort);
  chunks.add(packer, header(1, kShort), bytes);
  ASSERT_TRUE(chunks.fits(kShort));
  chunks.add(packer, header(2, kShort), zeros);
  EXPECT_FALSE(chunks.fits(1));
  const Bytes sent = joined(chunks.left());
  const ByteView second = ByteView(sent).subspan(kChunkHeadBytes + kShort);
  const auto head = parse_frame_header(second);
  ASSERT_TRUE(head.ok());
  EXPECT_EQ(head->kind, FrameKind::kChunkPacked);
  EXPECT_EQ(second.size(), kFrameHeaderBytes + head->payload_bytes);
}

TEST(ChunksToSend, SlowConnectionSendsChunksAlone) {
  ChunkPacker packer(true);
  constexpr double kBytesPerSecond = 12.5e6;
  for (int i = 0; i < 256; ++i) {
    packer.sent(limits::kBulkChunkBytes,
                std::chrono::nanoseconds(static_cast<std::int64_t>(
                    static_cast<double>(limits::kBulkChunkBytes) / kBytesPerSecond * 1e9)));
  }
  ASSERT_TRUE(packer.compresses());
  ChunksToSend chunks;
  const Bytes bytes = random_bytes(1000);
  chunks.add(packer, header(1, bytes.size()), bytes);
  EXPECT_FALSE(chunks.fits(1));
}

TEST(ChunksToSend, AcceptedBytesAreNotSentAgain) {
  const Bytes bytes = random_bytes(1000);
  constexpr std::size_t kWhole = 3 * (kChunkHeadBytes + 1000);
  for (std::size_t some = 0; some <= kWhole; some += 37) {
    ChunkPacker packer(false);
    ChunksToSend chunks;
    for (std::uint64_t i = 1; i <= 3; ++i) chunks.add(packer, header(i, 1000), bytes);
    const Bytes all = joined(chunks.left());
    ASSERT_EQ(all.size(), kWhole);
    chunks.went(packer, some);
    const Bytes rest = joined(chunks.left());
    ASSERT_EQ(rest.size(), kWhole - some);
    ASSERT_TRUE(std::equal(rest.begin(), rest.end(), all.begin() + static_cast<long>(some)));
  }
}

}  // namespace
}  // namespace gpurun::protocol
