// Statistics report: sums and names are right, and the JSON line is valid whatever the program's
// name is. Tests of round trips read these numbers.
#include "client/stats/stats_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "driver_abi/row.h"

namespace gpurun::client {
namespace {

using std::chrono::microseconds;

protocol::RecordHeader call(std::uint16_t opcode) {
  protocol::RecordHeader header;
  header.opcode = opcode;
  return header;
}

Statistics counted() {
  Stats stats(true);
  const std::uint16_t synchronize = driver_abi::find_row("cuCtxSynchronize")->opcode;
  const std::uint16_t record = driver_abi::find_row("cuEventRecord")->opcode;
  for (int i = 0; i < 5; ++i) stats.count(call(record), 40, {});
  stats.count(call(synchronize), 30, {});
  stats.count_fence({synchronize, 0, 1, microseconds(500)});
  stats.count_fence({synchronize, 0, 2, microseconds(1000)});
  stats.count_sent(record, 7);
  stats.count_received(synchronize, 9);
  stats.count_batch(1, 1, 40, 40);
  stats.count_batch(2, 6, 190, 90);
  stats.count_full_log();
  stats.count_full_log_end(microseconds(250));
  return statistics_of(stats);
}

TEST(StatsReport, JsonListsLocalCallsAndTableOmitsThem) {
  Stats stats(true);
  stats.count_entry(driver_abi::find_row("cuCtxGetCurrent")->opcode);
  const auto json =
      nlohmann::json::parse(statistics_json({"x", 1, "h:1", 2}, statistics_of(stats)));
  ASSERT_EQ(json["functions"].size(), 1u);
  EXPECT_EQ(json["functions"][0]["entries"], 1);
  EXPECT_EQ(json["functions"][0]["calls"], 0);
  const std::string table = statistics_table({"x", 1, "h:1", 2}, statistics_of(stats));
  EXPECT_EQ(table.find("cuCtxGetCurrent"), std::string::npos);  // The table shows only calls that
                                                                // use the wire.
}

// No thread of the program waits when our own thread waits for a stream's turn.
TEST(StatsReport, HostFunctionsAreNoRoundTripsOfTheProgram) {
  Stats stats(true);
  for (const char* name : {"cuLaunchHostFunc", "cuLaunchHostFunc", "cuStreamSynchronize"}) {
    stats.count_entry(driver_abi::find_row(name)->opcode);
    stats.count_fence({driver_abi::find_row(name)->opcode, 0, 1, microseconds(1)});
  }
  const Statistics counted = statistics_of(stats);
  const auto json = nlohmann::json::parse(statistics_json({"x", 1, "h:1", 2}, counted));
  EXPECT_EQ(json["host_functions"], 2);
  EXPECT_EQ(json["blocking_round_trips"], 2 + 1);  // Two of the attach.
  const std::string table = statistics_table({"x", 1, "h:1", 2}, counted);
  EXPECT_NE(table.find("functions of the program that ran between a stream's work: 2"),
            std::string::npos);
}

TEST(StatsReport, JsonListsFunctionsWithSums) {
  const StatsSubject subject{"a \"quoted\"\n\xff name", 17, "gpu1:4790", 3};
  const std::string text = statistics_json(subject, counted());
  ASSERT_EQ(text.find('\n'), text.size() - 1);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["process"], 17);
  EXPECT_EQ(json["attach_round_trips"], 3);
  EXPECT_EQ(json["blocking_round_trips"], 5);
  EXPECT_EQ(json["calls"], 6);
  EXPECT_EQ(json["bytes"], 5 * 40 + 30 + 7 + 9);
  EXPECT_DOUBLE_EQ(json["waited_us"].get<double>(), 1500.0);
  ASSERT_EQ(json["functions"].size(), 2u);
  EXPECT_EQ(json["functions"][0]["name"], "cuCtxSynchronize");  // The longest wait.
  EXPECT_EQ(json["functions"][0]["fences"], 2);
  EXPECT_DOUBLE_EQ(json["functions"][0]["longest_us"].get<double>(), 1000.0);
  EXPECT_EQ(json["functions"][0]["received_bytes"], 9);
  EXPECT_EQ(json["functions"][1]["name"], "cuEventRecord");
  EXPECT_EQ(json["functions"][1]["calls"], 5);
  EXPECT_EQ(json["functions"][1]["record_bytes"], 5 * 40);
  EXPECT_EQ(json["functions"][1]["sent_bytes"], 7);
}

TEST(StatsReport, RejectedTransportsHaveALineEach) {
  StatsSubject subject{"x", 1, "h:1", 2};
  subject.transport = "TCP, not encrypted";
  subject.rejected = {{"shared memory", "it is \"far\""}, {"RDMA by mlx5_0:1", "it is not active"}};
  const auto json = nlohmann::json::parse(statistics_json(subject, counted()));
  EXPECT_EQ(json["rejected"][0]["reason"], "it is \"far\"");
  EXPECT_EQ(json["rejected"][1]["transport"], "RDMA by mlx5_0:1");
  EXPECT_NE(statistics_table(subject, counted())
                .find("\nover TCP, not encrypted\nnot over shared memory: it is \"far\"\n"
                      "not over RDMA by mlx5_0:1: it is not active\n"),
            std::string::npos);
  subject.rejected.clear();
  EXPECT_TRUE(nlohmann::json::parse(statistics_json(subject, counted()))["rejected"].empty());
}

// What the server refuses, in the server's words.
TEST(StatsReport, RefusalsOfServerHaveALineEach) {
  const StatsSubject subject{"x", 1, "h:1", 2};
  Statistics statistics = counted();
  EXPECT_EQ(statistics_table(subject, statistics).find("the server does not"), std::string::npos);
  statistics.refusals = {"no \"room\"", "no device", "it is off"};
  EXPECT_NE(statistics_table(subject, statistics)
                .find("\nthe server does not read large copies by itself: no \"room\"\n"
                      "the server does not write large copies by itself: no device\n"
                      "the server does not read straight into GPU memory: it is off\n"),
            std::string::npos);
  const auto json = nlohmann::json::parse(statistics_json(subject, statistics));
  EXPECT_EQ(json["server_refuses"]["reads"], "no \"room\"");
  EXPECT_EQ(json["server_refuses"]["writes"], "no device");
  EXPECT_EQ(json["server_refuses"]["gpu_memory"], "it is off");
}

// Each question to the worker costs a round trip.
TEST(StatsReport, QuestionsToTheWorkerAreRoundTrips) {
  Statistics statistics = counted();
  EXPECT_FALSE(may_have_refusals(statistics)) << "a question for nothing";
  const StatsSubject subject{"x", 1, "h:1", 2};
  const auto before = nlohmann::json::parse(statistics_json(subject, statistics));
  statistics.worker_questions = 2;
  const auto after = nlohmann::json::parse(statistics_json(subject, statistics));
  EXPECT_EQ(after["report_round_trips"], 2);
  EXPECT_EQ(after["blocking_round_trips"], before["blocking_round_trips"].get<int>() + 2);
  EXPECT_NE(statistics_table(subject, statistics).find("and 2 to ask for the worker's numbers"),
            std::string::npos);
}

TEST(StatsReport, LargeCopiesOverRdmaMayHaveRefusals) {
  const std::uint16_t copy = driver_abi::find_row("cuMemcpyHtoDAsync_v2")->opcode;
  for (const bool reads : {false, true}) {
    Stats stats(true);
    stats.count_entry(copy);
    if (reads) {
      stats.count_pulled(copy, 5);
    } else {
      stats.count_written(copy, 5);
    }
    EXPECT_TRUE(may_have_refusals(statistics_of(stats)));
  }
}

// A session that leaves RDMA reports what it uses in the end, what it used before, and the reason.
TEST(StatsReport, ConnectionsThatLeftChangeTheTransport) {
  StatsSubject subject{"x", 1, "h:1", 2};
  const std::string rdma = "RDMA by a:1 to b:1, payload not encrypted";
  subject.transport = rdma;
  subject.socket_transport = "TCP, encrypted by TLS";
  subject.left = {0, 3, ""};
  const auto json_of = [&] { return nlohmann::json::parse(statistics_json(subject, counted())); };
  EXPECT_EQ(json_of()["transport"], rdma);
  EXPECT_EQ(json_of()["connections_that_left"], 0);
  EXPECT_EQ(statistics_table(subject, counted()).find("at first"), std::string::npos);
  subject.left = {1, 3, "the other end's device does not answer"};
  EXPECT_EQ(json_of()["transport"], rdma + ", and over TCP, encrypted by TLS");
  subject.left.count = 3;
  EXPECT_EQ(json_of()["transport"], "TCP, encrypted by TLS");
  EXPECT_EQ(json_of()["transport_at_first"], rdma);
  EXPECT_EQ(json_of()["connections"], 3);
  EXPECT_EQ(json_of()["connections_that_left"], 3);
  EXPECT_EQ(json_of()["why_left"], "the other end's device does not answer");
  EXPECT_NE(
      statistics_table(subject, counted())
          .find("\nover TCP, encrypted by TLS\nat first over " + rdma +
                ", until 3 of 3 connections left it: the other end's device does not answer\n"),
      std::string::npos);
}

TEST(StatsReport, JsonReportsBatchesAndFullLogWaits) {
  const auto json = nlohmann::json::parse(statistics_json({"x", 1, "h:1", 2}, counted()));
  EXPECT_EQ(json["batches"]["count"], 2);
  EXPECT_EQ(json["batches"]["records"], 6);
  EXPECT_EQ(json["batches"]["bytes"], 230);
  EXPECT_EQ(json["batches"]["wire_bytes"], 130);
  EXPECT_EQ(json["batches"]["by_records"], nlohmann::json({1, 0, 1}));  // One record, and four to
                                                                        // seven.
  EXPECT_EQ(json["batches"]["by_bytes"], nlohmann::json({0, 0, 0, 0, 0, 1, 0, 1}));
  EXPECT_EQ(json["full_log_waits"], 1);
  EXPECT_DOUBLE_EQ(json["full_log_waited_us"].get<double>(), 250.0);
}

TEST(StatsReport, TableReportsRoundTripsAndSortsWaits) {
  const std::string text = statistics_table({"train", 2, "gpu1:4790", 3}, counted());
  EXPECT_NE(text.find("train (process 2) on gpu1:4790"), std::string::npos);
  EXPECT_NE(text.find("cuEventRecord"), std::string::npos);
  EXPECT_NE(text.find("blocking round trips: 5, of them 3 to attach"), std::string::npos);
  EXPECT_NE(text.find("by calls: 1: 1, 4-7: 1\n"), std::string::npos);
  EXPECT_NE(text.find("230 bytes, sent in 130\n"), std::string::npos);
  // In descending order.
  const std::size_t fences = text.find("cuCtxSynchronize waited 1.500 ms (2 round trips");
  const std::size_t room = text.find("0.250 ms for room in the log (1 times)");
  ASSERT_NE(fences, std::string::npos);
  ASSERT_NE(room, std::string::npos);
  EXPECT_LT(fences, room);
}

TEST(StatsReport, ReportsAttachRoundTripsWithoutCalls) {
  const auto json = nlohmann::json::parse(statistics_json({"x", 1, "h:1", 2}, {}));
  EXPECT_EQ(json["blocking_round_trips"], 2);
  EXPECT_TRUE(json["functions"].empty());
}

}  // namespace
}  // namespace gpurun::client
