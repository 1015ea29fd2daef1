// RDMA offers: what a peer may send, and which ends do not fit each other.
#include "transport/rdma/offer.h"

#include <gtest/gtest.h>

#include <functional>

namespace gpurun::transport::rdma {
namespace {

Offer valid() {
  Offer offer;
  offer.queue_pair = 7;
  offer.ring = 0x7f0000000000;
  offer.ring_bytes = kRingBytes;
  offer.receives = kReceivesMin;
  offer.mtu = 3;
  offer.partition = 0xffff;
  offer.link = static_cast<std::uint8_t>(Link::kRoceV2);
  offer.writes = 1;
  return offer;
}

TEST(RdmaOffer, ImpossibleFieldsAreRefused) {
  ASSERT_TRUE(check_offer(valid()).ok());
  const std::function<void(Offer&)> changes[] = {
      [](Offer& offer) { offer.magic[0] = 'x'; },
      [](Offer& offer) { offer.version = 2; },
      [](Offer& offer) { offer.queue_pair = 1U << 24; },
      [](Offer& offer) { offer.packet_number = 1U << 24; },
      [](Offer& offer) { offer.ring_bytes = 0; },
      [](Offer& offer) { offer.ring_bytes = kRingBytes + 1; },
      [](Offer& offer) { offer.ring_bytes = kRingBytesMax * 2; },
      [](Offer& offer) { offer.ring_bytes = kRingBytesMin / 2; },
      [](Offer& offer) { offer.ring = ~std::uint64_t{0} - kRingBytes; },
      [](Offer& offer) { offer.receives = kReceivesMin - 1; },
      [](Offer& offer) { offer.receives = kReceivesMax + 1; },
      [](Offer& offer) { offer.mtu = 0; },
      [](Offer& offer) { offer.mtu = 6; },
      [](Offer& offer) { offer.link = 3; },
      [](Offer& offer) { offer.unused = 1; }};
  for (const auto& change : changes) {
    Offer offer = valid();
    change(offer);
    EXPECT_EQ(check_offer(offer).code(), Code::kProtocol) << &change - changes;
  }
}

TEST(RdmaOffer, EndsThatDoNotFitAreRefusedWithTheReason) {
  const Offer ours = valid();
  EXPECT_TRUE(check_match(ours, valid()).ok());
  Offer theirs = valid();
  theirs.link = static_cast<std::uint8_t>(Link::kRoceV1);
  EXPECT_EQ(check_match(ours, theirs).message(),
            "this end has RoCE v2, and the other end has RoCE v1");
  theirs = valid();
  theirs.partition = 0x1234;
  EXPECT_NE(check_match(ours, theirs).message().find("P_Key"), std::string::npos);
  theirs.partition = 0x7fff;  // Full and limited members of one partition.
  EXPECT_TRUE(check_match(ours, theirs).ok());
  EXPECT_EQ(check_match(theirs, theirs).message(),
            "both ends are limited members of their partition (P_Key)");
  theirs.ring_bytes = kRingBytesMin;
  EXPECT_TRUE(check_match(ours, theirs).ok());  // Each end has the memory that its limit allows.
}

// Two ports of one machine may lead to two fabrics.
TEST(RdmaOffer, InfiniBandNeedsOneSubnet) {
  Offer ours = valid();
  ours.link = static_cast<std::uint8_t>(Link::kInfiniBand);
  ours.gid = {0xfe, 0x80, 0, 0, 0, 0, 0, 1, 7};
  Offer theirs = ours;
  theirs.gid[8] = 8;  // Another port.
  EXPECT_TRUE(check_match(ours, theirs).ok());
  theirs.gid[7] = 2;
  EXPECT_EQ(check_match(ours, theirs).message(), "the ends are in different InfiniBand subnets");
}

}  // namespace
}  // namespace gpurun::transport::rdma
