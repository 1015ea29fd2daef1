// Transitions: the attributes with which a queue pair (RC) becomes ready.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "base/result.h"
#include "transport/rdma/offer.h"
#include "transport/rdma/port.h"

namespace gpurun::transport::rdma {

// A request fails when the other end's device has been silent for (kRetries + 1) x 4.096 us x
// 2^kAckTimeout, 0.47 s. A device may take four times that, 1.9 s (InfiniBand specification,
// 9.7.6.1.3). So a lost fabric shows within 2 s. The session then goes on over its socket, so a
// fabric that is congested for longer costs the carrier only. Not 7 retries: rxe then never gives
// up.
inline constexpr std::uint8_t kAckTimeout = 14;
inline constexpr std::uint8_t kRetries = 6;
// A receiver that is late never fails a request: 7 means without end (ibv_modify_qp(3)).
inline constexpr std::uint8_t kReceiverRetries = 7;
inline constexpr std::uint8_t kReceiverTimer = 12;  // 0.64 ms between these attempts.

// Each sets `*attributes`, and returns the mask for ibv_modify_qp(). `lends`: the other end may
// read memory of this one. `reads`: how many reads are under way at most, in each direction.
int to_init(const Port& port, bool lends, ibv_qp_attr* attributes) noexcept;
int to_receive(const Port& port, const Offer& theirs, std::uint8_t reads,
               ibv_qp_attr* attributes) noexcept;
int to_send(const Offer& ours, std::uint8_t reads, ibv_qp_attr* attributes) noexcept;
// The requests that it has end soon, and it takes no others.
int to_error(ibv_qp_attr* attributes) noexcept;

// Different numbers keep the packets of an earlier connection apart. 24 bits.
Result<std::uint32_t> random_packet_number();

}  // namespace gpurun::transport::rdma
