// Upload waits: a wait for an upload that is under way is answered early if the program has issued
// later work, the device keeps up, and nobody could notice. The client then sends a barrier and
// does not wait for it (docs/adr/0036).
#include <gtest/gtest.h>

#include "client/early_answers/early_wait_limiter.h"
#include "tests/unit/client/session/session_under_test.h"

namespace gpurun::client {
namespace {

constexpr Handle kStream = 0x5D00'0000'0000'0401;

class UploadWaits : public ::testing::Test {
 protected:
  void SetUp() override {
    // The program has waited for an event that was never recorded. It has also had a fence, which
    // measured the round trip.
    for (const Handle event : {event_, other_}) session_->stream_of_record(event);
    auto fence = call_elsewhere(*session_, site(1));
    worker_.reply(worker_.next());
    EXPECT_EQ(fence.get().returned, 0);
  }
  CallSite in_stream(std::uint16_t opcode, Work work) {
    CallSite result = site(opcode);
    result.order = protocol::Order::kStream;
    result.stream = kStream;
    result.work = work;
    return result;
  }
  FakeWorker::Record post(const CallSite& where, ByteView payload = {}) {
    EXPECT_EQ(session_->post(*Lane::current(), where, payload), 0);
    return worker_.next();
  }
  // An upload behind another stream's work. Returns the record of its event.
  FakeWorker::Record upload(Handle event, Work what = Work::kQuiet) {
    post(in_stream(6, Work::kStreamWait));
    if (what != Work::kNone) post(in_stream(7, what));
    CallSite record = in_stream(8, Work::kRecord);
    record.form = protocol::Form::kEventRecord;
    record.subject = event;
    if (session_->event_wanted(event)) record.flags |= protocol::kFlagTell;
    const protocol::EventPayload payload;
    return post(record, bytes_of(payload));
  }
  // As cuEventSynchronize does. False: the thread would have to wait.
  bool waits_early(Handle event) {
    const Session::Recorded recorded = session_->stream_of_record(event);
    if (recorded.stream == 0) return false;
    EXPECT_EQ(recorded.stream, kStream);
    CallSite wait = in_stream(kWait, Work::kAny);
    wait.subject = event;
    int result = -1;
    const bool early =
        session_->wait_answered_early(*Lane::current(), recorded, wait, ByteView(), &result);
    if (early) EXPECT_EQ(result, 0);
    return early;
  }
  static constexpr std::uint16_t kWait = 9;

  // Independent of the test's speed.
  static SessionOptions patient() {
    SessionOptions options = quiet();
    options.ahead_slack = std::chrono::hours(1);
    return options;
  }

  FakeWorker worker_;
  std::unique_ptr<Session> session_ = start(worker_, patient());
  const Handle event_ = session_->handles().mint(HandleKind::kEvent, 0, nullptr);
  const Handle other_ = session_->handles().mint(HandleKind::kEvent, 0, nullptr);
};

TEST_F(UploadWaits, WaitForEarlierUploadSendsBarrierWithoutReply) {
  upload(event_);
  EXPECT_FALSE(waits_early(event_)) << "the last one";
  upload(other_);
  ASSERT_TRUE(waits_early(event_));
  const FakeWorker::Record record = worker_.next();
  EXPECT_EQ(record.header.opcode, kWait);
  EXPECT_EQ(record.header.order, protocol::Order::kStream);
  EXPECT_EQ(record.header.flags, protocol::kFlagBarrier);
  EXPECT_EQ(record.header.stream, kStream);
  EXPECT_EQ(record.header.subject, event_);
  EXPECT_FALSE(waits_early(other_)) << "the barrier is nothing to go on with";
}

TEST_F(UploadWaits, CompletedUploadNeedsNoEarlyWait) {
  const FakeWorker::Record record = upload(event_);
  upload(other_);
  protocol::ReplyHeader header;
  header.kind = protocol::ReplyKind::kEventDone;
  header.subject = event_;
  header.call_sequence = record.header.sequence;
  worker_.send_item(header);
  auto fence = call_elsewhere(*session_, site(1));  // It follows on the wire.
  worker_.reply(worker_.next());
  EXPECT_EQ(fence.get().returned, 0);
  EXPECT_EQ(session_->stream_of_record(event_).stream, 0U);
}

// After a join of streams a program may want to know that the other stream's work is complete.
TEST_F(UploadWaits, JoinsAndKernelsAreNotAnsweredEarly) {
  upload(event_, Work::kNone);
  upload(other_);
  EXPECT_FALSE(waits_early(event_));
  upload(event_, Work::kAny);
  upload(other_);
  EXPECT_FALSE(waits_early(event_));
}

TEST_F(UploadWaits, SharedMemoryOrEventPreventsEarlyAnswer) {
  upload(event_);
  upload(other_);
  session_->share_memory();
  EXPECT_FALSE(waits_early(event_));
  session_->unshare_memory();
  EXPECT_TRUE(waits_early(event_));
  worker_.next();
  session_->share_event(session_->handles().mint(HandleKind::kEvent, 0, nullptr));
  EXPECT_FALSE(waits_early(event_));
}

TEST_F(UploadWaits, LostContextIsReported) {
  const FakeWorker::Record record = upload(event_);
  upload(other_);
  worker_.call_error(record, kIllegalAddress, /*sticky=*/true);
  auto fence = call_elsewhere(*session_, site(1, kContext + 1));  // It follows on the wire.
  worker_.reply(worker_.next());
  EXPECT_EQ(fence.get().returned, 0);
  int result = -1;
  CallSite wait = site(kWait);
  wait.subject = event_;
  EXPECT_FALSE(waits_early(event_));
  EXPECT_TRUE(session_->event_answered(*Lane::current(), wait, true, &result));
  EXPECT_EQ(result, kIllegalAddress);
}

// Holds for a program of any speed, and if no completion is ever reported.
TEST_F(UploadWaits, LimitsEarlyAnswersWithoutCompletions) {
  std::size_t early = 0;
  for (bool more = true; more && early <= EarlyWaitLimiter::kAheadMax; early += more ? 1 : 0) {
    const Handle event = early % 2 == 0 ? event_ : other_;
    upload(event);
    upload(event == event_ ? other_ : event_);
    more = waits_early(event);
    if (more) worker_.next();
  }
  EXPECT_EQ(early, EarlyWaitLimiter::kAheadMax);
}

TEST_F(UploadWaits, UsesStreamOfLastRecord) {
  upload(event_);
  upload(other_);
  CallSite record = in_stream(8, Work::kRecord);
  record.stream = kStream + 1;
  record.form = protocol::Form::kEventRecord;
  record.subject = event_;
  record.flags = protocol::kFlagTell;
  const protocol::EventPayload payload;
  post(record, bytes_of(payload));
  EXPECT_EQ(session_->stream_of_record(event_).stream, kStream + 1);
}

}  // namespace
}  // namespace gpurun::client
