// SessionData: processes read what gpurun wrote about a lease. A file that is readable by others,
// or damaged, is refused.
#include "client/attach/session_data.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace gpurun::client {
namespace {

SessionData sample() {
  SessionData data;
  data.servers = {"[::1]:4790"};
  data.lease.fill(0x1a);
  data.ticket.fill(2);
  data.ticket_key.fill(0xff);
  data.challenge.fill(4);
  data.device_count = 8;
  data.local = "unix:gpurun-0123456789abcdef0123456789abcdef";
  return data;
}

TEST(SessionData, RoundTripsThroughText) {
  const Result<SessionData> read = parse_session_data(serialise_session_data(sample()));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->servers, sample().servers);
  EXPECT_EQ(read->lease, sample().lease);
  EXPECT_EQ(read->ticket, sample().ticket);
  EXPECT_EQ(read->ticket_key, sample().ticket_key);
  EXPECT_EQ(read->challenge, sample().challenge);
  EXPECT_EQ(read->device_count, 8u);
  EXPECT_EQ(read->local, "unix:gpurun-0123456789abcdef0123456789abcdef");
}

TEST(SessionData, SkipsUnknownName) {
  EXPECT_TRUE(parse_session_data(serialise_session_data(sample()) + "later 1\n").ok());
}

TEST(SessionData, RejectsTruncatedOrInvalidSessionData) {
  const std::string whole = serialise_session_data(sample());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(parse_session_data(whole.substr(0, bytes)).ok()) << bytes;
  }
  std::string other = whole;
  other.replace(other.find("1a"), 2, "1g");
  EXPECT_FALSE(parse_session_data(other).ok());
  std::string elsewhere = whole;
  elsewhere.replace(elsewhere.find("unix:gpurun-"), 5, "tcp:");
  EXPECT_FALSE(parse_session_data(elsewhere).ok());
  EXPECT_FALSE(parse_session_data(std::string(kSessionDataBytesMax + 1, '\n')).ok());
}

TEST(SessionData, ReadsMemoryFileNamedByEnvironment) {
  const UniqueFd fd(memfd_create("session", MFD_CLOEXEC));
  ASSERT_TRUE(fd.valid());
  const std::string text = serialise_session_data(sample());
  ASSERT_EQ(write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd.get());
  ASSERT_EQ(setenv(kSessionVariable, path.c_str(), 1), 0);
  for (int time = 0; time < 2; ++time) {
    const Result<SessionData> read = session_data_from_environment();
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    EXPECT_EQ(read->ticket_key, sample().ticket_key);
  }
  ASSERT_EQ(unsetenv(kSessionVariable), 0);
  EXPECT_EQ(session_data_from_environment().status().code(), Code::kUnavailable);
}

// A session folder may be mounted at another place than where gpurun has made it.
TEST(SessionData, FindsNeighboursOfItsFile) {
  const std::string path = testing::TempDir() + "session_data_" + std::to_string(getpid());
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  ASSERT_TRUE(fd.valid());
  SessionData data = sample();
  data.broker = "connect";
  data.deaths = "/proc/1/fd/3";
  const std::string text = serialise_session_data(data);
  ASSERT_EQ(write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  const Result<SessionData> read = read_session_data(path);
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->broker, path.substr(0, path.rfind('/')) + "/connect");
  EXPECT_EQ(read->deaths, "/proc/1/fd/3");
}

TEST(SessionData, RejectsFileReadableByOthers) {
  const std::string path = testing::TempDir() + "session_data_" + std::to_string(getpid());
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  ASSERT_TRUE(fd.valid());
  const std::string text = serialise_session_data(sample());
  ASSERT_EQ(write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  EXPECT_TRUE(read_session_data(path).ok());
  ASSERT_EQ(fchmod(fd.get(), 0640), 0);
  EXPECT_EQ(read_session_data(path).status().code(), Code::kRefused);
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(read_session_data(path).status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace gpurun::client
