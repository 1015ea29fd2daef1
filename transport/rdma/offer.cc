// Offer: its bounds, and what both ends must have in common.
#include "transport/rdma/offer.h"

#include <algorithm>
#include <cstddef>
#include <string>

namespace gpurun::transport::rdma {
namespace {

constexpr std::uint32_t k24Bits = 0xffffff;
constexpr std::uint8_t kMtuMin = 1;  // enum ibv_mtu: 256 bytes.
constexpr std::uint8_t kMtuMax = 5;  // 4096 bytes.
constexpr std::uint16_t kPartitionMask = 0x7fff;
constexpr std::uint16_t kFullMember = 0x8000;
constexpr std::size_t kPrefixBytes = 8;  // Of a GID: the subnet.

const char* name_of(std::uint8_t link) {
  switch (static_cast<Link>(link)) {
    case Link::kInfiniBand:
      return "InfiniBand";
    case Link::kRoceV1:
      return "RoCE v1";
    case Link::kRoceV2:
      return "RoCE v2";
  }
  return "an unknown link";
}

}  // namespace

Status check_offer(const Offer& theirs) {
  const Offer known;
  const bool right = theirs.magic == known.magic && theirs.version == known.version &&
                     theirs.queue_pair <= k24Bits && theirs.packet_number <= k24Bits &&
                     std::has_single_bit(theirs.ring_bytes) && theirs.ring_bytes >= kRingBytesMin &&
                     theirs.ring_bytes <= kRingBytesMax &&
                     theirs.ring + 2 * theirs.ring_bytes > theirs.ring &&
                     theirs.receives >= kReceivesMin && theirs.receives <= kReceivesMax &&
                     theirs.mtu >= kMtuMin && theirs.mtu <= kMtuMax &&
                     theirs.link <= static_cast<std::uint8_t>(Link::kRoceV2) && theirs.unused == 0;
  return right ? Status() : Status(Code::kProtocol, "the other end's RDMA offer is not valid");
}

Status check_match(const Offer& ours, const Offer& theirs) {
  std::string why;
  if (ours.link != theirs.link) {
    why = std::string("this end has ") + name_of(ours.link) + ", and the other end has " +
          name_of(theirs.link);
  } else if (((ours.partition ^ theirs.partition) & kPartitionMask) != 0) {
    why = "the ends are in different partitions (P_Key)";
  } else if (((ours.partition | theirs.partition) & kFullMember) == 0) {
    why = "both ends are limited members of their partition (P_Key)";
  } else if (ours.link == static_cast<std::uint8_t>(Link::kInfiniBand) &&
             !std::equal(ours.gid.begin(), ours.gid.begin() + kPrefixBytes, theirs.gid.begin())) {
    why = "the ends are in different InfiniBand subnets";
  }
  return why.empty() ? Status() : Status(Code::kUnavailable, why);
}

}  // namespace gpurun::transport::rdma
