// Probe child: whatever a driver does in a query's process, the probe gets the written bytes and
// continues.
#include "child.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

namespace gpurun::probe {
namespace {

int say(int fd, const char* text, std::size_t bytes) {
  return write(fd, text, bytes) == static_cast<ssize_t>(bytes) ? 0 : 1;
}

TEST(ChildTest, ReturnsOutputAndExitCode) {
  const ChildResult result = run_child(20, [](int fd) { return say(fd, "fact", 4) + 7; });
  EXPECT_EQ(result.output, "fact");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(failure_of(result), "exit code 7");
  EXPECT_EQ(failure_of(run_child(20, [](int) { return 0; })), "");
}

TEST(ChildTest, KeepsOutputWrittenBeforeCrash) {
  const ChildResult result = run_child(20, [](int fd) {
    say(fd, "fact", 4);
    raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(result.output, "fact");
  EXPECT_EQ(result.signal, SIGKILL);
  EXPECT_EQ(failure_of(result).rfind("killed by signal 9", 0), 0U);
}

// A driver may hang for ever, and start a process that keeps the pipe open.
TEST(ChildTest, HangingChildTimesOut) {
  const auto start = std::chrono::steady_clock::now();
  const ChildResult result = run_child(1, [](int fd) {
    say(fd, "fact", 4);
    if (fork() == 0) pause();
    pause();
    return 0;
  });
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.output, "fact");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

}  // namespace
}  // namespace gpurun::probe
