// Packed records: unpacking gives the original, whatever came before. A hostile block is refused,
// and reaches only its own bytes. On a fast link nothing is packed.
#include "protocol/log/packed_records.h"

#include <gtest/gtest.h>
#include <lz4.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "protocol/control/features.h"
#include "protocol/log/log_packer.h"

namespace gpurun::protocol {
namespace {

using std::chrono::nanoseconds;

constexpr std::size_t kFrame = kPackedRecordsBytesMax;
constexpr double kSlow = 12.5e6, kFast = 5e9;  // In bytes per second.

Bytes random_bytes(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

// Like launches in a loop: equal words, except for a number and a random one.
Bytes launches(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed), same(1);
  std::uint64_t words[24];
  for (std::uint64_t& word : words) word = same();
  Bytes bytes;
  for (std::size_t i = 0; i < count; ++i) {
    words[2] = seed + i;
    words[7] = random();
    const ByteView one = byte_view(words, sizeof words);
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  return bytes;
}

void learn(LogPacker& packer, double bytes_per_second) {
  for (int i = 0; i < 256; ++i) {
    packer.sent(kFrame, nanoseconds(static_cast<std::int64_t>(static_cast<double>(kFrame) /
                                                              bytes_per_second * 1e9)));
  }
}

// The payload to send. Empty: the records go unpacked.
Bytes pack(LogPacker& packer, ByteView records) {
  // In two parts, as a ring gives them.
  const ByteView parts[] = {records.first(records.size() / 16 * 8),
                            records.subspan(records.size() / 16 * 8)};
  const LogPacker::Packed packed = packer.pack(parts, records.size());
  if (!packed.packed) return {};
  const ByteView head = bytes_of(packed.head);
  Bytes payload(head.begin(), head.end());
  payload.insert(payload.end(), packed.block.begin(), packed.block.end());
  return payload;
}

Bytes payload_of(PackedRecordsHead head, ByteView block) {
  const ByteView words = bytes_of(head);
  Bytes payload(words.begin(), words.end());
  payload.insert(payload.end(), block.begin(), block.end());
  return payload;
}

Bytes block_of(ByteView records) {
  Bytes block(static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(records.size()))));
  block.resize(static_cast<std::size_t>(LZ4_compress_default(
      reinterpret_cast<const char*>(records.data()), reinterpret_cast<char*>(block.data()),
      static_cast<int>(records.size()), static_cast<int>(block.size()))));
  return block;
}

TEST(PackedRecords, RoundTripUnchanged) {
  LogPacker packer(true);
  learn(packer, kSlow);
  packer.set_codec_time(nanoseconds(1));
  RecordsUnpacker unpacker;
  std::mt19937 random(3);
  std::size_t packed_frames = 0;
  // All sizes, many times the memory of either end, and some that cannot be packed.
  for (unsigned i = 0; i < 400; ++i) {
    const std::size_t count = i % 16 == 0 ? kFrame / 192 : 3 + random() % 700;
    const Bytes records = i % 29 == 28 ? random_bytes(count * 192, i) : launches(count, i);
    const Bytes payload = pack(packer, records);
    if (payload.empty()) continue;
    ++packed_frames;
    EXPECT_LT(payload.size(), records.size() / 2);
    EXPECT_EQ(payload.size() % 8, 0u) << "the next frame is not aligned";
    const Result<ByteView> back = unpacker.unpack(payload);
    ASSERT_TRUE(back.ok()) << i << ": " << back.status().to_string();
    ASSERT_EQ(back->size(), records.size());
    EXPECT_EQ(std::memcmp(back->data(), records.data(), records.size()), 0) << i;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(back->data()) % 8, 0u);
  }
  EXPECT_GT(packed_frames, 300u);
}

// A few calls compress little by themselves. With the calls before them they compress well.
TEST(PackedRecords, HistoryImprovesCompressionOfFewCalls) {
  LogPacker packer(true);
  learn(packer, kSlow);
  packer.set_codec_time(nanoseconds(1));
  const Bytes first = pack(packer, launches(4, 1)), second = pack(packer, launches(4, 2));
  ASSERT_FALSE(first.empty() || second.empty());
  EXPECT_LT(second.size(), first.size() * 3 / 4);
}

TEST(PackedRecords, PeerWithoutFeatureGetsUnpackedRecords) {
  LogPacker packer(false);
  learn(packer, kSlow);
  EXPECT_TRUE(pack(packer, launches(100, 1)).empty());
  EXPECT_FALSE(packer.wants_time(kFrame));
  EXPECT_TRUE(features_of_sources(Sender::kServer).offers(Feature::kPackedRecords));
  EXPECT_EQ(features_of_sources(Sender::kClient).required & feature_bit(Feature::kPackedRecords),
            0u);
}

TEST(PackedRecords, RecordsArePackedOnlyOnSlowLink) {
  LogPacker packer(true);
  packer.set_codec_time(nanoseconds(1));
  EXPECT_TRUE(pack(packer, launches(100, 1)).empty()) << "nothing is known of the link";
  learn(packer, kFast);
  EXPECT_TRUE(pack(packer, launches(100, 1)).empty());
  learn(packer, kSlow);
  EXPECT_FALSE(pack(packer, launches(100, 1)).empty());
  learn(packer, kFast);
  EXPECT_TRUE(pack(packer, launches(100, 1)).empty());
  learn(packer, kSlow);
  EXPECT_TRUE(pack(packer, launches(2, 1)).empty()) << "less than a packet";
  EXPECT_TRUE(pack(packer, Bytes(kFrame + 8)).empty()) << "one large record";
}

TEST(PackedRecords, SlowCodecIsUsedOnlyForTrials) {
  LogPacker packer(true);
  learn(packer, kSlow);
  packer.set_codec_time(std::chrono::seconds(1));
  unsigned packed = 0;
  for (unsigned i = 0; i < 32; ++i) packed += pack(packer, launches(100, i)).empty() ? 0 : 1;
  EXPECT_EQ(packed, 1u);
}

TEST(PackedRecords, IncompressibleRecordsSuspendPackingTemporarily) {
  LogPacker packer(true);
  learn(packer, kSlow);
  packer.set_codec_time(nanoseconds(1));
  RecordsUnpacker unpacker;
  for (unsigned i = 0; i < 1000; ++i) {
    EXPECT_TRUE(pack(packer, random_bytes(4096, i)).empty());
  }
  unsigned tries = 0;
  Bytes payload;
  const Bytes records = launches(100, 1);
  while ((payload = pack(packer, records)).empty() && tries <= 2 * CodecWorth::kTrialEveryMax) {
    ++tries;
  }
  EXPECT_GT(tries, 0u);
  const Result<ByteView> back = unpacker.unpack(payload);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(std::memcmp(back->data(), records.data(), records.size()), 0);
}

// A block of `bytes` bytes in all: a literal, then a copy of the bytes `back` before it, then five
// literals.
Bytes copy_from(std::size_t back, std::size_t bytes) {
  Bytes block = {std::byte{0x1f}, std::byte{'a'}, static_cast<std::byte>(back & 255),
                 static_cast<std::byte>(back >> 8)};
  std::size_t left = bytes - 1 - 19 - 5;
  for (; left >= 255; left -= 255) block.push_back(std::byte{255});
  block.push_back(static_cast<std::byte>(left));
  block.push_back(std::byte{0x50});
  block.resize(block.size() + 5, std::byte{'b'});
  return block;
}

bool refused(RecordsUnpacker& unpacker, std::size_t bytes, ByteView block,
             std::uint32_t padding = 0) {
  const Result<ByteView> got =
      unpacker.unpack(payload_of({static_cast<std::uint32_t>(bytes), padding}, block));
  if (got.ok()) EXPECT_EQ(got->size(), bytes);
  return !got.ok() && got.status().code() == Code::kProtocol;
}

TEST(PackedRecords, InvalidHeadsAreRefused) {
  const Bytes records = launches(100, 1);
  const std::size_t bytes = records.size();
  const Bytes block = block_of(records);
  RecordsUnpacker unpacker;
  EXPECT_FALSE(refused(unpacker, bytes, block));
  EXPECT_FALSE(unpacker.unpack({}).ok());
  EXPECT_TRUE(refused(unpacker, bytes, {}));
  Bytes padded = block;
  padded.resize(block.size() + 7);
  EXPECT_FALSE(refused(unpacker, bytes, padded, 7));
  EXPECT_TRUE(refused(unpacker, bytes, padded, 6));
  EXPECT_TRUE(refused(unpacker, bytes, block, 8));
  EXPECT_TRUE(refused(unpacker, 8, Bytes(4), 4)) << "nothing but padding";
  EXPECT_TRUE(refused(unpacker, 0, block));
  for (const std::size_t wrong : {bytes - 8, bytes + 8, bytes - 1}) {
    EXPECT_TRUE(refused(unpacker, wrong, block)) << wrong;
  }
  EXPECT_TRUE(refused(unpacker, 8, Bytes(8))) << "no smaller";
  EXPECT_TRUE(refused(unpacker, bytes, ByteView(block).first(block.size() - 1)));
}

TEST(PackedRecords, UnpackingIsBoundedByFrameSize) {
  RecordsUnpacker unpacker;
  EXPECT_FALSE(refused(unpacker, kFrame, copy_from(1, kFrame)));
  for (const std::size_t bytes : {kFrame + 8, 2 * kHistoryRoomBytes}) {
    EXPECT_TRUE(refused(unpacker, bytes, copy_from(1, bytes))) << bytes;
  }
}

TEST(PackedRecords, ReferencesBeforeHistoryAreRefused) {
  constexpr std::size_t kBytes = 32;
  RecordsUnpacker unpacker;
  EXPECT_TRUE(refused(unpacker, kBytes, copy_from(2, kBytes)));
  EXPECT_FALSE(refused(unpacker, kBytes, copy_from(1, kBytes)));
  EXPECT_FALSE(refused(unpacker, kBytes, copy_from(kBytes + 1, kBytes)));
  EXPECT_TRUE(refused(unpacker, kBytes, copy_from(2 * kBytes + 2, kBytes)));
  // The last 64 KiB stay available, wherever they have been moved to.
  for (int i = 0; i < 9; ++i) {
    EXPECT_FALSE(refused(unpacker, kFrame, copy_from(1, kFrame)));
    EXPECT_FALSE(refused(unpacker, kBytes, copy_from(kHistoryBytes - 1, kBytes)));
  }
}

TEST(PackedRecords, CorruptedBlocksAreUnpackedOrRefused) {
  const Bytes records = launches(600, 1);
  const Bytes block = block_of(records);
  std::mt19937 random(5);
  RecordsUnpacker unpacker;
  unsigned count = 0;
  for (unsigned i = 0; i < 3000; ++i) {
    Bytes changed = block;
    for (unsigned each = 0; each < 1 + i % 4; ++each) {
      changed[random() % changed.size()] = static_cast<std::byte>(random());
    }
    count += refused(unpacker, records.size(), changed) ? 1 : 0;
  }
  EXPECT_GT(count, 100u);
}

}  // namespace
}  // namespace gpurun::protocol
