// send_message(), receive_message(): one message of a SOCK_SEQPACKET socket, with descriptors
// attached (unix(7), SCM_RIGHTS).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun {

inline constexpr std::size_t kAttachedMax = 64;  // Descriptors. The kernel allows 253.

// kYes: waits as long as the socket's timeouts allow (SO_RCVTIMEO, SO_SNDTIMEO).
enum class Wait : std::uint8_t { kNever, kYes };

// The descriptors stay the caller's. kInternal: more than kAttachedMax. kDeadline: there was no
// room, at once or in time. kPeerGone: the other end has closed.
Status send_message(int socket, ByteView bytes, std::span<const int> attached, Wait wait);

struct DescriptorMessage {
  Bytes bytes;
  std::vector<UniqueFd> attached;
};

// kDeadline: no message was there, at once or in time. kPeerGone: the other end has closed.
// kProtocol: the message has more than `bytes_max`, or more descriptors than kAttachedMax.
// Descriptors that came with such a message, or with an empty one, are closed without lingering.
Result<DescriptorMessage> receive_message(int socket, std::size_t bytes_max, Wait wait);

// Turns SO_LINGER off on a peer's socket, because its last close would block. Files that are not
// sockets are left alone.
void let_not_linger(const UniqueFd& file) noexcept;

}  // namespace gpurun
