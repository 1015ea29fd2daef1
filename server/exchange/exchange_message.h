// ExchangeMessage: the messages between a worker and the daemon on the worker's exchange. There is
// one message each way, with descriptors.
//
// A worker gives the daemon descriptors of memory or of an event, and some bytes about them. It
// gets 64 random bytes, with which any worker of the same lease gets them in turn (docs/adr/0018).
// The socket is SOCK_SEQPACKET. The worker requests and the daemon answers, one at a time. A
// report about the session's transport (transport_report.h) gets no answer.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/descriptor_message.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/calls/interprocess.h"

namespace gpurun::server {

enum class ExchangeStep : std::uint32_t { kPut = 1, kGet = 2, kDrop = 3, kTransport = 4 };
enum class ExchangeResult : std::uint32_t { kDone = 0, kUnknown = 1, kFull = 2 };

// Bytes about the shared object, which the daemon does not read.
inline constexpr std::size_t kExchangeContentBytes = 512;
// Pieces of memory in one message.
inline constexpr std::size_t kExchangeDescriptorsMax = kAttachedMax;

struct ExchangeMessage {
  ExchangeStep step = ExchangeStep::kPut;
  ExchangeResult result = ExchangeResult::kDone;
  protocol::SharingHandle handle{};
  std::uint32_t content_bytes = 0;
  std::uint32_t descriptors = 0;  // The number of descriptors in the message.
  std::array<std::uint8_t, kExchangeContentBytes> content{};
};

// Errors as of send_message() and receive_message(). Also kProtocol for a malformed message.
Status send_words(int socket, const ExchangeMessage& words, const std::vector<int>& descriptors,
                  Wait wait);
Status receive_words(int socket, ExchangeMessage* words, std::vector<UniqueFd>* descriptors,
                     Wait wait);

}  // namespace gpurun::server
