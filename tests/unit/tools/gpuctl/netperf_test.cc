// gpuctl netperf: percentiles, the lines of the measuring program, verdicts, and which transports a
// session may use. They protect that a figure without a measurement is never shown.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/unit/tools/gpuctl/invented_machine.h"
#include "tools/gpuctl/machine/known_transports.h"
#include "tools/gpuctl/machine/verbs.h"
#include "tools/gpuctl/netperf/measure.h"
#include "tools/gpuctl/netperf/report.h"

namespace gpurun::tools {
namespace {

TransportReport report_of(double p50, double gb_per_second) {
  TransportReport one;
  one.name = "tcp";
  one.what = "TCP";
  one.over_link = true;
  one.figures.round_trip = Percentiles{p50, p50, p50, p50, 1};
  one.figures.to_device_pinned = gb_per_second;
  return one;
}

TEST(Percentiles, AreSamplesByNearestRank) {
  std::vector<double> samples;
  for (int i = 200; i > 0; --i) samples.push_back(i);
  const Percentiles found = percentiles(samples);
  EXPECT_EQ(found.p50, 100);
  EXPECT_EQ(found.p90, 180);
  EXPECT_EQ(found.p99, 198);
  EXPECT_EQ(found.max, 200);
  EXPECT_EQ(found.count, 200U);
  const Percentiles one = percentiles({7});
  EXPECT_EQ(one.p50, 7);
  EXPECT_EQ(one.p99, 7);
  EXPECT_EQ(percentiles({}).count, 0U);
}

TEST(NetperfLines, FillTheFiguresThatTheyName) {
  Figures figures;
  EXPECT_TRUE(
      take_line(R"({"what":"round_trip","p50":1.5,"p90":2,"p99":3,"max":4,"count":9})", &figures));
  EXPECT_TRUE(take_line(R"({"what":"calls","per_second":1000})", &figures));
  EXPECT_TRUE(take_line(R"({"what":"from_device_pageable","gb_per_second":2.5})", &figures));
  EXPECT_EQ(figures.round_trip->p50, 1.5);
  EXPECT_EQ(figures.round_trip->count, 9U);
  EXPECT_EQ(figures.calls_per_second, 1000);
  EXPECT_EQ(figures.from_device_pageable, 2.5);
  EXPECT_FALSE(figures.result.has_value());
  EXPECT_FALSE(figures.to_device_pinned.has_value());
}

TEST(NetperfLines, OtherTextIsNoFigure) {
  Figures figures;
  for (const char* line : {"", "hello", "[]", "{}", R"({"what":1})", R"({"what":"other"})",
                           R"({"what":"calls","per_second":"fast"})",
                           R"({"what":"round_trip","p50":1})", R"({"what":"calls")"}) {
    EXPECT_FALSE(take_line(line, &figures)) << line;
  }
  EXPECT_FALSE(figures.calls_per_second.has_value());
  EXPECT_FALSE(figures.round_trip.has_value());
}

TEST(NetperfVerdict, ComparesTheMedianWithTheGoal) {
  EXPECT_EQ(round_trip_verdict(report_of(kRoundTripGoalUs, 1).figures), "ok");
  EXPECT_EQ(round_trip_verdict(report_of(kRoundTripGoalUs + 0.1, 1).figures), "slow");
  EXPECT_EQ(round_trip_verdict(Figures()), "");
}

TEST(NetperfVerdict, ComparesCopiesWithTheLink) {
  const Route gigabit = {"eth0", 1000};  // 0.125 GB/s.
  EXPECT_EQ(link_verdict(report_of(1, 0.101), gigabit), "ok");
  EXPECT_EQ(link_verdict(report_of(1, 0.099), gigabit), "below");
  EXPECT_EQ(link_verdict(report_of(1, 0.1), Route{"lo", 0}), "unknown");
  // Each direction counts.
  TransportReport both = report_of(1, 0.12);
  both.figures.from_device_pinned = 0.05;
  EXPECT_EQ(link_verdict(both, gigabit), "below");
  both.figures.from_device_pageable = 0.11;
  EXPECT_EQ(link_verdict(both, gigabit), "ok");
  TransportReport memory = report_of(1, 9);
  memory.over_link = false;
  EXPECT_EQ(link_verdict(memory, gigabit), "");
}

TEST(NetperfReport, HasTheSameFiguresInBothForms) {
  NetperfReport report;
  report.server = "host:1";
  report.release = "9.9.9";
  report.route = {"eth0", 1000};
  report.transports = {report_of(12.25, 0.11), {}};
  report.transports[0].figures.from_device_pinned = 0.05;
  report.transports[0].gpudirect = true;
  report.transports[1].name = "shm";
  report.transports[1].what = "shared memory";
  report.transports[1].unavailable = "the server is not on this machine\x1b[2J";
  const std::string table = netperf_table(report);
  EXPECT_NE(table.find("TCP                  12.2"), std::string::npos) << table;
  EXPECT_NE(
      table.find(
          "TCP: below: copies to the GPU reach 88 %, and those from it 40 %, of eth0, 1000 Mbit/s"),
      std::string::npos)
      << table;
  EXPECT_NE(table.find("shared memory: not measured: the server is not on"), std::string::npos);
  EXPECT_EQ(table.find('\x1b'), std::string::npos);
  const auto parsed = nlohmann::json::parse(netperf_json(report));
  EXPECT_EQ(parsed["network_device_mbit"], 1000);
  EXPECT_EQ(parsed["transports"][0]["round_trip_us"]["p50"], 12.25);
  EXPECT_EQ(parsed["transports"][0]["verdict"]["link"], "below");
  EXPECT_TRUE(parsed["transports"][0]["result_us"].is_null());
  EXPECT_FALSE(parsed["transports"][1]["available"]);
  EXPECT_TRUE(parsed["transports"][0]["gpudirect"]);
  EXPECT_FALSE(parsed["transports"][1]["gpudirect"]);
  EXPECT_TRUE(parsed["transports"][1]["verdict"]["round_trip"].is_null());
}

TEST(NetperfRoute, TrustsSpeedOfHardwareOnly) {
  InventedMachine machine;
  const auto add = [&](const std::string& name, const std::string& pci) {
    machine.write("/sys/class/net/" + name + "/speed", "10000\n");
    if (!pci.empty()) machine.link("/sys/class/net/" + name + "/device", pci);
  };
  add("veth0", "");
  add("card", machine.pci("pci0000:00/0000:00:05.0", "0x15b3", "0x1017", "0x020000"));
  add("card1", machine.pci("pci0000:00/0000:00:06.0", "0x15b3", "0x1017", "0x020000"));
  add("vmxnet", machine.pci("pci0000:00/0000:00:07.0", "0x15ad", "0x07b0", "0x020000"));
  EXPECT_EQ(device_mbit(machine.files(), "card"), 10000);
  for (const char* name : {"veth0", "vmxnet", "lo"}) {
    EXPECT_EQ(device_mbit(machine.files(), name), 0) << name;
  }
  // A bridge with a card and a virtual device, a VLAN of it, and a device that is its own lower
  // one.
  for (const char* lower : {"br0/lower_card", "br0/lower_veth0", "vlan/lower_br0",
                            "bond/lower_card", "bond/lower_card1", "loop/lower_loop"}) {
    machine.write(std::string("/sys/class/net/") + lower + "/mtu", "1500\n");
  }
  EXPECT_EQ(device_mbit(machine.files(), "vlan"), 10000);
  EXPECT_EQ(device_mbit(machine.files(), "bond"), 0);
  EXPECT_EQ(device_mbit(machine.files(), "loop"), 0);
}

const KnownTransport& transport(const std::string& name) {
  for (const KnownTransport& each : known_transports()) {
    if (each.name == name) return each;
  }
  throw std::runtime_error("no transport " + name);
}

SessionFacts facts_of(bool same_host) {
  SessionFacts facts;
  facts.server = "host:1";
  facts.same_host = same_host;
  facts.security.known_servers = "/nonexistent/known_servers";
  facts.allowed = client::all_transports();
  return facts;
}

TEST(KnownTransports, DependOnTheServersPlace) {
  const SessionFacts local = facts_of(true);
  EXPECT_EQ(why_not(transport("shm"), local, false), "");
  EXPECT_EQ(why_not(transport("tcp"), local, false), "");
  EXPECT_NE(why_not(transport("tls"), local, false), "");
  EXPECT_EQ(why_not(transport("tls"), local, true), "");
  const SessionFacts elsewhere = facts_of(false);
  EXPECT_NE(why_not(transport("shm"), elsewhere, true), "");
  EXPECT_NE(why_not(transport("tcp"), elsewhere, true).find("--insecure-plaintext"),
            std::string::npos);
  EXPECT_EQ(why_not(transport("tls"), elsewhere, false), "");
}

TEST(KnownTransports, FollowTheLinksSecurity) {
  SessionFacts facts = facts_of(true);
  facts.security.always_tls = true;
  EXPECT_NE(why_not(transport("shm"), facts, false).find("--tls"), std::string::npos);
  EXPECT_EQ(why_not(transport("tls"), facts, false), "");
  facts = facts_of(false);
  facts.security.insecure_plaintext = true;
  EXPECT_EQ(why_not(transport("tcp"), facts, false), "");
  EXPECT_NE(why_not(transport("tls"), facts, false), "");
}

TEST(KnownTransports, FollowTheVariable) {
  SessionFacts facts = facts_of(true);
  facts.allowed = {client::TransportKind::kTcp};
  EXPECT_NE(why_not(transport("shm"), facts, true).find("GPURUN_TRANSPORTS"), std::string::npos);
  EXPECT_EQ(why_not(transport("tcp"), facts, true), "");
}

TEST(KnownTransports, RdmaNeedsTrustAndAPort) {
  if (*transport("rdma").missing != '\0') {
    EXPECT_EQ(why_not(transport("rdma"), facts_of(true), true), transport("rdma").missing);
    return;
  }
  SessionFacts facts = facts_of(true);
  EXPECT_EQ(why_not(transport("rdma"), facts, true), client::kNoFabricTrusted);
  facts.fabrics.trusted = {"mlx5_0"};
  facts.ports.why_none = "mlx5_0:1: it is not active";
  EXPECT_EQ(why_not(transport("rdma"), facts, true), facts.ports.why_none);
  facts.ports = {{"mlx5_0:1"}, ""};
  EXPECT_EQ(why_not(transport("rdma"), facts, true), "");
  // It begins over TLS as well.
  facts.security.always_tls = true;
  EXPECT_EQ(why_not(transport("rdma"), facts, false), "");
  // RDMA takes the place of a connection, so nothing may come before it that always works.
  facts.allowed = {client::TransportKind::kTcp, client::TransportKind::kRdma};
  EXPECT_NE(why_not(transport("rdma"), facts, true).find("names tcp before it"), std::string::npos);
  facts.allowed = {client::TransportKind::kTcp};
  EXPECT_NE(why_not(transport("rdma"), facts, true).find("leaves it out"), std::string::npos);
}

// The figures of a port are compared with its own speed, and not with that of the route.
TEST(NetperfReport, PortsOfRdmaHaveTheirOwnLinks) {
  NetperfReport report;
  report.server = "gpu1:4790";
  report.route = {"eth0", 1000};
  TransportReport port = report_of(5, 10);
  port.name = "rdma";
  port.what = "RDMA mlx5_0:1";
  port.port = "mlx5_0:1";
  port.session = "RDMA by mlx5_0:1 to mlx5_1:1, payload not encrypted";
  port.port_link = {"mlx5_0:1", 100'000};
  TransportReport unknown = port;
  unknown.port_link = {"mlx5_0:2", 0};
  report.transports = {port, unknown};
  EXPECT_EQ(link_verdict(port, report.route), "ok");
  EXPECT_EQ(link_verdict(unknown, report.route), "unknown");
  const std::string table = netperf_table(report);
  EXPECT_NE(table.find("RDMA mlx5_0:1: RDMA by mlx5_0:1 to mlx5_1:1, payload not encrypted\n"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("reach 80 %, and those from it an unknown part, of mlx5_0:1, 100000 Mbit/s"),
            std::string::npos)
      << table;
  const auto parsed = nlohmann::json::parse(netperf_json(report));
  EXPECT_EQ(parsed["transports"][0]["port"], "mlx5_0:1");
}

TEST(NetperfRoute, RatesOfRdmaPortsAreThoseOfHardware) {
  InventedMachine machine;
  machine.verbs("mlx5_0", machine.pci("pci0000:00/0000:00:05.0", "0x15b3", "0x1017", "0x020000"),
                "4: ACTIVE");
  machine.verbs("vmw0", machine.pci("pci0000:00/0000:00:06.0", "0x15ad", "0x0820", "0x020000"),
                "4: ACTIVE");
  machine.verbs("rxe0", "", "4: ACTIVE");
  EXPECT_EQ(port_mbit(machine.files(), "mlx5_0:1"), 100'000);
  for (const char* name : {"mlx5_0:2", "vmw0:1", "rxe0:1", ""}) {
    EXPECT_EQ(port_mbit(machine.files(), name), 0) << name;
  }
}

}  // namespace
}  // namespace gpurun::tools
