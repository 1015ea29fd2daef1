// Worker recorder: a recording stays within its bounds, and goes to the client in pieces that fit
// together although more is recorded meanwhile.
#include "server/worker/stats/recorder.h"

#include <gtest/gtest.h>

#include <string>

namespace gpurun::server {
namespace {

using protocol::RecordedEvent;

RecordedEvent issue(std::uint64_t sequence) {
  RecordedEvent event;
  event.kind = protocol::Recorded::kIssue;
  event.sequence = sequence;
  return event;
}

driver_abi::KernelRun run_of(std::uint64_t number, const char* name) {
  driver_abi::KernelRun run{};
  run.number = number;
  run.name = name;
  run.begin_ns = 5;
  run.end_ns = 4;  // A driver's mistake.
  return run;
}

protocol::Recording in_pieces(Recorder& recorder, std::size_t piece_bytes) {
  Bytes all;
  std::uint64_t size = 1;
  while (all.size() < size) {
    const Bytes piece = recorder.piece(all.size(), piece_bytes, &size);
    EXPECT_LE(piece.size(), piece_bytes);
    if (piece.empty()) break;
    all.insert(all.end(), piece.begin(), piece.end());
    recorder.add(issue(999'999));  // Calls continue meanwhile.
  }
  const auto parsed = protocol::parse_recording(all);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.ok() ? *parsed : protocol::Recording();
}

TEST(WorkerRecorder, PiecesFitTogether) {
  Recorder recorder;
  for (std::uint64_t i = 1; i <= 100; ++i) recorder.add(issue(i));
  for (const char* name : {"one", "two", "one"}) recorder.add_kernel(run_of(50, name));
  const protocol::Recording recording = in_pieces(recorder, 1000);
  ASSERT_EQ(recording.events.size(), 103u);
  EXPECT_EQ(recording.events[99].sequence, 100u);
  EXPECT_EQ(recording.names.size(), 2u);
  EXPECT_EQ(recording.names.at(recording.events[100].subject), "one");
  EXPECT_EQ(recording.names.at(recording.events[101].subject), "two");
  EXPECT_EQ(recording.events[102].subject, recording.events[100].subject);
}

TEST(WorkerRecorder, KeepsNewestEvents) {
  Recorder recorder;
  for (std::uint64_t i = 0; i < protocol::kRecordedEventsMax + 7; ++i) recorder.add(issue(i));
  const protocol::Recording recording = in_pieces(recorder, std::size_t{1} << 20);
  ASSERT_EQ(recording.events.size(), protocol::kRecordedEventsMax);
  EXPECT_EQ(recording.dropped, 7u);
  EXPECT_EQ(recording.events.front().sequence, 7u);
  EXPECT_EQ(recording.events.back().sequence, protocol::kRecordedEventsMax + 6);
}

TEST(WorkerRecorder, PieceBeyondEndIsEmpty) {
  Recorder recorder;
  std::uint64_t size = 0;
  EXPECT_FALSE(recorder.piece(0, 1000, &size).empty());
  EXPECT_TRUE(recorder.piece(size, 1000, &size).empty());
  EXPECT_TRUE(recorder.piece(~std::uint64_t{0}, 1000, &size).empty());
}

TEST(WorkerRecorder, LimitsNumberOfNames) {
  Recorder recorder;
  for (std::uint64_t i = 0; i < protocol::kRecordedNamesMax + 3; ++i) {
    recorder.add_kernel(run_of(1, ("k" + std::to_string(i)).c_str()));
  }
  const protocol::Recording recording = in_pieces(recorder, std::size_t{1} << 20);
  EXPECT_EQ(recording.names.size(), protocol::kRecordedNamesMax);
}

}  // namespace
}  // namespace gpurun::server
