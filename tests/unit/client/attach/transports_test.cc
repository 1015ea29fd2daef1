// Transports: the values that GPURUN_TRANSPORTS accepts.
#include "client/attach/transports.h"

#include <gtest/gtest.h>

namespace gpurun::client {
namespace {

using Kinds = std::vector<TransportKind>;

TEST(Transports, ParsesKindsInUsersOrder) {
  EXPECT_EQ(*parse_transports(""), all_transports());
  EXPECT_EQ(*parse_transports("shm,tcp"), all_transports());
  EXPECT_EQ(*parse_transports("tcp"), Kinds{TransportKind::kTcp});
  EXPECT_EQ(*parse_transports("shm"), Kinds{TransportKind::kSharedMemory});
  EXPECT_EQ(*parse_transports("tcp,shm"),
            (Kinds{TransportKind::kTcp, TransportKind::kSharedMemory}));
}

TEST(Transports, RejectsInvalidListAndQuotesIt) {
  for (const char* text : {"rdma", "TCP", "tcp,", ",", " tcp", "shm;tcp", "tcp,shm,tcp"}) {
    const auto parsed = parse_transports(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument);
    EXPECT_NE(parsed.status().message().find("GPURUN_TRANSPORTS is '" + std::string(text) + "'"),
              std::string::npos)
        << parsed.status().message();
  }
  EXPECT_LT(parse_transports(std::string(100'000, 'x')).status().message().size(), 300U);
}

}  // namespace
}  // namespace gpurun::client
