// Protects the memory of servers' keys from a disk that is full: half a line must not become
// another server's key.
#include "client/known_servers.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>

namespace gpurun::client {
namespace {

TEST(KnownServers, ALineThatDoesNotFitLeavesNothing) {
  char name[] = "/tmp/gpurun-known-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string path = std::string(name) + "/known_servers";
  transport::tls::Fingerprint first{}, second{};
  first.fill(1);
  second.fill(2);
  ASSERT_EQ(*meet_server(path, "one:1", first), Acquaintance::kNew);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit narrow = {std::filesystem::file_size(path) + 30, before.rlim_max};
  void (*const handler)(int) = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &narrow);
  const auto full = meet_server(path, "two:2", second);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_NE(full.status().message().find("File too large"), std::string::npos)
      << full.status().message();
  const auto again = meet_server(path, "two:2", second);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, Acquaintance::kNew);
  EXPECT_EQ(*meet_server(path, "one:1", first), Acquaintance::kKnown);
  EXPECT_EQ(*meet_server(path, "two:2", second), Acquaintance::kKnown);
  std::filesystem::remove_all(name);
}

}  // namespace
}  // namespace gpurun::client
