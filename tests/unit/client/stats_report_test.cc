// Protects: the statistics' sums and names, and that the JSON line can be read whatever the
// program is called. Tests of round trips read these numbers.
#include "client/stats_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "driver_abi/row.h"

namespace gpurun::client {
namespace {

using std::chrono::microseconds;

std::vector<Stats::Row> counted() {
  Stats stats(true);
  const std::uint16_t synchronize = driver_abi::find_row("cuCtxSynchronize")->opcode;
  const std::uint16_t record = driver_abi::find_row("cuEventRecord")->opcode;
  for (int i = 0; i < 5; ++i) stats.count(record, 40);
  stats.count(synchronize, 30);
  stats.count_fence(synchronize, microseconds(1500));
  return stats.rows();
}

TEST(StatsReport, NamesWhatTheClientAnsweredItself) {
  Stats stats(true);
  stats.count_entry(driver_abi::find_row("cuCtxGetCurrent")->opcode);
  const auto json = nlohmann::json::parse(statistics_json({"x", 1, "h:1", 2}, stats.rows()));
  ASSERT_EQ(json["functions"].size(), 1u);
  EXPECT_EQ(json["functions"][0]["entries"], 1);
  EXPECT_EQ(json["functions"][0]["calls"], 0);
  const std::string table = statistics_table({"x", 1, "h:1", 2}, stats.rows());
  EXPECT_EQ(table.find("cuCtxGetCurrent"), std::string::npos);  // The table is about the wire.
}

TEST(StatsReport, JsonNamesFunctionsAndSumsThem) {
  const StatsSubject subject{"a \"quoted\"\n\xff name", 17, "gpu1:4790", 3};
  const std::string text = statistics_json(subject, counted());
  ASSERT_EQ(text.find('\n'), text.size() - 1);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["process"], 17);
  EXPECT_EQ(json["attach_round_trips"], 3);
  EXPECT_EQ(json["blocking_round_trips"], 4);
  EXPECT_EQ(json["calls"], 6);
  EXPECT_EQ(json["bytes"], 5 * 40 + 30);
  EXPECT_DOUBLE_EQ(json["waited_us"].get<double>(), 1500.0);
  ASSERT_EQ(json["functions"].size(), 2u);
  EXPECT_EQ(json["functions"][0]["name"], "cuCtxSynchronize");  // The longest wait.
  EXPECT_EQ(json["functions"][0]["fences"], 1);
  EXPECT_EQ(json["functions"][1]["name"], "cuEventRecord");
  EXPECT_EQ(json["functions"][1]["calls"], 5);
}

TEST(StatsReport, TableEndsWithTheRoundTrips) {
  const std::string text = statistics_table({"train", 2, "gpu1:4790", 3}, counted());
  EXPECT_NE(text.find("train (process 2) on gpu1:4790"), std::string::npos);
  EXPECT_NE(text.find("cuEventRecord"), std::string::npos);
  EXPECT_NE(text.find("blocking round trips: 4, of them 3 to attach"), std::string::npos);
}

TEST(StatsReport, NothingCalledIsNotAnError) {
  const auto json = nlohmann::json::parse(statistics_json({"x", 1, "h:1", 2}, {}));
  EXPECT_EQ(json["blocking_round_trips"], 2);
  EXPECT_TRUE(json["functions"].empty());
}

}  // namespace
}  // namespace gpurun::client
