// Report of netperf: one table, or one object of JSON, from the same figures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/gpuctl/machine/route.h"
#include "tools/gpuctl/netperf/measure.h"

namespace gpurun::tools {

// A wait for the worker should take no longer, in microseconds. Bitfusion asked this of its
// networks.
inline constexpr double kRoundTripGoalUs = 50;
// Copies should reach this part of the network device's speed.
inline constexpr double kLinkShareGoal = 0.8;

// The figures of one session. Absent: not measured.
struct Figures {
  std::optional<Percentiles> round_trip, result;
  std::optional<double> calls_per_second;
  // 10^9 bytes a second.
  std::optional<double> to_device_pinned, to_device_pageable;
  std::optional<double> from_device_pinned, from_device_pageable;
};

// Adds one line of measure_session() to `figures`. False: it is not such a line.
bool take_line(std::string_view line, Figures* figures);

struct TransportReport {
  std::string name;         // "tls".
  std::string what;         // "TCP with TLS", "RDMA mlx5_0:1".
  std::string port = {};    // Of RDMA: this machine's port. Empty: another transport, or none.
  bool over_link = false;   // The bytes go over the network device of the route, or over `port`.
  Route port_link = {};     // The port and its speed, as the route of other transports.
  std::string session;      // As the session reports it: "TCP, encrypted by TLS". Empty: none ran.
  bool gpudirect = false;   // Some copies went straight into GPU memory, by RDMA.
  std::string unavailable;  // Why there are no figures. Empty: there are.
  Figures figures;
};

struct NetperfReport {
  std::string server, release;
  Route route;
  double seconds = 0;  // For each transport.
  std::vector<TransportReport> transports;
};

// "ok", "slow", or "" without a figure.
std::string round_trip_verdict(const Figures& figures);
// "ok", "below" where a direction misses the goal, "unknown" where the device has no known speed,
// or "" where the transport does not use the link or there is no figure. `route`: of transports
// other than RDMA.
std::string link_verdict(const TransportReport& transport, const Route& route);

std::string netperf_table(const NetperfReport& report);
std::string netperf_json(const NetperfReport& report);

}  // namespace gpurun::tools
