// Worker control groups: the right lines go to the right files, in the order that the kernel needs.
// A worker is limited before it is moved into its group. A daemon leaves groups of others alone.
// The hierarchy is a folder here, so the kernel's part is not covered.
#include "server/daemon/workers/worker_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace gpurun::server {
namespace {

class WorkerGroupsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    write("self", "9:pids:/\n0::/system.slice/gpurund.service\n");
    write(kDaemon + "cgroup.controllers", "cpu memory pids\n");
    write(kDaemon + "cgroup.procs", std::to_string(getpid()) + "\n");
    write(kDaemon + "cgroup.subtree_control", "");
    write(kDaemon + "daemon/cgroup.procs", "");
    for (const char* file : {"pids.max", "memory.max", "memory.oom.group", "memory.swap.max",
                             "memory.events", "cgroup.procs", "cgroup.kill"}) {
      write(kWorker + file, "");
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  Result<std::shared_ptr<WorkerGroups>> create() const {
    return WorkerGroups::create(folder_, folder_ + "/self");
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  const std::string kDaemon = "system.slice/gpurund.service/";
  const std::string kWorker = kDaemon + "worker-4711/";

 private:
  std::string folder_ = testing::TempDir() + "groups-XXXXXX";
};

TEST_F(WorkerGroupsTest, LimitsWorkerAndMovesItIntoGroup) {
  const auto groups = create();
  ASSERT_TRUE(groups.ok()) << groups.status().to_string();
  EXPECT_EQ(read(kDaemon + "daemon/cgroup.procs"), std::to_string(getpid()));
  EXPECT_EQ(read(kDaemon + "cgroup.subtree_control"), "+memory +pids");
  auto group = (*groups)->add(4711);
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  EXPECT_EQ(read(kWorker + "memory.max"), "");
  ASSERT_TRUE((*group)->limit_memory(1 << 20).ok());
  EXPECT_EQ(read(kWorker + "memory.max"), "1048576");
  EXPECT_EQ(read(kWorker + "memory.oom.group"), "1");
  EXPECT_EQ(read(kWorker + "pids.max"), "4096");
  EXPECT_EQ(read(kWorker + "cgroup.procs"), "4711");
  write(kWorker + "memory.events", "low 0\noom 3\noom_kill 0\n");
  EXPECT_FALSE((*group)->memory_struck());
  write(kWorker + "memory.events", "low 0\noom 3\noom_kill 1\n");
  EXPECT_TRUE((*group)->memory_struck());
  group->reset();
  EXPECT_EQ(read(kWorker + "cgroup.kill"), "1");
}

// The files of a folder that are written from now on, in order. Each counts once in a row.
class Writes {
 public:
  explicit Writes(const std::string& folder) : events_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    EXPECT_GE(inotify_add_watch(events_.get(), folder.c_str(), IN_MODIFY), 0);
  }
  std::vector<std::string> take() const {
    std::vector<std::string> names;
    alignas(inotify_event) std::array<char, 4096> buffer;
    ssize_t bytes = 0;
    while ((bytes = ::read(events_.get(), buffer.data(), buffer.size())) > 0) {
      for (ssize_t at = 0; at < bytes;) {
        const auto* const event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
        if (names.empty() || names.back() != event->name) names.emplace_back(event->name);
        at += static_cast<ssize_t>(sizeof *event + event->len);
      }
    }
    return names;
  }

 private:
  const UniqueFd events_;
};

// A worker that was moved first could start tasks, or take memory, beyond its limits.
TEST_F(WorkerGroupsTest, LimitsTasksBeforeWorkerIsMoved) {
  const auto groups = create();
  ASSERT_TRUE(groups.ok()) << groups.status().to_string();
  const Writes writes(path(kWorker));
  const auto group = (*groups)->add(4711);
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  EXPECT_THAT(writes.take(), testing::ElementsAre("pids.max", "cgroup.procs"));
  ASSERT_TRUE((*group)->limit_memory(1 << 20).ok());
  EXPECT_THAT(writes.take(),
              testing::ElementsAre("memory.max", "memory.oom.group", "memory.swap.max"));
}

// The kernel gives limits to subgroups only where the group itself has no processes.
TEST_F(WorkerGroupsTest, DaemonLeavesItsGroupBeforeSubgroupsGetLimits) {
  const Writes own(path(kDaemon + "daemon")), above(path(kDaemon));
  std::filesystem::remove(path(kDaemon + "daemon/cgroup.procs"));
  EXPECT_FALSE(create().ok()) << "the daemon cannot leave its group";
  EXPECT_THAT(above.take(), testing::IsEmpty());
  write(kDaemon + "daemon/cgroup.procs", "");
  ASSERT_TRUE(create().ok());
  EXPECT_THAT(own.take(), testing::ElementsAre("cgroup.procs"));
  EXPECT_THAT(above.take(), testing::ElementsAre("cgroup.subtree_control"));
}

TEST_F(WorkerGroupsTest, ZeroMemoryMeansNoLimit) {
  const auto groups = create();
  ASSERT_TRUE(groups.ok());
  const auto group = (*groups)->add(4711);
  ASSERT_TRUE(group.ok() && (*group)->limit_memory(0).ok());
  EXPECT_EQ(read(kWorker + "memory.max"), "");
}

TEST_F(WorkerGroupsTest, LeavesForeignGroupsUntouched) {
  write(kDaemon + "cgroup.procs", std::to_string(getpid()) + "\n1\n");
  EXPECT_EQ(create().status().code(), Code::kUnavailable);
  write(kDaemon + "cgroup.procs", std::to_string(getpid()) + "\n");
  write(kDaemon + "cgroup.controllers", "cpu pids\n");
  EXPECT_EQ(create().status().code(), Code::kUnavailable);
  write("self", "0::/\n");
  EXPECT_EQ(create().status().code(), Code::kUnavailable);
  EXPECT_EQ(read(kDaemon + "daemon/cgroup.procs"), "");
  EXPECT_EQ(read(kDaemon + "cgroup.subtree_control"), "");
}

}  // namespace
}  // namespace gpurun::server
