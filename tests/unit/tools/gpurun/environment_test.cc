// Protects what a program and a private server find in their environment: ours first, the user's
// kept, and nothing of an outer gpurun in the server. Method: pure functions over lists.
#include "tools/gpurun/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpurun::tools {
namespace {

using testing::UnorderedElementsAre;

ProgramSettings settings() {
  ProgramSettings settings;
  settings.preload = {"/p/client/libcuda.so.1", "/p/client/libnvidia-ml.so.1"};
  settings.library_folder = "/p/client";
  settings.session_file = "/proc/1/fd/5";
  return settings;
}

TEST(ProgramEnvironment, PutsOursBeforeTheUsers) {
  const auto program =
      program_environment({"LD_PRELOAD=a.so b.so", "LD_LIBRARY_PATH=/x:/y", "HOME=/h"}, settings());
  ASSERT_TRUE(program.ok());
  EXPECT_THAT(
      *program,
      UnorderedElementsAre(
          "HOME=/h", "LD_PRELOAD=/p/client/libcuda.so.1:/p/client/libnvidia-ml.so.1:a.so b.so",
          "LD_LIBRARY_PATH=/p/client:/x:/y", "GPURUN_SESSION=/proc/1/fd/5"));
}

// An empty part of LD_LIBRARY_PATH is the current folder: a stranger's libcuda could be there.
TEST(ProgramEnvironment, LeavesNoEmptyPart) {
  const auto program = program_environment({"LD_LIBRARY_PATH="}, settings());
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(value_of(*program, "LD_LIBRARY_PATH"), "/p/client");
}

TEST(ProgramEnvironment, TakesASimilarNameForAnotherVariable) {
  const auto program =
      program_environment({"LD_PRELOAD_MORE=1", "GPURUN_STATS_FILE=/f"}, settings());
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(value_of(*program, "LD_PRELOAD_MORE"), "1");
  EXPECT_EQ(value_of(*program, "GPURUN_STATS"), "");
}

TEST(ProgramEnvironment, RefusesAPathThatTheLoaderWouldSplit) {
  for (const char* folder : {"/with space", "/with:colon", "/with;semicolon"}) {
    ProgramSettings split = settings();
    split.preload = {std::string(folder) + "/libcuda.so.1"};
    const auto program = program_environment({}, split);
    ASSERT_FALSE(program.ok()) << folder;
    EXPECT_EQ(program.status().code(), Code::kRefused);
  }
}

TEST(ServerEnvironment, LosesWhatAnOuterGpurunAdded) {
  Places places;
  places.client_folder = "/p/client";
  const Environment server = server_environment(
      {"LD_PRELOAD=/p/client/libcuda.so.1:/p/client/libnvidia-ml.so.1:a.so b.so",
       "LD_LIBRARY_PATH=/p/client:/x;/y", "GPURUN_SESSION=/proc/1/fd/5", "HOME=/h"},
      places);
  EXPECT_THAT(server,
              UnorderedElementsAre("LD_PRELOAD=a.so:b.so", "LD_LIBRARY_PATH=/x:/y", "HOME=/h"));
  EXPECT_THAT(server_environment({"LD_PRELOAD=/p/client/libcuda.so.1"}, places),
              UnorderedElementsAre());
}

}  // namespace
}  // namespace gpurun::tools
