// Trace: a process's trace file belongs to the user and is whole, or is absent. A link, a pipe or a
// killed process's file in its place is replaced, never followed or waited for.
#include "client/stats/trace.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace gpurun::client {
namespace {

class TraceFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "gpurun-trace-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static protocol::TraceFile file() {
    protocol::TraceFile file;
    file.program = "train";
    file.process = 17;
    file.client = protocol::encode(protocol::Recording());
    return file;
  }
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  void expect_whole() const {
    EXPECT_EQ(names(), std::set<std::string>{"train.17.gpurun-trace"});
    struct stat facts {};
    ASSERT_EQ(lstat(path().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode, static_cast<mode_t>(S_IFREG | 0600));
    std::ifstream stream(path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_TRUE(protocol::parse_trace_file(byte_view(text.data(), text.size())).ok());
  }
  std::string path() const { return folder_ + "/train.17.gpurun-trace"; }

  std::string folder_;
};

TEST_F(TraceFileTest, WritesWholeFileWithPrivateMode) {
  ASSERT_TRUE(write_trace_file(folder_, file()).ok());
  expect_whole();
}

TEST_F(TraceFileTest, ReplacesExistingLinkOrPipe) {
  const std::string other = folder_ + ".other";
  std::ofstream(other) << "kept";
  ASSERT_EQ(symlink(other.c_str(), path().c_str()), 0);
  ASSERT_TRUE(write_trace_file(folder_, file()).ok());
  expect_whole();
  EXPECT_EQ(std::filesystem::file_size(other), 4u);
  std::filesystem::remove(other);
  unlink(path().c_str());
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  ASSERT_TRUE(write_trace_file(folder_, file()).ok());
  expect_whole();
}

// Programs in two containers can have the same name and number.
TEST_F(TraceFileTest, KeepsEarlierTraceOfSameName) {
  ASSERT_TRUE(write_trace_file(folder_, file()).ok());
  ASSERT_TRUE(write_trace_file(folder_, file()).ok());
  ASSERT_TRUE(write_trace_file(folder_, file()).ok());
  EXPECT_EQ(names(), (std::set<std::string>{"train.17.gpurun-trace", "train.17-2.gpurun-trace",
                                            "train.17-3.gpurun-trace"}));
}

TEST_F(TraceFileTest, FailedWriteLeavesNoFile) {
  ASSERT_EQ(mkdir(path().c_str(), 0700), 0);
  const Status status = write_trace_file(folder_, file());
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find(path()), std::string::npos);
  EXPECT_EQ(names(), std::set<std::string>{"train.17.gpurun-trace"});
  EXPECT_FALSE(write_trace_file(folder_ + "/missing", file()).ok());
}

}  // namespace
}  // namespace gpurun::client
