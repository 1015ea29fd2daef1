// Lying peers: the other end of an RDMA connection says what cannot be. That counts as a failure of
// the carrier, and harms nothing else.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <thread>

#include "tests/support/rdma_pair.h"
#include "transport/rdma/find_ports.h"
#include "transport/rdma/queue_pair.h"

namespace gpurun::transport::test {
namespace {

using carrier::Found;

// As rdma_carrier.h describes it.
enum Meaning : std::uint32_t { kBytesUpTo, kTakenUpTo, kReceivesUpTo, kEnd };
std::uint32_t immediate(Meaning meaning, std::uint64_t count) {
  return std::uint32_t{meaning} << 30 | (static_cast<std::uint32_t>(count) & 0x3fffffff);
}

// A carrier with a queue pair of the test as its peer.
struct Liar {
  // `sends`: the peer sends although both devices write. `lends`: the carrier's end lends memory.
  explicit Liar(const std::string& devices = "rdma0", bool sends = false, bool lends = false) {
    VerbsDouble::set(devices);
    std::vector<rdma::Rejected> rejected;
    auto ports = rdma::find_ports(all_ports(), &rejected);
    EXPECT_TRUE(ports.ok()) << ports.status().to_string();
    const rdma::Gid local = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
    auto port = rdma::choose_port(*ports, local, nullptr);
    EXPECT_TRUE(port.ok()) << port.status().to_string();
    auto made = rdma::QueuePair::make(*port, rdma::kRingBytes, rdma::Role::kBoth);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    pair = *std::move(made);
    auto opened = any_fabric();
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    fabric = *std::move(opened);
    auto end = fabric->make_end(local, lends ? nullptr : &pair->offer());
    EXPECT_TRUE(end.ok()) << end.status().to_string();
    rdma::Offer theirs = (*end)->offer();
    if (sends) theirs.writes = 0;
    EXPECT_TRUE(pair->connect(theirs).ok());
    auto connected = (*end)->connect(pair->offer());
    EXPECT_TRUE(connected.ok()) << connected.status().to_string();
    carrier = *std::move(connected);
  }

  void post(std::uint32_t value, std::uint32_t bytes = 0, std::size_t offset = 0) {
    EXPECT_TRUE(pair->bring(pair->memory().out(), bytes, offset, value, 0));
  }
  // What becomes of the carrier. kWorks: it took `bytes`.
  Found outcome(std::size_t bytes = 1) {
    const Deadline deadline = soon();
    std::array<std::byte, 64> into;
    std::size_t got = 0;
    while (!deadline.passed()) {
      const carrier::Moved taken = carrier->take(into);
      got += taken.bytes;
      if (taken.found != Found::kWorks || got >= bytes) return taken.found;
      if (taken.bytes == 0) std::this_thread::yield();
    }
    ADD_FAILURE() << "nothing becomes of the carrier";
    return Found::kBroken;
  }

  std::unique_ptr<rdma::QueuePair> pair;
  std::unique_ptr<rdma::Fabric> fabric;
  std::unique_ptr<carrier::Carrier> carrier;
};

TEST(RdmaLiar, TruthIsTaken) {
  Liar writes;
  writes.post(immediate(kBytesUpTo, 8), 8);
  EXPECT_EQ(writes.outcome(8), Found::kWorks);
  Liar sends("rdma0 profile=send_only");
  sends.post(immediate(kBytesUpTo, 8), 8);
  EXPECT_EQ(sends.outcome(8), Found::kWorks);
}

// The peer knows the key with which it writes a ring. It may not read there, although it may read
// memory that is lent.
TEST(RdmaLiar, RingIsNotReadable) {
  Liar liar("rdma0", false, true);
  const rdma::Offer& theirs = liar.pair->theirs();
  std::byte* const into = liar.pair->memory().in();
  ASSERT_TRUE(
      liar.pair->read(into, liar.pair->memory().in_lkey(), theirs.ring, theirs.rkey, 64, 1));
  ibv_wc done = {};
  const Deadline deadline = soon();
  while (liar.pair->poll_requests(&done, 1) == 0) {
    ASSERT_FALSE(deadline.passed());
    std::this_thread::yield();
  }
  EXPECT_EQ(done.status, IBV_WC_REM_ACCESS_ERR);
}

TEST(RdmaLiar, MoreBytesThanTheRingHoldsFailTheCarrier) {
  Liar liar;
  liar.post(immediate(kBytesUpTo, rdma::kRingBytes + 1));
  EXPECT_EQ(liar.outcome(), Found::kFailed);
}

TEST(RdmaLiar, MoreBytesThanTheRingHoldsInPartsFailTheCarrier) {
  Liar liar;
  liar.post(immediate(kBytesUpTo, rdma::kRingBytes));
  EXPECT_EQ(liar.outcome(1), Found::kWorks);
  liar.post(immediate(kBytesUpTo, 2 * rdma::kRingBytes + 1));
  EXPECT_EQ(liar.outcome(2 * rdma::kRingBytes), Found::kFailed);
}

TEST(RdmaLiar, MoreBytesTakenThanWerePutFailTheCarrier) {
  Liar liar;
  liar.post(immediate(kTakenUpTo, 1));
  EXPECT_EQ(liar.outcome(), Found::kFailed);
}

TEST(RdmaLiar, MoreReceivesThanMessagesFailTheCarrier) {
  Liar liar;
  liar.post(immediate(kReceivesUpTo, liar.pair->receives() + 1));
  EXPECT_EQ(liar.outcome(), Found::kFailed);
}

TEST(RdmaLiar, MessageThatIsNoWriteFailsTheCarrier) {
  Liar liar("rdma0", true);
  liar.post(immediate(kBytesUpTo, 8), 8);
  EXPECT_EQ(liar.outcome(), Found::kFailed);
}

TEST(RdmaLiar, SlotOfAnotherSizeThanTheCountFailsTheCarrier) {
  for (const std::uint64_t count : {7, 9}) {
    Liar liar("rdma0 profile=send_only");
    liar.post(immediate(kBytesUpTo, count), 8);
    EXPECT_EQ(liar.outcome(), Found::kFailed) << count;
  }
}

// The device refuses it, at both ends.
TEST(RdmaLiar, WriteBehindTheRingFailsTheCarrier) {
  Liar liar;
  liar.post(immediate(kBytesUpTo, 8), 8, std::size_t{2} * rdma::kRingBytes);
  EXPECT_EQ(liar.outcome(), Found::kFailed);
}

// Credits without end change nothing, and keep no thread of this end.
TEST(RdmaLiar, FloodOfTrueCreditsIsHarmless) {
  Liar liar;
  for (int i = 0; i < 200; ++i) liar.post(immediate(kTakenUpTo, 0));
  liar.post(immediate(kBytesUpTo, 8), 8);
  EXPECT_EQ(liar.outcome(8), Found::kWorks);
}

}  // namespace
}  // namespace gpurun::transport::test
