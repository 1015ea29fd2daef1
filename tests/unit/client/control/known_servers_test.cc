// Known servers: on a full disk the file of server keys never holds half a line, which could name
// another server's key. Every pinned key is found, and a first connection pins none.
#include "client/control/known_servers.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace gpurun::client {
namespace {

TEST(KnownServers, FailedWriteLeavesNoPartialLine) {
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

class PinnedServers : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/gpurun-known-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/known_servers";
    key_.fill(1);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string content() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  // The place of the pin. "": not pinned.
  std::string place(const std::string& server) const {
    const auto pinned = pinned_key(path_, server);
    if (!pinned.ok()) return pinned.status().message();
    return pinned->has_value() ? (*pinned)->place : "";
  }

  std::string folder_, path_;
  transport::tls::Fingerprint key_{};
};

TEST_F(PinnedServers, LookupCreatesNoFile) {
  EXPECT_EQ(place("one:1"), "");
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(PinnedServers, KeyIsPinnedOnlyAfterConfirmation) {
  ASSERT_EQ(*meet_server(path_, "zero:1", key_), Acquaintance::kNew);
  ASSERT_EQ(*meet_server(path_, "one:1", key_), Acquaintance::kNew);
  EXPECT_EQ(place("one:1"), "");
  const std::string before = content();
  ASSERT_EQ(*pin_server(path_, "one:1", key_), Acquaintance::kKnown);
  EXPECT_EQ(content(), before.substr(0, before.size() - 1) + " pinned\n");
  EXPECT_EQ(place("one:1"), path_ + ":2");
  EXPECT_EQ(place("ONE:1"), path_ + ":2");
  EXPECT_EQ(place("zero:1"), "");
  EXPECT_EQ((*pinned_key(path_, "one:1"))->key, key_);
  // Connecting again changes nothing.
  ASSERT_EQ(*meet_server(path_, "one:1", key_), Acquaintance::kKnown);
  EXPECT_EQ(place("one:1"), path_ + ":2");
  ASSERT_EQ(*pin_server(path_, "two:2", key_), Acquaintance::kNew);
  EXPECT_EQ(place("two:2"), path_ + ":3");
  transport::tls::Fingerprint other{};
  EXPECT_EQ(pin_server(path_, "two:2", other).status().code(), Code::kRefused);
}

TEST_F(PinnedServers, LookupFailsOnUntrustedFile) {
  ASSERT_TRUE(pin_server(path_, "one:1", key_).ok());
  std::filesystem::permissions(path_, std::filesystem::perms(0666));
  EXPECT_NE(place("one:1").find("cannot be believed"), std::string::npos);
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);  // A FIFO must not block the reader either.
  EXPECT_NE(place("one:1").find("cannot be believed"), std::string::npos);
  std::filesystem::remove(path_);
  std::ofstream(path_) << "one:1 sha256:12 pinned\n";
  std::filesystem::permissions(path_, std::filesystem::perms(0600));
  EXPECT_EQ(place("one:1").find(path_ + ":1: "), 0u);
}

}  // namespace
}  // namespace gpurun::client
