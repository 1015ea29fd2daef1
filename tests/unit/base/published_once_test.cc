// PublishedOnce: all callers get one value. A forked child does not wait for a parent's thread that
// was building the value.
#include "base/published_once.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <stdexcept>
#include <string>
#include <thread>

namespace gpurun {
namespace {

TEST(PublishedOnce, ReturnsTheFirstValue) {
  static constinit PublishedOnce<std::string> once;
  const std::string& first = once.get([] { return std::string("first"); });
  const std::string& second = once.get([] { return std::string("second"); });
  EXPECT_EQ(first, "first");
  EXPECT_EQ(&first, &second);
}

TEST(PublishedOnce, BuildsAgainAfterAnException) {
  static constinit PublishedOnce<int> once;
  EXPECT_THROW(once.get([]() -> int { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(once.get([] { return 7; }), 7);
}

TEST(PublishedOnce, KeepsThePublishedValueWhenTwoThreadsBuild) {
  static constinit PublishedOnce<int> once;
  std::latch building(1), published(1);
  const int* late = nullptr;
  std::thread other([&] {
    late = &once.get([&] {
      building.count_down();
      published.wait();
      return 2;
    });
  });
  building.wait();
  const int& early = once.get([] { return 1; });
  published.count_down();
  other.join();
  EXPECT_EQ(early, 1);
  EXPECT_EQ(late, &early);
}

TEST(PublishedOnce, DoesNotBlockAChildForkedWhileAThreadBuilds) {
  static constinit PublishedOnce<int> once;
  std::latch building(1), forked(1);
  std::thread other([&] {
    once.get([&] {
      building.count_down();
      forked.wait();
      return 2;
    });
  });
  building.wait();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // A signal ends a child that waits for the thread.
    _exit(once.get([] { return 3; }));
  }
  forked.count_down();
  other.join();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

}  // namespace
}  // namespace gpurun
