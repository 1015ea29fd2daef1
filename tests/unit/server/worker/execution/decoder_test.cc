// Decoder: the log channel of the worker. Each record is passed on once and in order, whatever the
// client repeats. Gaps, foreign frames and false acknowledgements end the session. Replies are
// numbered, kept and acknowledged.
#include "server/worker/execution/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lz4.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include "transport/loopback/connection.h"

namespace gpurun::server {
namespace {

using namespace std::chrono_literals;
using protocol::Frame;
using protocol::FrameHeader;
using protocol::FrameKind;
using protocol::RecordHeader;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kWait = 5s;

class Recorder final : public CallSink {
 public:
  Status accept(std::span<const protocol::RecordView> calls) override {
    for (const auto& call : calls) {
      sequences.push_back(call.header.sequence);
      payload_bytes += call.payload.size();
    }
    if (answers != nullptr) EXPECT_TRUE(answers->post(protocol::ReplyHeader(), {}).ok());
    return verdict;
  }
  void idle() override { ++slept; }
  std::atomic<int> slept{0};
  std::vector<std::uint64_t> sequences;
  std::size_t payload_bytes = 0;
  Status verdict;
  Outbox* answers = nullptr;  // Answers records that arrive together.
};

Bytes record(std::uint64_t sequence, std::size_t payload_bytes = 0) {
  RecordHeader header;
  header.bytes = static_cast<std::uint32_t>(protocol::record_bytes(payload_bytes));
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  header.sequence = sequence;
  Bytes bytes(header.bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

Bytes records(std::uint64_t first, std::uint64_t last, std::size_t payload_bytes = 0) {
  Bytes bytes;
  for (std::uint64_t i = first; i <= last; ++i) {
    const Bytes one = record(i, payload_bytes);
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  return bytes;
}

// The payload of a packed frame that claims `said` bytes of records.
Bytes packed(const Bytes& records, std::size_t said) {
  const protocol::PackedRecordsHead head{static_cast<std::uint32_t>(said)};
  Bytes payload(sizeof head +
                static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(records.size()))));
  std::memcpy(payload.data(), &head, sizeof head);
  const int bytes = LZ4_compress_default(reinterpret_cast<const char*>(records.data()),
                                         reinterpret_cast<char*>(payload.data() + sizeof head),
                                         static_cast<int>(records.size()),
                                         static_cast<int>(payload.size() - sizeof head));
  payload.resize(sizeof head + static_cast<std::size_t>(bytes));
  return payload;
}

class DecoderTest : public ::testing::Test {
 protected:
  void send(FrameKind kind, std::uint64_t sequence = 0, const Bytes& payload = {},
            std::uint64_t acknowledged = 0) {
    FrameHeader header;
    header.kind = kind;
    header.sequence = sequence;
    header.acknowledged = acknowledged;
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    const ByteView parts[] = {bytes_of(header), payload};
    ASSERT_TRUE(pair_.first->send(parts, Deadline::in(kWait)).ok());
  }
  // The worker's next frame, as the client sees it.
  Frame receive() {
    Frame frame;
    for (;;) {
      const auto whole = reader_.next(&frame);
      EXPECT_TRUE(whole.ok());
      if (!whole.ok() || *whole) return frame;
      const auto got = pair_.first->receive(reader_.space(), reader_.wanted(), Deadline::in(kWait));
      EXPECT_TRUE(got.ok()) << got.status().to_string();
      if (!got.ok()) return {};
      reader_.filled(*got);
    }
  }

  transport::loopback::Pair pair_ = transport::loopback::connect_pair();
  Outbox outbox_{*pair_.second, kWait};
  Recorder sink_;
  Decoder decoder_{*pair_.second, outbox_, sink_, kWait};
  protocol::FrameReader reader_;
};

TEST_F(DecoderTest, PassesEachRecordOnceDespiteReplays) {
  send(FrameKind::kRecords, 1, records(1, 3, 20));
  send(FrameKind::kHeartbeat);
  send(FrameKind::kRecords, 2, records(2, 4));  // A replay after a cut.
  send(FrameKind::kRecords, 1, records(1, 2));
  send(FrameKind::kRecords, 5, records(5, 5));
  send(FrameKind::kGoodbye);
  EXPECT_TRUE(decoder_.run().ok());
  EXPECT_THAT(sink_.sequences, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(sink_.payload_bytes, 60U);
  EXPECT_EQ(decoder_.taken_through(), 5U);
}

TEST_F(DecoderTest, NotifiesSinkWhenIdle) {
  send(FrameKind::kRecords, 1, records(1, 1));
  auto run = std::async(std::launch::async, [&] { return decoder_.run(); });
  const auto until = std::chrono::steady_clock::now() + kWait;
  while (sink_.slept == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_NE(sink_.slept, 0);
  send(FrameKind::kGoodbye);
  EXPECT_TRUE(run.get().ok());
}

TEST_F(DecoderTest, PassesLargeFramesWhole) {
  send(FrameKind::kRecords, 1, records(1, 1000));
  send(FrameKind::kGoodbye);
  EXPECT_TRUE(decoder_.run().ok());
  ASSERT_EQ(sink_.sequences.size(), 1000U);
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_EQ(sink_.sequences[i], i + 1);
}

// A block of literals and copies of them. packed_records_test covers malformed ones.
TEST_F(DecoderTest, PassesPackedRecordsLikePlainRecords) {
  send(FrameKind::kRecords, 1, records(1, 3, 20));
  const Bytes some = records(4, 100, 20);
  send(FrameKind::kPackedRecords, 4, packed(some, some.size()));
  send(FrameKind::kPackedRecords, 4, packed(some, some.size()));  // A replay after a cut.
  send(FrameKind::kRecords, 101, records(101, 102, 20));
  send(FrameKind::kGoodbye);
  EXPECT_TRUE(decoder_.run().ok());
  ASSERT_EQ(sink_.sequences.size(), 102U);
  for (std::uint64_t i = 0; i < 102; ++i) ASSERT_EQ(sink_.sequences[i], i + 1);
  EXPECT_EQ(sink_.payload_bytes, 102U * 20);
}

TEST_F(DecoderTest, InvalidPackedRecordsEndSession) {
  const Bytes some = records(1, 100, 20);
  send(FrameKind::kPackedRecords, 2, packed(some, some.size()));  // With other numbers.
  EXPECT_EQ(decoder_.run().code(), Code::kProtocol);
  send(FrameKind::kPackedRecords, 1, packed(some, some.size() + 8));
  const Status status = decoder_.run();
  EXPECT_EQ(status.code(), Code::kProtocol);
  EXPECT_THAT(status.message(), HasSubstr("packed records"));
  EXPECT_TRUE(sink_.sequences.empty());
}

TEST_F(DecoderTest, SequenceGapEndsSession) {
  send(FrameKind::kRecords, 1, records(1, 2));
  send(FrameKind::kRecords, 4, records(4, 4));
  const Status status = decoder_.run();
  EXPECT_EQ(status.code(), Code::kProtocol);
  EXPECT_THAT(status.message(), HasSubstr("record 4 came where 3 was due"));
  EXPECT_THAT(sink_.sequences, ElementsAre(1, 2));
}

TEST_F(DecoderTest, MismatchedRecordNumberEndsSession) {
  Bytes bytes = record(1);
  const Bytes wrong = record(3);
  bytes.insert(bytes.end(), wrong.begin(), wrong.end());
  send(FrameKind::kRecords, 1, bytes);
  EXPECT_EQ(decoder_.run().code(), Code::kProtocol);
}

TEST_F(DecoderTest, RecordZeroAndTruncatedRecordEndSession) {
  send(FrameKind::kRecords, 0, record(0));
  EXPECT_EQ(decoder_.run().code(), Code::kProtocol);
  Bytes torn = record(1, 64);
  torn.resize(torn.size() - 8);
  send(FrameKind::kRecords, 1, torn);
  EXPECT_EQ(decoder_.run().code(), Code::kProtocol);
  EXPECT_TRUE(sink_.sequences.empty());
}

TEST_F(DecoderTest, FrameOfOtherDirectionEndsSession) {
  send(FrameKind::kReplies, 1);
  EXPECT_EQ(decoder_.run().code(), Code::kProtocol);
}

TEST_F(DecoderTest, AcknowledgingUnsentReplyEndsSession) {
  send(FrameKind::kHeartbeat, 0, {}, 1);
  EXPECT_EQ(decoder_.run().code(), Code::kProtocol);
}

TEST_F(DecoderTest, SinkRefusalEndsSession) {
  sink_.verdict = Status(Code::kProtocol, "no such thing");
  send(FrameKind::kRecords, 1, records(1, 1));
  EXPECT_EQ(decoder_.run().message(), "no such thing");
}

TEST_F(DecoderTest, DetectsDeadClient) {
  pair_.first->shut_down();
  EXPECT_EQ(decoder_.run().code(), Code::kPeerGone);
}

TEST_F(DecoderTest, SilentClientTimesOut) {
  Decoder impatient(*pair_.second, outbox_, sink_, 10ms);
  const Status status = impatient.run();
  EXPECT_EQ(status.code(), Code::kPeerGone);
  EXPECT_THAT(status.message(), HasSubstr("10 ms"));
}

TEST_F(DecoderTest, AcknowledgesUnpromptedAfter64KiB) {
  const std::uint64_t count = kAcknowledgeBytes / protocol::record_bytes(1000) + 1;
  send(FrameKind::kRecords, 1, records(1, 3));  // Too little to be acknowledged alone.
  send(FrameKind::kRecords, 4, records(4, count + 3, 1000));
  send(FrameKind::kGoodbye);
  ASSERT_TRUE(decoder_.run().ok());
  const Frame frame = receive();
  EXPECT_EQ(frame.header.kind, FrameKind::kAcknowledge);
  EXPECT_EQ(frame.header.acknowledged, count + 3);
}

// Otherwise a large copy with a waiting caller would wake the client twice.
TEST_F(DecoderTest, ReplyAcknowledgesItsRecord) {
  sink_.answers = &outbox_;
  send(FrameKind::kRecords, 1, records(1, 1, 2 * kAcknowledgeBytes));
  send(FrameKind::kGoodbye);
  ASSERT_TRUE(decoder_.run().ok());
  Frame frame = receive();
  EXPECT_EQ(frame.header.kind, FrameKind::kReplies);
  EXPECT_EQ(frame.header.acknowledged, 1U);
  outbox_.goodbye("over");
  frame = receive();
  EXPECT_EQ(frame.header.kind, FrameKind::kGoodbye) << "nothing stands between";
}

TEST_F(DecoderTest, RepliesAreNumberedAndCarryAcknowledgement) {
  outbox_.taken(9, 100);
  protocol::ReplyHeader header;
  header.call_sequence = 7;
  header.result = 700;
  const std::uint32_t value = 0xabcdef;
  ASSERT_TRUE(outbox_.post(header, bytes_of(value)).ok());
  ASSERT_TRUE(outbox_.post(header, {}).ok());
  const Frame frame = receive();
  EXPECT_EQ(frame.header.kind, FrameKind::kReplies);
  EXPECT_EQ(frame.header.sequence, 1U);
  EXPECT_EQ(frame.header.acknowledged, 9U);
  const auto reply = protocol::parse_reply(frame.payload);
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(reply->header.call_sequence, 7U);
  EXPECT_EQ(reply->header.result, 700);
  EXPECT_EQ(reply->header.sequence, 1U);
  ASSERT_EQ(reply->payload.size(), sizeof value);
  EXPECT_EQ(std::memcmp(reply->payload.data(), &value, sizeof value), 0);
  EXPECT_EQ(receive().header.sequence, 2U);
  EXPECT_TRUE(outbox_.acknowledged(2).ok());
  EXPECT_TRUE(outbox_.acknowledged(1).ok());  // An old acknowledgement.
  EXPECT_EQ(outbox_.acknowledged(3).code(), Code::kProtocol);
}

TEST_F(DecoderTest, SendsHeartbeatOnlyWithoutOtherTraffic) {
  ASSERT_TRUE(outbox_.post({}, {}).ok());
  outbox_.heartbeat();
  outbox_.heartbeat();
  outbox_.goodbye("enough");
  EXPECT_EQ(receive().header.kind, FrameKind::kReplies);
  EXPECT_EQ(receive().header.kind, FrameKind::kHeartbeat);
  const Frame goodbye = receive();
  EXPECT_EQ(goodbye.header.kind, FrameKind::kGoodbye);
  EXPECT_EQ(goodbye.payload.size(), 6U);
}

// A client thus notices that a call or its reply was lost.
TEST_F(DecoderTest, HeartbeatReportsNumberOfOwedReplies) {
  Bytes calls = records(1, 3);
  auto* const first = reinterpret_cast<protocol::RecordHeader*>(calls.data());
  first->flags |= protocol::kFlagFence;
  send(FrameKind::kRecords, 1, calls);
  send(FrameKind::kGoodbye);
  ASSERT_TRUE(decoder_.run().ok());
  outbox_.heartbeat();
  Frame heartbeat = receive();
  EXPECT_EQ(heartbeat.header.kind, FrameKind::kHeartbeat);
  EXPECT_EQ(heartbeat.header.acknowledged, 3U);
  EXPECT_EQ(heartbeat.header.sequence, 2U);
  protocol::ReplyHeader other;
  other.kind = protocol::ReplyKind::kCallError;
  ASSERT_TRUE(outbox_.post(other, {}).ok());
  ASSERT_TRUE(outbox_.post({}, {}).ok());
  EXPECT_EQ(receive().header.kind, FrameKind::kReplies);
  EXPECT_EQ(receive().header.kind, FrameKind::kReplies);
  outbox_.heartbeat();
  outbox_.heartbeat();
  heartbeat = receive();
  EXPECT_EQ(heartbeat.header.kind, FrameKind::kHeartbeat);
  EXPECT_EQ(heartbeat.header.sequence, 1U);
}

TEST_F(DecoderTest, ClientThatAcknowledgesNothingIsDisconnected) {
  const Bytes payload(protocol::kReplyPayloadBytesMax);
  std::thread reader([this] {
    Bytes sink(1 << 20);
    while (pair_.first->receive(sink, 1, Deadline::in(kWait)).ok()) {
    }
  });
  Status status;
  std::size_t count = 0;
  for (; status.ok() && count < 1000; ++count) status = outbox_.post({}, payload);
  reader.join();
  EXPECT_EQ(status.code(), Code::kProtocol);
  EXPECT_EQ(count - 1, kOutboxBytesMax / protocol::kReplyBytesMax);
  EXPECT_EQ(outbox_.failure().code(), Code::kProtocol);
}

TEST_F(DecoderTest, ClientThatReadsNothingIsDisconnected) {
  Outbox impatient(*pair_.second, 10ms);
  const Bytes payload(protocol::kReplyPayloadBytesMax);
  Status status;
  for (int i = 0; status.ok() && i < 4; ++i) status = impatient.post({}, payload);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(decoder_.run().code(), Code::kPeerGone);
  const Bytes large(protocol::kReplyPayloadBytesMax + 1);
  EXPECT_EQ(outbox_.post({}, large).code(), Code::kTooLarge);
}

TEST_F(DecoderTest, ThreadsMayPostConcurrently) {
  constexpr int kThreads = 4;
  constexpr int kItems = 500;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([this] {
      for (int j = 0; j < kItems; ++j) (void)outbox_.post({}, {});
    });
  }
  std::uint64_t last = 0;
  while (last < kThreads * kItems) {
    const Frame frame = receive();
    ASSERT_EQ(frame.header.sequence, last + 1);
    ASSERT_EQ(frame.payload.size() % sizeof(protocol::ReplyHeader), 0U);
    last += frame.payload.size() / sizeof(protocol::ReplyHeader);
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace gpurun::server
