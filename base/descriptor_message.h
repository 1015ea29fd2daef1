// One message of a SOCK_SEQPACKET socket with descriptors attached (unix(7), SCM_RIGHTS).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun {

inline constexpr std::size_t kAttachedMax = 64;  // Descriptors; the kernel takes 253.

// kYes: as long as the socket does (SO_RCVTIMEO, SO_SNDTIMEO).
enum class Wait : std::uint8_t { kNever, kYes };

// The descriptors stay the caller's. kInternal: more than kAttachedMax. kDeadline: no room, or not
// in time. kPeerGone: the other end has closed.
Status send_message(int socket, ByteView bytes, std::span<const int> attached, Wait wait);

struct DescriptorMessage {
  Bytes bytes;
  std::vector<UniqueFd> attached;
};

// kDeadline: nothing is there, or not in time. kPeerGone: the other end has closed. kProtocol: it
// has more than `bytes_max`, or more descriptors than kAttachedMax. What came along then, or
// with no byte, does not linger.
Result<DescriptorMessage> receive_message(int socket, std::size_t bytes_max, Wait wait);

// A stranger's socket that lingers holds up whoever closes it last. Of what is no socket, nothing.
void let_not_linger(const UniqueFd& file) noexcept;

}  // namespace gpurun
