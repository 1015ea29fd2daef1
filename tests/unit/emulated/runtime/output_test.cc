// Device output: the order and the bound of what kernels print.
#include "emulated/runtime/device_output.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace gpurun::emulated {
namespace {

TEST(DeviceOutput, FlushWritesRecordsOnceInOrder) {
  DeviceOutput output;
  std::string shown;
  output.set_sink([&](DeviceOutput::Target target, const std::string& text) {
    shown += (target == DeviceOutput::Target::kStdout ? "o:" : "e:") + text;
  });
  output.append(DeviceOutput::Target::kStdout, "a");
  output.append(DeviceOutput::Target::kStderr, "b");
  EXPECT_EQ(shown, "");
  output.flush();
  output.flush();
  EXPECT_EQ(shown, "o:ae:b");
}

TEST(DeviceOutput, FullBufferOverwritesOldestRecords) {
  DeviceOutput output;
  output.set_limit(10 * (64 + 1));
  std::string shown;
  output.set_sink([&](DeviceOutput::Target, const std::string& text) { shown += text; });
  for (char c = 'a'; c <= 'z'; ++c) output.append(DeviceOutput::Target::kStdout, {c});
  output.flush();
  EXPECT_EQ(shown, "qrstuvwxyz");
}

TEST(DeviceOutput, WritesAfterPendingHostOutput) {
  DeviceOutput output;
  testing::internal::CaptureStdout();
  std::printf("host ");
  output.append(DeviceOutput::Target::kStdout, "device\n");
  output.flush();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "host device\n");
}

TEST(DeviceOutput, ConcurrentFlushesKeepTheOrder) {
  DeviceOutput output;
  std::vector<int> shown;
  output.set_sink(
      [&](DeviceOutput::Target, const std::string& text) { shown.push_back(std::stoi(text)); });
  std::vector<std::thread> threads;
  std::mutex mutex;
  int next = 0;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        {
          std::lock_guard lock(mutex);
          output.append(DeviceOutput::Target::kStdout, std::to_string(next++));
        }
        output.flush();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(shown.size(), 900u);
  for (int i = 0; i < 900; ++i) EXPECT_EQ(shown[static_cast<std::size_t>(i)], i);
}

}  // namespace
}  // namespace gpurun::emulated
