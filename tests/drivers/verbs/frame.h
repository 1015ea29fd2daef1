// Frame: what the NICs of the verbs double send each other. A payload may follow a frame.
//
// The requester's QP connects to the responder's QP. Each direction of a pair of QPs has its own
// connection. Both ends are builds of the same library on the same machine.
#pragma once

#include <cstdint>

namespace gpurun::verbs_double {

enum class FrameType : std::uint8_t {
  kHello,     // Requester: which QPs, GIDs, LIDs and PSN it means.
  kWelcome,   // Responder: they are right. It closes the connection if they are wrong.
  kRequest,   // Requester: a send, write or read. Sends and writes have a payload.
  kAck,       // Responder: the request has been executed.
  kData,      // Responder: the answer to a read, with its payload.
  kNotReady,  // Responder: the request waits for a posted receive.
  kRefusal,   // Responder: the request failed, and its QP goes to ERR.
};

inline constexpr std::uint32_t kFrameMagic = 0x76646231;

struct Frame {
  std::uint32_t magic = kFrameMagic;
  FrameType type{};
  std::uint8_t kind = 0;       // RequestKind of a kRequest.
  std::uint8_t solicited = 0;  // 1: a kRequest raises a solicited event. In kHello: a GID is used.
  std::uint8_t status = 0;     // ibv_wc_status of a kRefusal.
  std::uint64_t sequence = 0;
  std::uint64_t address = 0;  // Remote address of a kRequest. Microseconds of a kNotReady.
  std::uint64_t length = 0;   // Bytes of the request.
  std::uint64_t payload = 0;  // Bytes that follow this frame.
  std::uint32_t key = 0;
  std::uint32_t immediate = 0;  // In network byte order.
  std::uint32_t source_qp = 0;  // kHello, as are the rest.
  std::uint32_t target_qp = 0;
  std::uint32_t psn = 0;
  std::uint16_t source_lid = 0;
  std::uint16_t target_lid = 0;
  std::uint8_t source_gid[16] = {};
  std::uint8_t target_gid[16] = {};
};

}  // namespace gpurun::verbs_double
