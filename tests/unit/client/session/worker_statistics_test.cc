// Worker statistics and recordings: the queries at the end of a program's run are answered, or end
// in time with a reason. The client rejects invalid answers, and stops reading an endless
// recording.
#include "client/session/worker_statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/unit/client/session/session_under_test.h"

namespace gpurun::client {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

std::future<Result<protocol::WorkerStatistics>> ask_elsewhere(Session& session) {
  return std::async(std::launch::async, [&session] { return ask_statistics(session, hours(1)); });
}

protocol::StatisticsQueryPayload question_of(const FakeWorker::Record& record) {
  protocol::StatisticsQueryPayload payload;
  EXPECT_EQ(record.payload.size(), sizeof payload);
  std::memcpy(&payload, record.payload.data(), std::min(sizeof payload, record.payload.size()));
  return payload;
}

TEST(WorkerStatistics, ReturnsCountsOfWorker) {
  FakeWorker worker;
  auto session = start(worker);
  auto asking = ask_elsewhere(*session);
  const FakeWorker::Record asked = worker.next();
  EXPECT_EQ(asked.header.opcode, protocol::kStatisticsOpcode);
  EXPECT_EQ(asked.header.form, protocol::Form::kRaw);
  EXPECT_EQ(asked.header.order, protocol::Order::kImmediate);
  protocol::WorkerStatistics counted;
  counted.rows.resize(1);
  counted.rows[0].opcode = 5;
  counted.rows[0].calls = 77;
  worker.reply(asked, 0, protocol::encode(counted));
  const auto answer = asking.get();
  ASSERT_TRUE(answer.ok()) << answer.status().to_string();
  ASSERT_EQ(answer->rows.size(), 1u);
  EXPECT_EQ(answer->rows[0].calls, 77u);
}

TEST(WorkerStatistics, RejectsMalformedAnswer) {
  FakeWorker worker;
  auto session = start(worker);
  auto asking = ask_elsewhere(*session);
  worker.reply(worker.next(), 0, text("nonsense"));
  EXPECT_EQ(asking.get().status().code(), Code::kProtocol);
}

// The server may lie, and a person reads its reasons in a terminal.
TEST(WorkerStatistics, ReasonsOfWorkerArePrintable) {
  FakeWorker worker;
  auto session = start(worker);
  auto asking =
      std::async(std::launch::async, [&session] { return ask_refusals(*session, hours(1)); });
  const FakeWorker::Record asked = worker.next();
  EXPECT_EQ(question_of(asked).what, protocol::StatisticsQuery::kRefusals);
  worker.reply(asked, 0, protocol::encode({"no\x1b[2Jmemory", "", "off"}));
  const auto answer = asking.get();
  ASSERT_TRUE(answer.ok()) << answer.status().to_string();
  EXPECT_EQ(answer->reads, "no?[2Jmemory");
  EXPECT_EQ(answer->writes, "");
  EXPECT_EQ(answer->gpu_memory, "off");
}

TEST(WorkerStatistics, OlderWorkerHasNoReasons) {
  FakeWorker worker;
  auto session = start(worker);
  auto asking =
      std::async(std::launch::async, [&session] { return ask_refusals(*session, hours(1)); });
  worker.reply(worker.next(), 1);
  EXPECT_EQ(asking.get().status().code(), Code::kUnavailable);
}

TEST(WorkerStatistics, CountsAreUnavailableWhenWorkerDoesNotCount) {
  FakeWorker worker;
  auto session = start(worker);
  auto asking = ask_elsewhere(*session);
  worker.reply(worker.next(), 801);
  EXPECT_EQ(asking.get().status().code(), Code::kUnavailable);
}

TEST(WorkerStatistics, QueryFailsWhenWorkerIsGone) {
  FakeWorker worker;
  auto session = start(worker);
  auto asking = ask_elsewhere(*session);
  worker.next();
  testing::internal::CaptureStderr();
  worker.goodbye("enough");
  EXPECT_EQ(asking.get().status().code(), Code::kPeerGone);
  testing::internal::GetCapturedStderr();
}

TEST(WorkerStatistics, QueryTimesOutWithoutAnswer) {
  FakeWorker worker;
  auto session = start(worker);
  const std::size_t lanes = Lane::live_count();
  EXPECT_EQ(ask_statistics(*session, milliseconds(1)).status().code(), Code::kDeadline);
  worker.reply(worker.next(), 0, protocol::encode(protocol::WorkerStatistics()));  // Too late.
  // The thread that made the query ends.
  while (Lane::live_count() > lanes) std::this_thread::yield();
}

// Answers all clock queries, and returns the query for the recording's first piece.
FakeWorker::Record first_piece_asked(FakeWorker& worker) {
  for (std::uint64_t clock = 1000;; ++clock) {
    const FakeWorker::Record asked = worker.next();
    const auto payload = question_of(asked);
    if (payload.what != protocol::StatisticsQuery::kClock) return asked;
    worker.reply(asked, 0, bytes_of(clock));
  }
}

Bytes piece(std::uint64_t size, std::size_t bytes) {
  const ByteView head = bytes_of(size);
  Bytes piece(head.begin(), head.end());
  piece.resize(piece.size() + bytes, std::byte{7});
  return piece;
}

std::future<Result<WorkersRecording>> ask_recording_elsewhere(Session& session) {
  return std::async(std::launch::async, [&session] { return ask_recording(session, hours(1)); });
}

TEST(WorkerStatistics, AssemblesRecordingFromPieces) {
  FakeWorker worker;
  auto session = start(worker);
  auto asking = ask_recording_elsewhere(*session);
  const FakeWorker::Record first = first_piece_asked(worker);
  EXPECT_EQ(question_of(first).what, protocol::StatisticsQuery::kRecording);
  EXPECT_EQ(question_of(first).value, 0u);
  worker.reply(first, 0, piece(5, 3));
  const FakeWorker::Record second = worker.next();
  EXPECT_EQ(question_of(second).value, 3u);
  worker.reply(second, 0, piece(5, 2));
  const auto recording = asking.get();
  ASSERT_TRUE(recording.ok()) << recording.status().to_string();
  EXPECT_EQ(recording->bytes, Bytes(5, std::byte{7}));
  ASSERT_FALSE(recording->clocks.empty());
  EXPECT_EQ(recording->clocks.front().worker_ns, 1000u);
}

TEST(WorkerStatistics, RejectsInconsistentRecordingPieces) {
  constexpr std::uint64_t kMost = std::uint64_t{16} << 20;
  const Bytes unfit[] = {piece(kMost + 1, 8), piece(~std::uint64_t{0}, 8), piece(5, 0), piece(5, 6),
                         Bytes(7)};
  for (const Bytes& answer : unfit) {
    FakeWorker worker;
    auto session = start(worker);
    auto asking = ask_recording_elsewhere(*session);
    worker.reply(first_piece_asked(worker), 0, answer);
    EXPECT_EQ(asking.get().status().code(), Code::kProtocol) << answer.size();
  }
}

TEST(WorkerStatistics, RecordingIsUnavailableWhenWorkerDoesNotRecord) {
  FakeWorker worker;
  auto session = start(worker);
  auto beginning = std::async(std::launch::async, [&session] { return begin_recording(*session); });
  const FakeWorker::Record asked = worker.next();
  EXPECT_EQ(question_of(asked).what, protocol::StatisticsQuery::kRecord);
  worker.reply(asked, 1);
  EXPECT_EQ(beginning.get().status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace gpurun::client
