// Survey: the RDMA devices of this machine, their limits, and the reason against each port. For
// people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/rdma/allowed_ports.h"

namespace gpurun::transport::rdma {

// What a device answers, where no other source is named.
struct SurveyedGid {
  unsigned index = 0;
  std::string type;     // "RoCE v2", "RoCE v1", "InfiniBand".
  std::string address;  // "fe80::1", "::ffff:192.0.2.1".
};

struct SurveyedPort {
  unsigned number = 1;        // From 1.
  std::string state;          // "ACTIVE". Empty: the port does not answer.
  std::string link_layer;     // "Ethernet", "InfiniBand", "unknown".
  unsigned packet_bytes = 0;  // The MTU of RDMA: 256 to 4096.
  double gbit = 0;            // Signalling rate, in Gbit/s. 0: unknown.
  unsigned lid = 0;           // Of InfiniBand.
  std::uint32_t message_bytes_max = 0;
  std::vector<SurveyedGid> gids;
  // Why sessions do not use it. Empty: they do, where the server fits.
  std::string why_not;
};

struct SurveyedDevice {
  std::string name;      // "mlx5_0"
  std::string firmware;  // Its version.
  std::string why_not;   // Why nothing else is known. Empty: it is.
  std::uint32_t queue_pairs_max = 0;
  std::uint32_t requests_max = 0;     // Of a queue pair, in each direction.
  std::uint32_t completions_max = 0;  // Of a completion queue.
  std::uint32_t pieces_max = 0;       // Of a request (SGE).
  std::uint64_t region_bytes_max = 0;
  // Of a request, by a queue pair that was made for this question. Nothing: none could be made.
  std::optional<std::uint32_t> inline_bytes_max;
  bool pages_on_demand = false;  // ODP: it registers memory that is not locked.
  bool atomics = false;
  std::vector<SurveyedPort> ports;
};

struct Survey {
  std::string library;   // The file of libibverbs. Empty: none is open.
  std::string why_none;  // Why nothing is known. Empty: `devices` are all of them.
  std::vector<SurveyedDevice> devices;
  PacketClass packets = {};  // Of this end.
};

// Opens all devices and asks them. Allowed ports also bring a message to themselves
// (transport/rdma/probe.h). Nothing leaves the machine. Blocks up to 4 s for each port that is
// silent.
Survey survey(const AllowedPorts& allowed);

}  // namespace gpurun::transport::rdma
