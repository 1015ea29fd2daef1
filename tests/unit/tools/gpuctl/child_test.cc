// Child: gpuctl reads both outputs of a command, waits no longer than it should, and leaves
// nothing.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <chrono>
#include <string>
#include <vector>

#include "tools/gpuctl/child.h"

namespace gpurun::tools {
namespace {

ChildEnd run(const std::string& script, bool joined = false) {
  ChildOptions order;
  order.command = {"sh", "-c", script};
  order.joined = joined;
  order.deadline = Deadline::in(std::chrono::seconds(30));
  const Result<ChildEnd> end = run_child(order);
  EXPECT_TRUE(end.ok());
  return end.ok() ? *end : ChildEnd();
}

TEST(Child, HasItsOutputsAndStatus) {
  const ChildEnd end = run("echo out; echo err >&2; cat; exit 3");
  EXPECT_EQ(end.output, "out\n");
  EXPECT_EQ(end.errors, "err\n");
  EXPECT_EQ(WEXITSTATUS(end.status), 3);
  EXPECT_FALSE(end.succeeded());
  EXPECT_TRUE(run("true").succeeded());
  EXPECT_EQ(run("echo out; echo err >&2", true).output, "out\nerr\n");
}

TEST(Child, GetsVariablesInPlaceOfOthers) {
  ChildOptions order;
  order.command = {"env"};  // A shell would keep one of two equal names.
  order.environment = {"GPUCTL_TEST=word", "PATH=" + std::string(getenv("PATH"))};
  const Result<ChildEnd> end = run_child(order);
  ASSERT_TRUE(end.ok());
  const std::string all = "\n" + end->output;
  EXPECT_NE(all.find("\nGPUCTL_TEST=word\n"), std::string::npos) << all;
  const std::size_t first = all.find("\nPATH=");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(all.find("\nPATH=", first + 1), std::string::npos) << all;
}

TEST(Child, LinesComeWhole) {
  std::vector<std::string> lines;
  ChildOptions order;
  order.command = {"sh", "-c", "printf 'one\\ntw'; printf 'o\\nrest'"};
  order.on_line = [&](std::string_view line) { lines.emplace_back(line); };
  ASSERT_TRUE(run_child(order).ok());
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "two"}));
}

TEST(Child, LongOutputKeepsItsEnd) {
  const ChildEnd end = run("head -c 1000000 /dev/zero | tr '\\0' a; echo end");
  EXPECT_EQ(end.output.size(), kChildTextMax);
  EXPECT_EQ(end.output.substr(end.output.size() - 5), "aend\n");
}

TEST(Child, DeadlineEndsIt) {
  // The second command closes its outputs, and runs on.
  for (const char* script : {"echo ready; exec sleep 1000", "exec sleep 1000 > /dev/null 2>&1"}) {
    ChildOptions order;
    order.command = {"sh", "-c", script};
    order.deadline = Deadline::in(std::chrono::milliseconds(200));
    const Result<ChildEnd> end = run_child(order);
    ASSERT_TRUE(end.ok());
    EXPECT_TRUE(end->timed_out);
    EXPECT_FALSE(end->succeeded());
    EXPECT_TRUE(WIFSIGNALED(end->status) && WTERMSIG(end->status) == SIGTERM);
  }
}

TEST(Child, MissingCommandFails) {
  ChildOptions order;
  order.command = {"/nonexistent/command"};
  const Result<ChildEnd> end = run_child(order);
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(WEXITSTATUS(end->status), 127);
  EXPECT_NE(end->errors.find("/nonexistent/command"), std::string::npos);
}

}  // namespace
}  // namespace gpurun::tools
