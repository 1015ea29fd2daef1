// Transports: the values that GPURUN_TRANSPORTS accepts.
#include "client/attach/transports.h"

#include <gtest/gtest.h>

namespace gpurun::client {
namespace {

using Kinds = std::vector<TransportKind>;

TEST(Transports, ParsesKindsInUsersOrder) {
  EXPECT_EQ(*parse_transports(""), all_transports());
  EXPECT_EQ(*parse_transports("shm,rdma,tcp"), all_transports());
  EXPECT_EQ(*parse_transports("rdma"), Kinds{TransportKind::kRdma});
  EXPECT_EQ(*parse_transports("tcp"), Kinds{TransportKind::kTcp});
  EXPECT_EQ(*parse_transports("shm"), Kinds{TransportKind::kSharedMemory});
  EXPECT_EQ(*parse_transports("tcp,shm"),
            (Kinds{TransportKind::kTcp, TransportKind::kSharedMemory}));
}

TEST(Transports, RejectsInvalidListAndQuotesIt) {
  for (const char* text : {"ib", "TCP", "tcp,", ",", " tcp", "shm;tcp", "tcp,shm,tcp"}) {
    const auto parsed = parse_transports(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument);
    EXPECT_NE(parsed.status().message().find("GPURUN_TRANSPORTS is '" + std::string(text) + "'"),
              std::string::npos)
        << parsed.status().message();
  }
  EXPECT_EQ(parse_transports("ib", "--transport").status().message().find("--transport is 'ib'"),
            0U);
  EXPECT_EQ(parse_transports("\x1b[2J").status().message().find('\x1b'), std::string::npos);
  EXPECT_LT(parse_transports(std::string(100'000, 'x')).status().message().size(), 300U);
}

TEST(AllowedPorts, NameDevicesAndPorts) {
  const auto ports = parse_allowed_ports("mlx5_0:1,rxe0", "*");
  ASSERT_TRUE(ports.ok());
  EXPECT_EQ(ports->trusted, (std::vector<std::string>{"mlx5_0:1", "rxe0"}));
  EXPECT_EQ(ports->restricted, std::vector<std::string>{"*"});
  EXPECT_TRUE(parse_allowed_ports("", "")->trusted.empty());
  for (const std::string text : {",", "a,,b", "a b", "mlx5_0;x", "\x1b[31m", "**"}) {
    const auto wrong = parse_allowed_ports("*", text);
    EXPECT_EQ(wrong.status().code(), Code::kInvalidArgument) << text;
    EXPECT_NE(wrong.status().message().find("GPURUN_NET_DEVICES: "), std::string::npos);
  }
  std::string many = "p0";
  for (int i = 1; i < 70; ++i) many += ",p" + std::to_string(i);
  EXPECT_FALSE(parse_allowed_ports(many, "").ok());
  EXPECT_FALSE(parse_allowed_ports(std::string(100, 'a'), "").ok());
}

TEST(PacketClass, NumbersHaveTheRangesOfTheStandards) {
  const auto none = parse_packet_class("", "");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->service_level + none->traffic_class, 0);
  const auto most = parse_packet_class("15", "255");
  ASSERT_TRUE(most.ok());
  EXPECT_EQ(most->service_level, 15);
  EXPECT_EQ(most->traffic_class, 255);
  EXPECT_EQ(parse_packet_class("16", "").status().message(),
            "GPURUN_SERVICE_LEVEL is '16'; it may be 0 to 15");
  for (const char* text : {"256", "-1", "1x", " 1", "0x10", "99999999999999999999"}) {
    const auto wrong = parse_packet_class("", text);
    EXPECT_EQ(wrong.status().code(), Code::kInvalidArgument) << text;
    EXPECT_EQ(wrong.status().message().find("GPURUN_TRAFFIC_CLASS is "), 0U) << text;
  }
}

}  // namespace
}  // namespace gpurun::client
