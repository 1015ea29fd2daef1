// Packed chunks: unpacking gives the original. A hostile chunk is refused, and fills no byte beyond
// its end. A chunk is packed only if that makes it arrive sooner.
#include "protocol/bulk/packed_chunk.h"

#include <gtest/gtest.h>

#include <random>

#include "protocol/bulk/chunk_packer.h"
#include "protocol/control/features.h"

namespace gpurun::protocol {
namespace {

constexpr std::size_t kChunk = limits::kBulkChunkBytes;

Bytes random_bytes(std::size_t count) {
  std::mt19937_64 random(count);
  Bytes bytes(count);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

Bytes text_bytes(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>("a text, "[i % 8]);
  return bytes;
}

// The packer's output, as the receiver reads it.
struct OnWire {
  bool packed = false;
  PackedHead head;
  Bytes bytes;
};

OnWire pack(ChunkPacker& packer, ByteView chunk) {
  const ChunkPacker::Packed packed = packer.pack(chunk);
  OnWire wire{packed.packed, packed.head, {}};
  for (const ByteView part : packed.parts)
    wire.bytes.insert(wire.bytes.end(), part.begin(), part.end());
  EXPECT_EQ(wire.bytes.size(), packed.bytes);
  return wire;
}

// Unpacks into memory, and checks that the bytes behind it stay unchanged.
Status unpack(const OnWire& wire, std::size_t chunk_bytes, Bytes* chunk) {
  const Result<PackedHead> head =
      parse_packed_head(bytes_of(wire.head), chunk_bytes, wire.bytes.size());
  if (!head.ok()) return head.status();
  Bytes memory(chunk_bytes + 64, std::byte{0x5a}), scratch;
  std::size_t at = 0;
  Status status =
      receive_packed(*head, wire.bytes.size(), MutableBytes(memory).first(chunk_bytes), scratch,
                     [&](MutableBytes into) {
                       EXPECT_LE(at + into.size(), wire.bytes.size());
                       if (at + into.size() <= wire.bytes.size()) {
                         std::copy_n(wire.bytes.begin() + static_cast<std::ptrdiff_t>(at),
                                     into.size(), into.begin());
                       }
                       at += into.size();
                       return Status();
                     });
  for (std::size_t i = chunk_bytes; i < memory.size(); ++i) EXPECT_EQ(memory[i], std::byte{0x5a});
  memory.resize(chunk_bytes);
  *chunk = std::move(memory);
  return status;
}

void learn(ChunkPacker& packer, double bytes_per_second) {
  for (int i = 0; i < 256; ++i) {
    packer.sent(kChunk, std::chrono::nanoseconds(static_cast<std::int64_t>(
                            static_cast<double>(kChunk) / bytes_per_second * 1e9)));
  }
}
constexpr double kSlow = 12.5e6, kFast = 5e9;  // In bytes per second.

TEST(PackedChunk, ZeroPagesAreOmittedAndRestored) {
  for (const std::size_t size :
       {std::size_t{1}, kPageBytes - 1, kPageBytes, 3 * kPageBytes + 5, kChunk - 1, kChunk}) {
    for (const std::uint64_t pages : {0ull, 1ull, 0x8000000000000001ull, 0xff00000000ff0000ull}) {
      Bytes chunk(size);
      for (std::size_t page = 0; page * kPageBytes < size; ++page) {
        // One byte at the end of the page, where a quick look does not find it.
        if ((pages >> page & 1) == 0) continue;
        chunk[std::min((page + 1) * kPageBytes, size) - 1] = std::byte{1};
      }
      ChunkPacker packer(true);
      const OnWire wire = pack(packer, chunk);
      if (!wire.packed) {
        EXPECT_LT(size, 4 * kPageBytes) << size << ' ' << pages;
        continue;
      }
      EXPECT_LT(wire.bytes.size(), size / 2 + 1);
      Bytes back;
      ASSERT_TRUE(unpack(wire, size, &back).ok());
      EXPECT_TRUE(back == chunk) << size << ' ' << pages;
    }
  }
}

TEST(PackedChunk, PeerWithoutFeatureGetsUnpackedChunks) {
  ChunkPacker packer(false);
  learn(packer, kSlow);
  EXPECT_FALSE(pack(packer, Bytes(kChunk)).packed);
  EXPECT_FALSE(pack(packer, text_bytes(kChunk)).packed);
  EXPECT_TRUE(features_of_sources(Sender::kServer).offers(Feature::kPackedChunks));
  EXPECT_EQ(features_of_sources(Sender::kClient).required & feature_bit(Feature::kPackedChunks),
            0u);
}

TEST(PackedChunk, ScatteredZeroPagesAreSentUnpacked) {
  Bytes chunk = random_bytes(kChunk);
  for (std::size_t page = 0; page < kPagesMax; page += 8) {
    std::fill_n(chunk.begin() + static_cast<std::ptrdiff_t>(page * kPageBytes), kPageBytes,
                std::byte{0});
  }
  ChunkPacker packer(true);
  EXPECT_FALSE(pack(packer, chunk).packed) << "a run for each page costs more than it saves";
}

TEST(PackedChunk, CompressesOnlyOnSlowConnection) {
  ChunkPacker packer(true);
  packer.set_codec_time(std::chrono::microseconds(300));
  const Bytes text = text_bytes(kChunk);
  EXPECT_FALSE(pack(packer, text).packed) << "nothing is known of the connection";
  learn(packer, kFast);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(pack(packer, text).packed);
  learn(packer, kSlow);
  const OnWire wire = pack(packer, text);
  ASSERT_TRUE(wire.packed);
  EXPECT_EQ(wire.head.packing, Packing::kLz4);
  EXPECT_LT(wire.bytes.size(), kChunk / 50);
  Bytes back;
  ASSERT_TRUE(unpack(wire, kChunk, &back).ok());
  EXPECT_TRUE(back == text);
  // The link is fast again, as larger sends show.
  learn(packer, kFast);
  EXPECT_FALSE(pack(packer, text).packed);
}

TEST(PackedChunk, IncompressibleDataIsSentUnpackedAndRetried) {
  ChunkPacker packer(true);
  packer.set_codec_time(std::chrono::microseconds(300));
  learn(packer, kSlow);
  const Bytes noise = random_bytes(kChunk);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(pack(packer, noise).packed);
    learn(packer, kSlow);
  }
  // Then compressible data, which the next trial finds.
  const Bytes text = text_bytes(kChunk);
  unsigned tries = 1;
  while (!pack(packer, text).packed && tries <= 2 * CodecWorth::kTrialEveryMax) ++tries;
  EXPECT_LE(tries, 2 * CodecWorth::kTrialEveryMax);
  EXPECT_TRUE(pack(packer, text).packed) << "and the next at once";
}

TEST(PackedChunk, SlowCodecIsUsedOnlyForTrials) {
  ChunkPacker packer(true);
  packer.set_codec_time(std::chrono::milliseconds(80));  // Unpacked, a chunk takes 42 ms.
  learn(packer, kSlow);
  const Bytes text = text_bytes(kChunk);
  EXPECT_TRUE(pack(packer, text).packed) << "the codec has to be measured once";
  for (unsigned i = 0; i < CodecWorth::kTrialEveryMax; ++i) {
    EXPECT_FALSE(pack(packer, text).packed) << i;
  }
  EXPECT_TRUE(pack(packer, text).packed) << "and now and then again";
}

TEST(PackedChunk, FindsCompressibleChunksAmongNoise) {
  ChunkPacker packer(true);
  packer.set_codec_time(std::chrono::microseconds(300));
  learn(packer, kSlow);
  const Bytes text = text_bytes(kChunk), noise = random_bytes(kChunk);
  int packed = 0;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(pack(packer, noise).packed);
    if (pack(packer, text).packed) ++packed;
  }
  EXPECT_GT(packed, 200);
}

TEST(PackedChunk, SmallChunksAreUnpackedAndDoNotAffectEstimates) {
  ChunkPacker packer(true);
  packer.set_codec_time(std::chrono::microseconds(300));
  learn(packer, kSlow);
  const Bytes text = text_bytes(kChunk);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(pack(packer, text).packed) << i;
    EXPECT_FALSE(pack(packer, random_bytes(9)).packed);
    EXPECT_FALSE(pack(packer, Bytes(9)).packed) << "a head is longer than that";
  }
  // Occasional delays of a few bytes do not make a link slow.
  learn(packer, kFast);
  for (int i = 0; i < 1000; ++i) {
    for (int small = 0; small < 40; ++small) packer.sent(64, std::chrono::milliseconds(1));
    EXPECT_FALSE(pack(packer, text).packed) << i;
    packer.sent(kChunk, std::chrono::microseconds(52));
  }
}

TEST(PackedChunk, ChunkWithZeroPagesIsStillCompressed) {
  ChunkPacker packer(true);
  packer.set_codec_time(std::chrono::microseconds(300));
  learn(packer, kSlow);
  Bytes chunk = text_bytes(kChunk);
  std::fill_n(chunk.begin(), 2 * kPageBytes, std::byte{0});
  const OnWire wire = pack(packer, chunk);
  ASSERT_TRUE(wire.packed);
  EXPECT_EQ(wire.head.packing, Packing::kLz4);
  EXPECT_LT(wire.bytes.size(), kChunk / 50);
  // Zero pages are left out even if the rest does not compress.
  chunk = random_bytes(kChunk);
  std::fill_n(chunk.begin(), 2 * kPageBytes, std::byte{0});
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(pack(packer, chunk).bytes.size(), kChunk - 2 * kPageBytes) << i;
  }
  // After much incompressible data, compressible chunks with zero pages are found again.
  const Bytes noise = random_bytes(kChunk);
  for (int i = 0; i < 1000; ++i) pack(packer, noise);
  chunk = text_bytes(kChunk);
  std::fill_n(chunk.begin(), 2 * kPageBytes, std::byte{0});
  unsigned tries = 1;
  while (pack(packer, chunk).bytes.size() > kChunk / 50 && tries <= 3 * CodecWorth::kTrialEveryMax)
    ++tries;
  EXPECT_LE(tries, 2 * CodecWorth::kTrialEveryMax);
}

TEST(PackedChunk, BurstIntoSocketBuffersDoesNotHideSlowLink) {
  ChunkPacker packer(true);
  packer.set_codec_time(std::chrono::microseconds(300));
  learn(packer, kSlow);
  // The sockets' buffers take the first 8 MiB at once.
  for (int i = 0; i < 16; ++i) {
    EXPECT_TRUE(pack(packer, text_bytes(kChunk)).packed) << i;
    packer.sent(kChunk, std::chrono::microseconds(52));
  }
}

TEST(PackedChunk, RefusesInvalidHeads) {
  const auto refused = [](Packing packing, std::uint64_t pages, std::size_t chunk_bytes,
                          std::size_t packed_bytes, std::uint32_t reserved = 0) {
    const PackedHead head{packing, reserved, pages};
    return parse_packed_head(bytes_of(head), chunk_bytes, packed_bytes).status().code() ==
           Code::kProtocol;
  };
  EXPECT_FALSE(refused(Packing::kSparse, 5, kChunk, 2 * kPageBytes));
  EXPECT_TRUE(refused(Packing::kSparse, 5, kChunk, 2 * kPageBytes, 1));
  EXPECT_TRUE(refused(Packing::kSparse, 5, kChunk, 2 * kPageBytes - 1)) << "fewer than its pages";
  EXPECT_TRUE(refused(Packing::kSparse, 5, kChunk, 3 * kPageBytes)) << "more than its pages";
  EXPECT_TRUE(refused(Packing::kSparse, 4, 2 * kPageBytes, kPageBytes)) << "a page beyond the end";
  EXPECT_FALSE(refused(Packing::kSparse, 2, kPageBytes + 3, 3)) << "the last page may be short";
  EXPECT_TRUE(refused(Packing::kSparse, ~0ull, kChunk, kChunk)) << "nothing is left out";
  EXPECT_TRUE(refused(Packing::kLz4, 0, kChunk, kChunk)) << "no smaller than it was";
  EXPECT_TRUE(refused(Packing::kLz4, 0, kChunk, 0));
  EXPECT_TRUE(refused(Packing::kLz4, 1, kChunk, 100));
  EXPECT_TRUE(refused(static_cast<Packing>(3), 0, kChunk, 100));
  EXPECT_EQ(parse_packed_head(Bytes(kPackedHeadBytes - 1), kChunk, 0).status().code(),
            Code::kProtocol);
}

TEST(PackedChunk, RefusesBlockOfWrongUnpackedSize) {
  ChunkPacker packer(true);
  packer.set_codec_time(std::chrono::microseconds(300));
  learn(packer, kSlow);
  const OnWire wire = pack(packer, text_bytes(kChunk));
  ASSERT_TRUE(wire.packed);
  Bytes back;
  for (const std::size_t size : {kChunk - 1, kChunk / 2, wire.bytes.size() + 1}) {
    EXPECT_EQ(unpack(wire, size, &back).code(), Code::kProtocol) << size;  // It would need more
                                                                           // bytes.
  }
  OnWire cut = wire;
  cut.bytes.resize(cut.bytes.size() / 2);
  EXPECT_EQ(unpack(cut, kChunk, &back).code(), Code::kProtocol);
  OnWire noise = wire;
  noise.bytes = random_bytes(1000);
  EXPECT_EQ(unpack(noise, kChunk, &back).code(), Code::kProtocol);
}

}  // namespace
}  // namespace gpurun::protocol
