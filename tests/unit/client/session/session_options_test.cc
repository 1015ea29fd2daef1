// SessionOptions: the settings that the environment gives.
#include "base/log.h"
#include "client/session/session.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace gpurun::client {
namespace {

using std::chrono::microseconds;

microseconds spin_of(const char* text) {
  setenv("GPURUN_SPIN_US", text, 1);
  const microseconds span = SessionOptions::from_environment().spin;
  unsetenv("GPURUN_SPIN_US");
  return span;
}

TEST(SessionOptions, ReadsSpinSpanFromEnvironment) {
  EXPECT_EQ(SessionOptions::from_environment().spin, BriefSpin::kSpan);
  EXPECT_EQ(spin_of(""), BriefSpin::kSpan);
  EXPECT_EQ(spin_of("0"), microseconds(0));
  EXPECT_EQ(spin_of("7"), microseconds(7));
  EXPECT_EQ(spin_of("1000"), microseconds(SessionOptions::kSpinUsMax));
}

TEST(SessionOptions, InvalidSpinSpanIsReportedOnceAndIgnored) {
  log::set_level(log::Level::kWarning);
  testing::internal::CaptureStderr();
  for (const char* text : {"-1", "1001", "30us", "x", "99999999999999999999", " 5"}) {
    EXPECT_EQ(spin_of(text), BriefSpin::kSpan) << text;
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("GPURUN_SPIN_US is '-1': no number of 0 to 1000"), std::string::npos) << said;
  EXPECT_EQ(said.find("1001"), std::string::npos) << said;
}

TEST(SessionOptions, AcceptsBulkConnectionsOnlyInRange) {
  const auto connections_of = [](const char* text) {
    setenv("GPURUN_BULK_CONNECTIONS", text, 1);
    const unsigned count = SessionOptions::from_environment().bulk_connections;
    unsetenv("GPURUN_BULK_CONNECTIONS");
    return count;
  };
  EXPECT_EQ(SessionOptions::from_environment().bulk_connections, 0U);
  EXPECT_EQ(connections_of("2"), 2U);
  EXPECT_EQ(connections_of("8"), 8U);
  testing::internal::CaptureStderr();
  for (const char* text : {"0", "9", "-1", "two"}) EXPECT_EQ(connections_of(text), 0U) << text;
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("GPURUN_BULK_CONNECTIONS is '0': no number of 1 to 8"), std::string::npos);
}

TEST(SessionOptions, PackingIsOnUnlessSetToOff) {
  EXPECT_TRUE(SessionOptions::from_environment().packing);
  for (const auto& [text, packs] : {std::pair{"off", false}, {"on", true}, {"", true}}) {
    setenv("GPURUN_PACKING", text, 1);
    EXPECT_EQ(SessionOptions::from_environment().packing, packs) << text;
  }
  unsetenv("GPURUN_PACKING");
}

TEST(SessionOptions, SyncIsOffOnlyForEmptyOrZero) {
  for (const char* text : {"1", "yes"}) {
    setenv("GPURUN_SYNC", text, 1);
    EXPECT_TRUE(SessionOptions::from_environment().every_call_is_a_fence) << text;
  }
  for (const char* text : {"", "0"}) {
    setenv("GPURUN_SYNC", text, 1);
    EXPECT_FALSE(SessionOptions::from_environment().every_call_is_a_fence) << text;
  }
  unsetenv("GPURUN_SYNC");
}

}  // namespace
}  // namespace gpurun::client
