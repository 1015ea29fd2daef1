// Offer: what one end of a connection sends to the other end over their socket, so that their queue
// pairs find each other. perftest without -R exchanges the same numbers.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::transport::rdma {

enum class Link : std::uint8_t { kInfiniBand = 0, kRoceV1 = 1, kRoceV2 = 2 };

// Fixed form, little endian. All fields are the sender's own.
struct Offer {
  std::array<char, 8> magic = {'g', 'p', 'u', 'r', 'u', 'n', 'i', 'b'};
  std::uint32_t version = 1;
  std::uint32_t queue_pair = 0;     // 24 bits.
  std::uint32_t packet_number = 0;  // The first that it sends. 24 bits.
  std::uint32_t rkey = 0;           // Of its ring. The other end writes that.
  std::uint64_t ring = 0;           // The address of its ring, which is mapped twice in a row.
  std::uint32_t ring_bytes = 0;     // A power of two. The ends may differ.
  std::uint32_t receives = 0;       // That it posts at first.
  std::array<std::uint8_t, 16> gid{};
  std::uint16_t lid = 0;
  std::uint16_t partition = 0;  // Its P_Key. The top bit means a full member.
  std::uint8_t mtu = 0;         // As enum ibv_mtu, 1 to 5.
  std::uint8_t link = 0;        // As enum Link.
  // 1: its device writes, and reports writes of the other end.
  std::uint8_t writes : 1 = 0;
  // 1: its InfiniBand port takes only packets with a global header. Older ends refuse such an
  // offer.
  std::uint8_t needs_global : 1 = 0;
  std::uint8_t unused : 6 = 0;
  // Reads of the other end's memory that its device makes, and serves, at once. 0: none. Older ends
  // send that.
  std::uint8_t reads = 0;
};
static_assert(sizeof(Offer) == 64 && std::is_trivially_copyable_v<Offer>);
static_assert(std::endian::native == std::endian::little);

inline constexpr std::uint32_t kRingBytes = std::uint32_t{1} << 20;  // The default.
// The smallest useful one: a message of QueuePair::step_bytes() fits.
inline constexpr std::uint32_t kRingBytesMin = std::uint32_t{64} << 10;
inline constexpr std::uint32_t kRingBytesMax = std::uint32_t{16} << 20;
inline constexpr std::uint32_t kReceivesMin = 64;
inline constexpr std::uint32_t kReceivesMax = 4096;

// Checks `theirs`, which comes from an untrusted peer, as far as that works without a device.
// kProtocol: no offer has such values.
Status check_offer(const Offer& theirs);

// Checks that both ends can reach each other. kUnavailable: they cannot. The message names the
// difference.
Status check_match(const Offer& ours, const Offer& theirs);

}  // namespace gpurun::transport::rdma
