// Transports: the ways that a session's connections may take, best first.
// GPURUN_TRANSPORTS=shm,rdma,tcp restricts and orders them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "transport/rdma/allowed_ports.h"

namespace gpurun::client {

enum class TransportKind : std::uint8_t {
  kSharedMemory,  // "shm": with a server on this machine. Nothing is encrypted.
  kRdma,  // "rdma": where both sides trust the fabric. It begins as TCP, with TLS or without.
  kTcp,   // "tcp": with TLS or without, as the control link.
};

inline constexpr const char* kTransportsVariable = "GPURUN_TRANSPORTS";

inline std::vector<TransportKind> all_transports() {
  return {TransportKind::kSharedMemory, TransportKind::kRdma, TransportKind::kTcp};
}

// Parses "shm,rdma,tcp": each at most once, and at least one. Empty text means all of them.
// kInvalidArgument: the message gives the reason. `origin`: the variable or option that has it.
Result<std::vector<TransportKind>> parse_transports(std::string_view text,
                                                    const char* origin = kTransportsVariable);

// The fabrics that the user trusts, "mlx5_0:1,mlx5_1" or "*" for all, because RDMA encrypts
// nothing. gpurun --trust-fabric sets it.
inline constexpr const char* kTrustFabricVariable = "GPURUN_TRUST_FABRIC";
// Why a session of such a user does not use RDMA.
inline constexpr const char* kNoFabricTrusted =
    "the user trusts no fabric (gpurun --trust-fabric, GPURUN_TRUST_FABRIC)";
// The devices and ports that may be used, in the same form, the preferred one first. UCX users know
// it as UCX_NET_DEVICES.
inline constexpr const char* kNetDevicesVariable = "GPURUN_NET_DEVICES";

// Parses the values of both variables. Empty `trusted`: the user trusts no fabric.
// kInvalidArgument: the message names the variable and the wrong name. `trust_origin`: the variable
// or option that has `trusted`.
Result<transport::rdma::AllowedPorts> parse_allowed_ports(
    std::string_view trusted, std::string_view restricted,
    const char* trust_origin = kTrustFabricVariable);

// How switches treat the packets of this end, as UCX_IB_SL and UCX_IB_TRAFFIC_CLASS.
inline constexpr const char* kServiceLevelVariable = "GPURUN_SERVICE_LEVEL";
inline constexpr const char* kTrafficClassVariable = "GPURUN_TRAFFIC_CLASS";

// Parses the values of both variables. Empty text means 0. kInvalidArgument: the message names the
// variable and its range.
Result<transport::rdma::PacketClass> parse_packet_class(std::string_view service_level,
                                                        std::string_view traffic_class);

}  // namespace gpurun::client
