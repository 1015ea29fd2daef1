// Timeline: valid JSON whatever names contain. A launch's call, issue and kernel have one number
// and one flow. Clocks of two machines are aligned, and rows do not overlap. TraceFiles that are
// not traces are refused by name.
#include "tools/gpuctl/timeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "driver_abi/row.h"
#include "protocol/log/record.h"
#include "tools/gpuctl/trace.h"

namespace gpurun::tools {
namespace {

using nlohmann::json;
using protocol::Recorded;
using protocol::RecordedEvent;

constexpr std::uint64_t kMs = 1'000'000;
// How far the worker's clock is ahead.
constexpr std::uint64_t kAhead = 5'000 * kMs;

RecordedEvent event(Recorded kind, std::uint64_t sequence, std::uint64_t begin, std::uint64_t end) {
  RecordedEvent result;
  result.kind = kind;
  result.opcode = driver_abi::find_row("cuLaunchKernel")->opcode;
  result.sequence = sequence;
  result.begin_ns = begin;
  result.end_ns = end;
  return result;
}

RecordedEvent issue(std::uint64_t sequence, std::uint64_t begin, std::uint64_t end) {
  RecordedEvent result = event(Recorded::kIssue, sequence, kAhead + begin, kAhead + end);
  result.subject = static_cast<std::uint64_t>(protocol::Order::kStream);
  result.stream = 0x5D00;
  result.value = kAhead + begin - kMs / 10;
  return result;
}

RecordedEvent kernel(std::uint64_t sequence, std::uint64_t begin, std::uint64_t end) {
  RecordedEvent result = event(Recorded::kKernel, sequence, kAhead + begin, kAhead + end);
  result.stream = 3;
  result.subject = 9;
  return result;
}

// One launch, call 7, and another one that the worker never got, call 8.
Traced one_launch(const std::string& kernel_name = "_Z3addPf") {
  Traced traced;
  traced.file.program = "train";
  traced.file.process = 17;
  traced.file.server = "gpu1:4790";
  traced.file.clocks = {{10 * kMs, kAhead + 10 * kMs, 8000}, {90 * kMs, kAhead + 90 * kMs, 2000}};
  for (const std::uint64_t sequence : {7, 8}) {
    const std::uint64_t begin = (sequence + 13) * kMs;  // 20 and 21.
    RecordedEvent append = event(Recorded::kAppend, sequence, begin + 200, begin + 200);
    append.form = static_cast<std::uint8_t>(protocol::Form::kLaunch);
    append.subject = 55;
    traced.client.events.push_back(append);
    traced.client.events.push_back(event(Recorded::kEntry, 0, begin, begin + 400));
  }
  traced.client.names[55] = kernel_name;
  traced.worker.events = {issue(7, 22 * kMs, 23 * kMs), kernel(7, 24 * kMs, 26 * kMs)};
  traced.worker.names[9] = kernel_name;
  return traced;
}

json timeline(const std::vector<Traced>& processes) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* file = open_memstream(&text, &size);
  EXPECT_TRUE(write_timeline(processes, file).ok());
  std::fclose(file);
  json parsed = json::parse(text, text + size);
  free(text);
  return parsed;
}

std::vector<json> slices(const json& all, const std::string& category) {
  std::vector<json> found;
  for (const json& each : all["traceEvents"]) {
    if (each["ph"] == "X" && each["cat"] == category) found.push_back(each);
  }
  return found;
}

std::vector<json> flows(const json& all) {
  std::vector<json> found;
  for (const json& each : all["traceEvents"]) {
    if (each["ph"] == "s" || each["ph"] == "t" || each["ph"] == "f") found.push_back(each);
  }
  return found;
}

TEST(Timeline, LaunchHasOneNumberFromCallToKernel) {
  const json all = timeline({one_launch()});
  const auto calls = slices(all, "call");
  const auto issues = slices(all, "issue");
  const auto kernels = slices(all, "kernel");
  ASSERT_EQ(calls.size(), 2u);
  ASSERT_EQ(issues.size(), 1u);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(calls[0]["name"], "cuLaunchKernel");
  EXPECT_EQ(calls[0]["args"]["call"], 7);
  EXPECT_EQ(calls[0]["args"]["kernel"], "_Z3addPf");
  EXPECT_EQ(issues[0]["args"]["call"], 7);
  EXPECT_DOUBLE_EQ(issues[0]["args"]["queued_us"].get<double>(), 100.0);
  EXPECT_EQ(kernels[0]["name"], "_Z3addPf");
  EXPECT_EQ(kernels[0]["args"]["call"], 7);
  // The flow begins with the call, passes the issue, and ends with the kernel. Call 8 has no flow.
  const auto joined = flows(all);
  ASSERT_EQ(joined.size(), 3u);
  std::string phases;
  for (const json& each : joined) {
    phases += each["ph"].get<std::string>();
    EXPECT_EQ(each["id"], joined[0]["id"]);
  }
  EXPECT_EQ(phases, "stf");
  EXPECT_EQ(joined[2]["ts"], kernels[0]["ts"]);
}

TEST(Timeline, TimesUseClockOfProgramMachine) {
  const json all = timeline({one_launch()});
  EXPECT_DOUBLE_EQ(slices(all, "call")[0]["ts"].get<double>(), 0.0);  // The earliest time is zero.
  EXPECT_DOUBLE_EQ(slices(all, "issue")[0]["ts"].get<double>(), 2000.0);
  EXPECT_DOUBLE_EQ(slices(all, "kernel")[0]["ts"].get<double>(), 4000.0);
  EXPECT_DOUBLE_EQ(slices(all, "kernel")[0]["dur"].get<double>(), 2000.0);
  const json facts = all["otherData"]["processes"][0];
  EXPECT_DOUBLE_EQ(facts["clock_error_us"].get<double>(), 4.0);  // Half the longer round trip.
}

TEST(Timeline, FollowsClockDrift) {
  // The worker's clock gains one thousandth.
  const ClockLine line({{0, 1000, 10}, {1'000'000, 1'002'000, 10}});
  EXPECT_TRUE(line.known());
  EXPECT_EQ(line.error_ns(), 5u);
  EXPECT_NEAR(static_cast<double>(line.client_time(1000)), 0, 2);
  EXPECT_NEAR(static_cast<double>(line.client_time(501'500)), 500'000, 2);
  EXPECT_NEAR(static_cast<double>(line.client_time(1'002'000)), 1'000'000, 2);
}

TEST(Timeline, PrefersClockSamplesWithShortRoundTrip) {
  const ClockLine line({{0, 700, 900}, {100, 200, 10}, {200, 900, 800}, {300, 400, 20}});
  EXPECT_EQ(line.error_ns(), 10u);
  EXPECT_EQ(line.client_time(300), 200);
}

TEST(Timeline, AcceptsAnyCharactersInNames) {
  const std::string name = "k<\"\\\n\x01\xff>";
  Traced traced = one_launch(name);
  traced.file.program = name;
  const json all = timeline({traced});
  EXPECT_EQ(slices(all, "kernel")[0]["name"], "k<\"\\\n\x01\u00ff>");
  EXPECT_EQ(all["otherData"]["processes"][0]["program"], "k<\"\\\n\x01\u00ff>");
}

TEST(Timeline, SlicesInRowDoNotOverlap) {
  Traced traced = one_launch();
  // Two calls on helper threads at the same time, and a third behind the first.
  for (const auto& [sequence, begin, end] :
       {std::tuple{10, 30, 40}, std::tuple{11, 35, 50}, std::tuple{12, 40, 45}}) {
    RecordedEvent each =
        issue(static_cast<std::uint64_t>(sequence), static_cast<std::uint64_t>(begin) * kMs,
              static_cast<std::uint64_t>(end) * kMs);
    each.subject = static_cast<std::uint64_t>(protocol::Order::kOrderedHost);
    traced.worker.events.push_back(each);
  }
  const json all = timeline({traced});
  std::map<std::uint64_t, double> ends;  // By row.
  std::map<int, std::uint64_t> row_of;
  for (const json& each : slices(all, "issue")) {
    const auto row = each["tid"].get<std::uint64_t>();
    EXPECT_GE(each["ts"].get<double>(), ends[row]);
    ends[row] = each["ts"].get<double>() + each["dur"].get<double>();
    row_of[each["args"]["call"].get<int>()] = row;
  }
  EXPECT_EQ(row_of[10], row_of[12]);
  EXPECT_NE(row_of[10], row_of[11]);
}

TEST(Timeline, ExtremeTimesGiveValidNumbers) {
  Traced traced = one_launch();
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  traced.worker.events = {event(Recorded::kIssue, 7, 0, kMost), kernel(7, kMost - kAhead, kMost)};
  traced.worker.events[1].end_ns = kMost;
  traced.file.clocks = {{0, kMost, kMost}, {kMost, 0, 0}};
  const json all = timeline({traced});
  EXPECT_EQ(slices(all, "issue").size(), 1u);
  EXPECT_GE(slices(all, "kernel")[0]["dur"].get<double>(), 0.0);
}

TEST(Timeline, ReportsMissingData) {
  Traced traced = one_launch();
  traced.worker = {};
  traced.file.no_worker = "the worker is gone";
  traced.file.clocks.clear();
  traced.client.dropped = 12;
  const json facts = timeline({traced})["otherData"]["processes"][0];
  EXPECT_EQ(facts["dropped_of_the_program"], 12);
  EXPECT_EQ(facts["worker"], "the worker is gone");
  EXPECT_TRUE(facts["clock_error_us"].is_null());
  EXPECT_NE(facts["kernels"].get<std::string>().find("none"), std::string::npos);
}

TEST(Timeline, ProcessesHaveSeparateIds) {
  const json all = timeline({one_launch(), one_launch()});
  std::set<std::uint64_t> ids;
  for (const json& each : flows(all)) ids.insert(each["id"].get<std::uint64_t>());
  EXPECT_EQ(ids.size(), 2u);
  std::set<int> places;
  for (const json& each : slices(all, "kernel")) places.insert(each["pid"].get<int>());
  EXPECT_EQ(places.size(), 2u);
}

// Perfetto refuses a flow with an id that is not a number, keeps 32 bits of a row's number, and
// takes a row with its process's number for the main thread.
TEST(Timeline, RowAndFlowIdsSuitViewers) {
  Traced traced = one_launch();
  RecordedEvent batch = event(Recorded::kBatch, 7, 22 * kMs, 22 * kMs);
  batch.subject = 8;
  traced.client.events.push_back(batch);
  const json all = timeline({traced, traced, one_launch()});
  std::set<std::uint64_t> processes;
  std::map<std::uint64_t, std::string> names;
  for (const json& each : all["traceEvents"]) {
    processes.insert(each["pid"].get<std::uint64_t>());
    if (each["ph"] != "M" || each["name"] != "thread_name") continue;
    const auto row = each["tid"].get<std::uint64_t>();
    EXPECT_LT(row, std::uint64_t{1} << 32);
    EXPECT_TRUE(names.emplace(row, each["args"]["name"].get<std::string>()).second) << row;
  }
  EXPECT_EQ(processes.size(), 9u);
  EXPECT_EQ(names.size(),
            11u);  // A thread, a stream and a device of each, and two rows of batches.
  for (const json& each : all["traceEvents"]) {
    if (!each.contains("tid")) continue;
    const auto row = each["tid"].get<std::uint64_t>();
    EXPECT_EQ(names.count(row), 1u) << each;
    EXPECT_EQ(processes.count(row), 0u) << each;
  }
  for (const json& each : flows(all)) EXPECT_TRUE(each["id"].is_number_unsigned()) << each;
}

class TraceFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/gpurun-trace-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, ByteView bytes) {
    const std::string path = folder_ + "/" + name;
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  static Bytes whole() {
    Traced traced = one_launch();
    traced.file.client = protocol::encode(traced.client);
    traced.file.worker = protocol::encode(traced.worker);
    return protocol::encode(traced.file);
  }
  std::string folder_;
};

TEST_F(TraceFiles, FolderYieldsCompleteTracesOnly) {
  write("b.2.gpurun-trace", whole());
  write("a.1.gpurun-trace", whole());
  write("notes.txt", byte_view("x", 1));
  write("c.3.gpurun-trace.part", byte_view("x", 1));  // Its process was killed during the write.
  const auto traces = read_traces({folder_});
  ASSERT_TRUE(traces.ok()) << traces.status().to_string();
  ASSERT_EQ(traces->size(), 2u);
  EXPECT_EQ((*traces)[0].file.program, "train");
  EXPECT_EQ((*traces)[0].file.clocks.size(), 2u);
  EXPECT_EQ((*traces)[0].client.events.size(), 4u);
  EXPECT_EQ((*traces)[0].worker.names.at(9), "_Z3addPf");
}

TEST_F(TraceFiles, ErrorNamesInvalidFile) {
  const Bytes bytes = whole();
  EXPECT_NE(read_traces({folder_}).status().message().find("no trace is in it"), std::string::npos);
  const std::string missing = folder_ + "/missing";
  EXPECT_EQ(read_traces({missing}).status().code(), Code::kUnavailable);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{8}, bytes.size() / 2, bytes.size() - 1}) {
    const std::string path = write("cut.gpurun-trace", ByteView(bytes).first(size));
    const auto traces = read_traces({path});
    EXPECT_EQ(traces.status().code(), Code::kProtocol) << size;
    EXPECT_NE(traces.status().message().find(path), std::string::npos);
  }
}

TEST_F(TraceFiles, InvalidWorkerDataDropsOnlyWorkerRows) {
  Traced traced = one_launch();
  traced.file.client = protocol::encode(traced.client);
  traced.file.worker = Bytes(100);
  const auto traces = read_traces({write("x.gpurun-trace", protocol::encode(traced.file))});
  ASSERT_TRUE(traces.ok());
  EXPECT_EQ((*traces)[0].client.events.size(), 4u);
  EXPECT_TRUE((*traces)[0].worker.events.empty());
  EXPECT_NE((*traces)[0].file.no_worker, "");
}

}  // namespace
}  // namespace gpurun::tools
