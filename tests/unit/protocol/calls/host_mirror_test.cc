// Host mirror: two copies with their twins become alike, whichever side has written. Bytes that the
// other side did not write stay as they are, and a flag never arrives before its data.
#include "protocol/calls/host_mirror.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "protocol/calls/managed_variable.h"

namespace gpurun::protocol {
namespace {

constexpr std::uint64_t kAddress = std::uint64_t{0x1800} << 32;
constexpr std::size_t kBytes = 16 << 10;

// One end of the exchange.
struct Side {
  alignas(kMirrorLineBytes) std::byte copy[kBytes]{};
  alignas(kMirrorLineBytes) std::byte twin[kBytes]{};

  MirrorSpan span() { return {copy, twin, kAddress, kBytes}; }
  void write(std::size_t at, int value) { copy[at] = static_cast<std::byte>(value); }
  int read(std::size_t at) const { return static_cast<int>(copy[at]); }
};

Bytes changes_of(Side& side) {
  Bytes memory(2 * kBytes);
  MirrorWriter writer(memory);
  EXPECT_EQ(take_changes(side.copy, side.twin, kAddress, kBytes, &writer), kBytes);
  memory.resize(writer.size());
  return memory;
}

bool merge(Side& side, ByteView pieces) {
  return merge_pieces(pieces, [&](std::uint64_t address, std::uint64_t bytes) -> MirrorSpan {
    const std::uint64_t at = address - kAddress;
    if (at >= kBytes) return {};
    return {side.copy + at, side.twin + at, address, std::min<std::size_t>(bytes, kBytes - at)};
  });
}

void expect_alike(const Side& one, const Side& other) {
  EXPECT_EQ(std::memcmp(one.copy, other.copy, kBytes), 0);
  EXPECT_EQ(std::memcmp(one.twin, other.twin, kBytes), 0);
  EXPECT_EQ(std::memcmp(one.copy, one.twin, kBytes), 0);
}

TEST(HostMirrorTest, WritesOfBothSidesToOneLineAreKept) {
  Side host, device;
  host.write(100, 1);
  device.write(101, 2);
  ASSERT_TRUE(merge(device, changes_of(host)));
  EXPECT_EQ(device.read(100), 1);
  EXPECT_EQ(device.read(101), 2);
  ASSERT_TRUE(merge(host, changes_of(device)));
  EXPECT_EQ(host.read(100), 1);
  EXPECT_EQ(host.read(101), 2);
  expect_alike(host, device);
}

// Managed memory: nobody writes to it now, so whole lines are taken.
TEST(HostMirrorTest, MemoryUsedInTurnIsTakenByLines) {
  Side host, device;
  for (std::size_t at = 0; at < kBytes; at += 3) host.write(at, 5);
  Bytes memory(2 * kBytes);
  MirrorWriter writer(memory);
  EXPECT_EQ(take_changes(host.copy, host.twin, kAddress, kBytes, &writer, true), kBytes);
  EXPECT_EQ(writer.size(), sizeof(HostMirrorPiece) + kBytes);
  ASSERT_TRUE(merge(device, ByteView(memory).first(writer.size())));
  expect_alike(host, device);
}

// The other side has written there since, and this side has not.
TEST(HostMirrorTest, BytesThatTheSenderDidNotWriteAreLeftAlone) {
  Side host, device;
  host.write(7, 1);
  const Bytes sent = changes_of(host);
  device.write(8, 9);
  ASSERT_TRUE(merge(device, sent));
  EXPECT_EQ(device.read(8), 9);
  host.write(9, 5);  // Not sent yet.
  ASSERT_TRUE(merge(host, changes_of(device)));
  EXPECT_EQ(host.read(9), 5);
  EXPECT_EQ(host.read(8), 9);
}

TEST(HostMirrorTest, NothingTravelsWithoutChange) {
  Side host;
  EXPECT_TRUE(changes_of(host).empty());
  host.write(0, 3);
  EXPECT_EQ(changes_of(host).size(), sizeof(HostMirrorPiece) + kMirrorLineBytes);
  EXPECT_TRUE(changes_of(host).empty());
}

TEST(HostMirrorTest, NeighbouringLinesShareAPiece) {
  Side host;
  for (std::size_t at = 0; at < 3 * kMirrorLineBytes; ++at) host.write(at, 1);
  host.write(kBytes - 1, 1);
  EXPECT_EQ(changes_of(host).size(), 2 * sizeof(HostMirrorPiece) + 4 * kMirrorLineBytes);
}

TEST(HostMirrorTest, WithoutRoomTheRestComesLater) {
  Side host, device;
  for (std::size_t at = 0; at < kBytes; ++at) host.write(at, static_cast<int>(at % 251 + 1));
  std::size_t compared = 0;
  int parts = 0;
  while (compared < kBytes) {
    Bytes memory(1000);
    MirrorWriter writer(memory);
    compared += take_changes(host.copy + compared, host.twin + compared, kAddress + compared,
                             kBytes - compared, &writer);
    ASSERT_TRUE(merge(device, ByteView(memory).first(writer.size())));
    ++parts;
  }
  EXPECT_GT(parts, 16);
  expect_alike(host, device);
}

TEST(HostMirrorTest, RandomWritesOfBothSidesMeet) {
  Side host, device;
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    // Each side writes its own bytes, as a program without races does.
    for (int i = 0; i < 20; ++i)
      host.write(random() % (kBytes / 2) * 2, static_cast<int>(random() % 256));
    for (int i = 0; i < 20; ++i)
      device.write(random() % (kBytes / 2) * 2 + 1, static_cast<int>(random() % 256));
    ASSERT_TRUE(merge(device, changes_of(host)));
    ASSERT_TRUE(merge(host, changes_of(device)));
    ASSERT_EQ(std::memcmp(host.copy, device.copy, kBytes), 0) << "round " << round;
  }
  expect_alike(host, device);
}

TEST(HostMirrorTest, MalformedPiecesAreRefused) {
  Side side;
  const auto refused = [&](HostMirrorPiece piece, std::size_t bytes) {
    Bytes pieces(sizeof piece + bytes);
    std::memcpy(pieces.data(), &piece, sizeof piece);
    return !merge(side, pieces);
  };
  EXPECT_TRUE(refused({kAddress, 0, 0}, 0));
  EXPECT_TRUE(refused({kAddress, 64, 2}, 64));
  EXPECT_FALSE(refused({kAddress, 64, 1}, 64));
  EXPECT_TRUE(refused({kAddress + 8, 64, 0}, 64));
  EXPECT_TRUE(refused({kAddress, 65, 0}, 65));
  EXPECT_TRUE(refused({kAddress, 128, 0}, 64));
  EXPECT_TRUE(refused({~std::uint64_t{63}, 64, 0}, 64));
  EXPECT_FALSE(refused({kAddress, 64, 0}, 64));
  EXPECT_FALSE(refused({kAddress + kBytes, 64, 0}, 64)) << "outside all memory: ignored";
  EXPECT_FALSE(merge(side, Bytes(8)));
}

// The data lies before the flag, so that one comparison alone would often find the new flag and the
// old data.
TEST(HostMirrorTest, FlagArrivesWithItsData) {
  constexpr std::size_t kData = 0, kFlag = kBytes - 64;
  Side device, host;
  std::atomic<bool> stop{false};
  std::thread kernel([&] {
    auto* const flag = reinterpret_cast<std::uint64_t*>(device.copy + kFlag);
    auto* const data = reinterpret_cast<std::uint64_t*>(device.copy + kData);
    for (std::uint64_t value = 1; !stop.load(); ++value) {
      __atomic_store_n(data, value, __ATOMIC_RELAXED);
      __atomic_store_n(flag, value, __ATOMIC_RELEASE);
      for (int i = 0; i < 20'000; ++i) __atomic_signal_fence(__ATOMIC_SEQ_CST);
    }
  });
  for (int round = 0; round < 20'000; ++round) {
    Bytes memory(2 * kBytes);
    MirrorWriter writer(memory);
    const MirrorSpan span = device.span();
    (void)take_settled_changes({&span, 1}, false, &writer);
    ASSERT_TRUE(merge(host, ByteView(memory).first(writer.size())));
    std::uint64_t flag = 0, data = 0;
    std::memcpy(&flag, host.copy + kFlag, sizeof flag);
    std::memcpy(&data, host.copy + kData, sizeof data);
    EXPECT_GE(data, flag) << "round " << round;
    if (data < flag) break;
  }
  stop.store(true);
  kernel.join();
}

// Otherwise the twin would hold what the other side has not.
TEST(HostMirrorTest, UnsettledMemoryIsLeftForTheNextTime) {
  Side device, host;
  std::atomic<bool> stop{false};
  std::thread kernel([&] {
    auto* const word = reinterpret_cast<std::uint64_t*>(device.copy + 128);
    for (std::uint64_t value = 1; !stop.load(); ++value) {
      __atomic_store_n(word, value, __ATOMIC_RELAXED);
    }
  });
  int left = 0, anyway = 0;
  while (__atomic_load_n(reinterpret_cast<std::uint64_t*>(device.copy + 128), __ATOMIC_RELAXED) ==
         0) {
  }
  for (int round = 0; round < 20'000; ++round) {
    Bytes memory(2 * kBytes);
    MirrorWriter writer(memory);
    const MirrorSpan span = device.span();
    const bool taken = take_settled_changes({&span, 1}, round % 2 == 1, &writer);
    if (!taken) ++(round % 2 == 1 ? anyway : left);
    EXPECT_TRUE(taken || round % 2 == 1 || writer.size() == 0);
    ASSERT_TRUE(merge(host, ByteView(memory).first(writer.size())));
    ASSERT_EQ(std::memcmp(host.twin, device.twin, kBytes), 0) << "round " << round;
  }
  stop.store(true);
  kernel.join();
  if (left == 0) GTEST_SKIP() << "the other thread did not run beside this one";
}

// The program changes one byte of a word while another one is taken.
TEST(HostMirrorTest, NeighbouringBytesOfOneWordAreKept) {
  Side host;
  std::atomic<bool> stop{false};
  std::thread program([&] {
    auto* const own = reinterpret_cast<std::uint8_t*>(host.copy + 65);
    for (std::uint8_t value = 0; !stop.load();) {
      __atomic_store_n(own, ++value, __ATOMIC_RELAXED);
      for (int i = 0; i < 20; ++i) {
        if (__atomic_load_n(own, __ATOMIC_RELAXED) == value) continue;
        ADD_FAILURE() << "a byte of the program was overwritten";
        return;
      }
    }
  });
  for (int round = 1; round < 200'000; ++round) {
    Bytes pieces(256);
    MirrorWriter writer(pieces);
    alignas(8) std::byte line[kMirrorLineBytes]{};
    line[0] = static_cast<std::byte>(round);
    line[1] = host.twin[65];
    ASSERT_TRUE(writer.add(kAddress + 64, line));
    ASSERT_TRUE(merge(host, ByteView(pieces).first(writer.size())));
  }
  stop.store(true);
  program.join();
}

// A thread that polls the flag while the pieces are merged sees the data once it sees the flag.
TEST(HostMirrorTest, WordIsWrittenAfterLongerChanges) {
  Side device, host;
  device.write(0, 1);  // The flag.
  for (std::size_t at = 4096; at < 4096 + 256; ++at) device.write(at, 7);
  const Bytes sent = changes_of(device);
  // Looks at the copy each time that another piece begins.
  ASSERT_TRUE(merge_pieces(sent, [&](std::uint64_t address, std::uint64_t bytes) -> MirrorSpan {
    const std::uint64_t at = address - kAddress;
    EXPECT_TRUE(host.read(0) != 1 || host.read(4096 + 255) == 7);
    return {host.copy + at, host.twin + at, address, static_cast<std::size_t>(bytes)};
  }));
  EXPECT_EQ(host.read(0), 1);
  EXPECT_EQ(host.read(4096), 7);
}

// Two copies with neighbouring addresses get the lines of one piece.
TEST(HostMirrorTest, PieceMayGoThroughSeveralCopies) {
  Side device, first, second;
  for (std::size_t at = 0; at < 256; ++at) device.write(at, 5);
  const Bytes sent = changes_of(device);
  ASSERT_TRUE(merge_pieces(sent, [&](std::uint64_t address, std::uint64_t bytes) -> MirrorSpan {
    const std::uint64_t at = address - kAddress;
    Side& side = at < 64 ? first : second;
    const std::uint64_t end = at < 64 ? 64 : 192;
    if (at >= end) return {};
    return {side.copy + at, side.twin + at, address, std::min<std::size_t>(bytes, end - at)};
  }));
  EXPECT_EQ(first.read(63), 5);
  EXPECT_EQ(first.read(64), 0);
  EXPECT_EQ(second.read(63), 0);
  EXPECT_EQ(second.read(64), 5);
  EXPECT_EQ(second.read(191), 5);
  EXPECT_EQ(second.read(192), 0);
}

TEST(ManagedVariableTest, AddressesAreThoseOfProgramsAndBytesAreBounded) {
  constexpr std::uint64_t kEnd = (std::uint64_t{1} << 47) - (1 << 20);
  EXPECT_TRUE(is_sound({std::uint64_t{1} << 20, 1}));
  EXPECT_TRUE(is_sound({kEnd - 64, 64}));
  EXPECT_TRUE(is_sound({std::uint64_t{1} << 32, limits::kManagedVariableBytesMax}));
  for (const ManagedVariable wrong :
       {ManagedVariable{0, 4}, ManagedVariable{4096, 4}, ManagedVariable{kEnd - 63, 64},
        ManagedVariable{kEnd, 1}, ManagedVariable{~std::uint64_t{0}, 1},
        ManagedVariable{std::uint64_t{1} << 32, 0},
        ManagedVariable{std::uint64_t{1} << 32, limits::kManagedVariableBytesMax + 1},
        ManagedVariable{std::uint64_t{1} << 32, ~std::uint64_t{0}}}) {
    EXPECT_FALSE(is_sound(wrong)) << wrong.address << ' ' << wrong.bytes;
  }
  const ManagedVariable lines{100, 29};
  EXPECT_EQ(lines.first_line(), 64u);
  EXPECT_EQ(lines.lines_end(), 192u);
}

}  // namespace
}  // namespace gpurun::protocol
