// Environments of a program and of a private server: our values come first and the user's stay. The
// server gets nothing of an outer gpurun. The tests call pure functions over lists.
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

TEST(ProgramEnvironment, PrependsOwnValues) {
  const auto program =
      program_environment({"LD_PRELOAD=a.so b.so", "LD_LIBRARY_PATH=/x:/y", "HOME=/h"}, settings());
  ASSERT_TRUE(program.ok());
  EXPECT_THAT(
      *program,
      UnorderedElementsAre(
          "HOME=/h", "LD_PRELOAD=/p/client/libcuda.so.1:/p/client/libnvidia-ml.so.1:a.so b.so",
          "LD_LIBRARY_PATH=/p/client:/x:/y", "GPURUN_SESSION=/proc/1/fd/5"));
}

// An empty part of LD_LIBRARY_PATH means the current folder, which could hold another libcuda.
TEST(ProgramEnvironment, LeavesNoEmptyPathEntry) {
  const auto program = program_environment({"LD_LIBRARY_PATH="}, settings());
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(value_of(*program, "LD_LIBRARY_PATH"), "/p/client");
}

TEST(ProgramEnvironment, KeepsVariablesWithSimilarNames) {
  const auto program =
      program_environment({"LD_PRELOAD_MORE=1", "GPURUN_STATS_FILE=/f"}, settings());
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(value_of(*program, "LD_PRELOAD_MORE"), "1");
  EXPECT_EQ(value_of(*program, "GPURUN_STATS"), "");
}

TEST(ProgramEnvironment, SetsTraceFolder) {
  ProgramSettings traced = settings();
  traced.trace_folder = "/runs/1";
  EXPECT_EQ(value_of(*program_environment({"GPURUN_TRACE=old"}, traced), "GPURUN_TRACE"),
            "/runs/1");
  EXPECT_EQ(value_of(*program_environment({}, settings()), "GPURUN_TRACE"), "");
}

TEST(ProgramEnvironment, SetsTransportsOfTheCommandLine) {
  ProgramSettings chosen = settings();
  chosen.transports = "rdma,tcp";
  EXPECT_EQ(value_of(*program_environment({"GPURUN_TRANSPORTS=shm"}, chosen), "GPURUN_TRANSPORTS"),
            "rdma,tcp");
  EXPECT_EQ(
      value_of(*program_environment({"GPURUN_TRANSPORTS=shm"}, settings()), "GPURUN_TRANSPORTS"),
      "shm");
}

TEST(ProgramEnvironment, RefusesPathThatLoaderWouldSplit) {
  for (const char* folder : {"/with space", "/with:colon", "/with;semicolon"}) {
    ProgramSettings split = settings();
    split.preload = {std::string(folder) + "/libcuda.so.1"};
    const auto program = program_environment({}, split);
    ASSERT_FALSE(program.ok()) << folder;
    EXPECT_EQ(program.status().code(), Code::kRefused);
  }
}

std::vector<EmulatedLibrary> libraries() {
  return {{"/p/client/libgpurun-nvjitlink.so", kNvJitLinkVariable, " in front of nvJitLink"},
          {"/p/client/libgpurun-cuda-tools.so", kCudaToolsVariable, " for each ptxas"}};
}

// Tool chains that make machine code are told to produce PTX if only that can run.
TEST(ProgramEnvironment, ConfiguresToolChainsForEmulatedDevice) {
  ProgramSettings emulated = settings();
  emulated.emulated = true;
  emulated.emulated_libraries = libraries();
  std::string said;
  const auto program = program_environment({"LD_PRELOAD=a.so"}, emulated, &said);
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(value_of(*program, "CUPY_COMPILE_WITH_PTX"), "1");
  EXPECT_EQ(value_of(*program, "CUTE_DSL_LINEINFO"), "1");
  EXPECT_EQ(value_of(*program, "LD_PRELOAD"),
            "/p/client/libcuda.so.1:/p/client/libnvidia-ml.so.1:"
            "/p/client/libgpurun-nvjitlink.so:/p/client/libgpurun-cuda-tools.so:a.so");
  EXPECT_EQ(said,
            "/p/client/libgpurun-nvjitlink.so in front of nvJitLink, "
            "/p/client/libgpurun-cuda-tools.so for each ptxas, CUPY_COMPILE_WITH_PTX=1, "
            "CUTE_DSL_LINEINFO=1");
}

TEST(ProgramEnvironment, DoesNotConfigureToolChainsForRealDevice) {
  ProgramSettings real = settings();
  real.emulated_libraries = libraries();
  std::string said;
  // The environment that an outer gpurun with an emulated device leaves.
  const auto program = program_environment({"LD_PRELOAD=/p/client/libgpurun-nvjitlink.so:"
                                            "/p/client/libgpurun-cuda-tools.so:a.so"},
                                           real, &said);
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(value_of(*program, "LD_PRELOAD"),
            "/p/client/libcuda.so.1:/p/client/libnvidia-ml.so.1:a.so");
  EXPECT_THAT(*program, testing::Not(testing::Contains(testing::HasSubstr("CUPY"))));
  EXPECT_EQ(said, "");
}

TEST(ProgramEnvironment, KeepsUserSettingsForEmulatedDevice) {
  ProgramSettings emulated = settings();
  emulated.emulated = true;
  emulated.emulated_libraries = libraries();
  std::string said;
  const auto program = program_environment({"CUPY_COMPILE_WITH_PTX=", "CUTE_DSL_LINEINFO=0",
                                            "GPURUN_NVJITLINK=off", "GPURUN_CUDA_TOOLS=off"},
                                           emulated, &said);
  ASSERT_TRUE(program.ok());
  EXPECT_THAT(*program, testing::Not(testing::Contains(testing::HasSubstr("cuda-tools.so"))));
  EXPECT_THAT(*program, testing::Contains("CUPY_COMPILE_WITH_PTX="));
  EXPECT_THAT(*program, testing::Contains("CUTE_DSL_LINEINFO=0"));
  EXPECT_THAT(*program, testing::Not(testing::Contains(testing::HasSubstr("nvjitlink.so"))));
  EXPECT_EQ(said, "");
}

TEST(ServerEnvironment, RemovesValuesOfOuterGpurun) {
  Places places;
  places.client_folder = "/p/client";
  const Environment server =
      server_environment({"LD_PRELOAD=/p/client/libcuda.so.1:/p/client/libnvidia-ml.so.1:"
                          "/p/client/libgpurun-device-files.so:"
                          "/p/client/libgpurun-cuda-tools.so:"
                          "/p/client/libgpurun-nvjitlink.so:a.so b.so",
                          "LD_LIBRARY_PATH=/p/client:/x;/y", "GPURUN_SESSION=/proc/1/fd/5",
                          "HOME=/h", "CUDA_VISIBLE_DEVICES=1"},
                         places);
  EXPECT_THAT(server,
              UnorderedElementsAre("LD_PRELOAD=a.so:b.so", "LD_LIBRARY_PATH=/x:/y", "HOME=/h"));
  EXPECT_THAT(server_environment({"LD_PRELOAD=/p/client/libcuda.so.1"}, places),
              UnorderedElementsAre());
}

TEST(VisibleDevices, EnvironmentKeepsOnlyFirstDevices) {
  Environment environment = {"CUDA_VISIBLE_DEVICES=2,1", "HOME=/h"};
  EXPECT_EQ(visible_devices_of(environment), "2,1");
  show_first_devices(&environment, 1);
  EXPECT_THAT(environment, UnorderedElementsAre("CUDA_VISIBLE_DEVICES=2", "HOME=/h"));
  EXPECT_EQ(visible_devices_of({"HOME=/h"}), std::nullopt);
  EXPECT_EQ(visible_devices_of({"CUDA_VISIBLE_DEVICES="}), "") << "set, and so no device";
}

}  // namespace
}  // namespace gpurun::tools
