// Log: stderr gets one line per record, whatever the text, and nothing below the level.
#include "base/log.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace gpurun::log {
namespace {

// We log inside the program's process. Its errno must survive, and one record must be one line.
TEST(LogTest, WritesOneLineAndKeepsErrno) {
  set_level(Level::kInfo);
  errno = 4711;
  testing::internal::CaptureStderr();
  GPURUN_LOG(kInfo, "value %d", 7);
  GPURUN_LOG(kDebug, "hidden");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "gpurun: info: value 7\n");
  EXPECT_EQ(errno, 4711);
}

TEST(LogTest, TruncatesLongRecords) {
  set_level(Level::kInfo);
  const std::string text(10'000, 'x');
  testing::internal::CaptureStderr();
  GPURUN_LOG(kWarning, "%s", text.c_str());
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_LE(line.size(), 4096u);
  EXPECT_EQ(line.back(), '\n');
}

TEST(LogTest, UnknownLevelIsRefused) {
  Level parsed = Level::kTrace;
  EXPECT_FALSE(parse_level("loud", &parsed));
  EXPECT_EQ(parsed, Level::kTrace);
  EXPECT_TRUE(parse_level("debug", &parsed));
  EXPECT_EQ(parsed, Level::kDebug);
}

}  // namespace
}  // namespace gpurun::log
