// ReceivingRole: a thread that waits for a reply reads the log, for itself and for all others, and
// never two at once. Messages are also handled when no thread waits, or behind the reply that a
// thread waited for.
#include <gtest/gtest.h>
#include <pthread.h>

#include <thread>

#include "tests/unit/client/session/session_under_test.h"

namespace gpurun::client {
namespace {

constexpr Handle kEvent = 0x5D00'0000'0000'0101;

CallSite record_site() {
  CallSite result = site(1);
  result.subject = kEvent;
  result.form = protocol::Form::kEventRecord;
  result.order = protocol::Order::kStream;
  result.flags = protocol::kFlagTell | protocol::kFlagWritesSubject;
  return result;
}

protocol::ReplyHeader event_done(const FakeWorker::Record& record) {
  protocol::ReplyHeader header;
  header.kind = protocol::ReplyKind::kEventDone;
  header.call_sequence = record.header.sequence;
  header.context = kContext;
  header.subject = kEvent;
  return header;
}

// Whichever of two waiting threads reads, each gets its own reply, in either order.
TEST(ReceivingRole, DeliversRepliesInAnyOrder) {
  FakeWorker worker;
  const auto session = start(worker);
  for (const bool first_first : {true, false}) {
    auto one = call_elsewhere(*session, site(1));
    const FakeWorker::Record first = worker.next();
    auto two = call_elsewhere(*session, site(2));
    const FakeWorker::Record second = worker.next();
    worker.reply(first_first ? first : second, 0, text("a"));
    EXPECT_EQ((first_first ? one : two).get().payload, "a");
    // The other reply comes when the first reader may have left.
    worker.reply(first_first ? second : first, 0, text("b"));
    EXPECT_EQ((first_first ? two : one).get().payload, "b");
  }
}

// Messages behind the reply in one burst are handled, although their reader has its reply.
TEST(ReceivingRole, HandlesMessagesBehindReply) {
  FakeWorker worker;
  const auto session = start(worker);
  Lane& lane = *Lane::current();
  const protocol::EventPayload payload;
  ASSERT_EQ(session->post(lane, record_site(), bytes_of(payload)), 0);
  const FakeWorker::Record record = worker.next();
  for (int i = 0; i < 20; ++i) {
    auto called = call_elsewhere(*session, site(2));
    const FakeWorker::Record call = worker.next();
    worker.reply(call);
    worker.send_item(event_done(record));
    EXPECT_EQ(called.get().returned, 0);
  }
  int result = -1;
  EXPECT_TRUE(session->event_answered(lane, record_site(), true, &result));
  EXPECT_EQ(result, 0);
}

// A thread waits for an event while another one waits for a reply that comes much later.
TEST(ReceivingRole, EventReportWakesNonReadingThread) {
  FakeWorker worker;
  const auto session = start(worker);
  const protocol::EventPayload payload;
  ASSERT_EQ(session->post(*Lane::current(), record_site(), bytes_of(payload)), 0);
  const FakeWorker::Record record = worker.next();
  auto called = call_elsewhere(*session, site(2));
  const FakeWorker::Record call = worker.next();
  auto waited = std::async(std::launch::async, [&session] {
    int result = -1;
    return session->event_answered(*Lane::current(), record_site(), true, &result) ? result : -2;
  });
  worker.send_item(event_done(record));
  EXPECT_EQ(waited.get(), 0);
  worker.reply(call, 7);
  EXPECT_EQ(called.get().result, 7);
}

TEST(ReceivingRole, SessionEndWakesAllWaiters) {
  auto worker = std::make_unique<FakeWorker>();
  const auto session = start(*worker);
  auto one = call_elsewhere(*session, site(1));
  auto two = call_elsewhere(*session, site(2));
  ASSERT_NE(worker->next().header.opcode, 0);
  ASSERT_NE(worker->next().header.opcode, 0);
  worker.reset();
  EXPECT_EQ(one.get().returned, kResultPeerGone);
  EXPECT_EQ(two.get().returned, kResultPeerGone);
  EXPECT_FALSE(session->alive());
}

// A cancelled thread loses neither the role nor half a frame, because it ends after its call.
TEST(ReceivingRole, CancelledThreadLeavesSessionUsable) {
  FakeWorker worker;
  const auto session = start(worker);
  std::atomic<int> returned{-1};
  std::thread caller([&] {
    Reply reply;
    returned = session->call(*Lane::current(), site(1), ByteView(), &reply);
    pthread_testcancel();
    returned = -2;  // Never reached.
  });
  const FakeWorker::Record record = worker.next();
  ASSERT_EQ(pthread_cancel(caller.native_handle()), 0);
  worker.reply(record);
  caller.join();
  EXPECT_EQ(returned, 0);
  auto after = call_elsewhere(*session, site(2));
  worker.reply(worker.next(), 5);
  EXPECT_EQ(after.get().result, 5);
}

}  // namespace
}  // namespace gpurun::client
