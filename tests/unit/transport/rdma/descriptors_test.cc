// Descriptors: those of libibverbs keep clear of a program in the same process, and of its
// children.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "tests/support/rdma_pair.h"

namespace gpurun::transport::rdma {
namespace {

using test::VerbsDouble;

constexpr int kHigh = 400;

// What a client's process would have in client/process/fork_guard.h.
std::set<int> g_watched;
int g_held = 0;
constexpr ForkHooks kHooks = {[]() noexcept { ++g_held; }, []() noexcept { --g_held; },
                              [](int fd) noexcept {
                                EXPECT_EQ(g_held, 1);
                                g_watched.insert(fd);
                              },
                              [](int fd) noexcept {
                                EXPECT_EQ(g_held, 1);
                                g_watched.erase(fd);
                              }};

std::set<int> low_descriptors() {
  std::set<int> low;
  for (int fd = 0; fd < kHigh; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) low.insert(fd);
  }
  return low;
}

// An end that is connected to itself.
struct End {
  End() {
    VerbsDouble::set("rdma0");
    std::vector<Rejected> rejected;
    auto opened = open_fabric(test::all_ports(), &rejected, {}, nullptr, {kHigh, &kHooks});
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    fabric = *std::move(opened);
    const Gid local = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
    const Offer any = (*fabric->make_end(local, nullptr))->offer();
    auto end = fabric->make_end(local, &any);  // As an end that reads, which has two channels.
    EXPECT_TRUE(end.ok()) << end.status().to_string();
    auto connected = (*end)->connect((*end)->offer());
    EXPECT_TRUE(connected.ok()) << connected.status().to_string();
    carrier = *std::move(connected);
  }

  std::unique_ptr<Fabric> fabric;
  std::unique_ptr<carrier::Carrier> carrier;
};

// The double has this in place of the file of a device.
int descriptor_of_device() {
  for (const int fd : g_watched) {
    if (std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)) == "/dev/zero") {
      return fd;
    }
  }
  return -1;
}

// Puts a file of the program in place of the one under `fd`, as daemons do that close all numbers.
void replace(int fd, int by) { ASSERT_EQ(dup2(by, fd), fd); }

TEST(RdmaDescriptors, ProgramsNumbersDoNotChange) {
  const std::set<int> before = low_descriptors();
  {
    const End end;
    EXPECT_EQ(low_descriptors(), before);
    EXPECT_EQ(g_watched.size(), 4U);  // For commands, for events, and of two channels.
    EXPECT_EQ(g_watched.count(end.carrier->fd()), 1U);
    for (const int fd : g_watched) {
      EXPECT_GE(fd, kHigh);
      EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC) << fd;
    }
  }
  EXPECT_EQ(low_descriptors(), before);
  EXPECT_TRUE(g_watched.empty());
  EXPECT_EQ(g_held, 0);
}

// Completion channels and eventfd() have one identity: that of the anonymous inodes.
TEST(RdmaDescriptors, AnotherFileUnderTheNumberOfAChannelEndsTheCarrier) {
  {
    End end;
    EXPECT_FALSE(end.carrier->announce_sleep());
    end.carrier->announce_wake();
    EXPECT_FALSE(end.carrier->has_bytes());
    const int fd = end.carrier->fd();
    const DescriptorIdentity identity = DescriptorIdentity::of(fd);
    // The double's channel is a pipe. Its other descriptor is one of the same file, without a mark.
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    const int again = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(again, 0);
    replace(fd, again);
    close(again);
    EXPECT_TRUE(identity.holds(fd));
    for (int i = 0; i < 3; ++i) end.carrier->announce_sleep();
    std::array<std::byte, 8> into{};
    EXPECT_EQ(end.carrier->take(into).found, carrier::Found::kFailed);
    end.carrier.reset();
    EXPECT_TRUE(identity.holds(fd)) << "the program's file was closed";
    close(fd);
  }
}

TEST(RdmaDescriptors, FileUnderTheNumberOfADeviceStays) {
  auto end = std::make_unique<End>();
  const int fd = descriptor_of_device();
  ASSERT_GE(fd, kHigh);
  const UniqueFd programs(eventfd(0, EFD_CLOEXEC));
  replace(fd, programs.get());
  EXPECT_EQ(end->carrier->remote_memory() != nullptr, true);
  std::array<std::byte, 4096> memory{};
  const Status refused = end->carrier->remote_memory()->enroll(memory);
  EXPECT_NE(refused.message().find("Bad file descriptor"), std::string::npos)
      << refused.to_string();
  for (int i = 0; i < 3; ++i) end->carrier->announce_sleep();
  std::array<std::byte, 8> into{};
  EXPECT_EQ(end->carrier->take(into).found, carrier::Found::kFailed);
  end.reset();
  EXPECT_EQ(fcntl(fd, F_GETFD), 0) << "the program's file was closed";
  close(fd);
}

}  // namespace
}  // namespace gpurun::transport::rdma
