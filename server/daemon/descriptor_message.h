// One message of a SOCK_SEQPACKET socket with descriptors attached (unix(7), SCM_RIGHTS).
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::server {

inline constexpr std::size_t kAttachedMax = 64;  // Descriptors; the kernel takes 253.

// Never waits. The descriptors stay the caller's; kInternal: more than kAttachedMax.
Status send_message(int socket, ByteView bytes, const std::vector<int>& attached);

struct DescriptorMessage {
  Bytes bytes;
  std::vector<UniqueFd> attached;
};

// Waits for it. kPeerGone: the other end has closed. kProtocol: it has more than `bytes_max`.
Result<DescriptorMessage> receive_message(int socket, std::size_t bytes_max);

}  // namespace gpurun::server
