// IssueQueue: calls that CUDA orders are issued in log order, and no other call waits. Each test
// holds one call (its bytes have not arrived) and checks which calls pass it.
#include "server/worker/execution/issue_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

#include "protocol/calls/handle_form.h"

namespace gpurun::server {
namespace {

using protocol::kFlagBarrier;
using protocol::kFlagFence;
using protocol::kFlagPassesStreams;
using protocol::kFlagWritesSubject;
using protocol::Order;
using protocol::RecordHeader;
using ::testing::ElementsAre;

constexpr std::uint64_t kContextA = 100;
constexpr std::uint64_t kContextB = 200;
constexpr std::uint64_t kStreamX = 1001;
constexpr std::uint64_t kStreamY = 1002;
constexpr std::uint64_t kEvent = 2001;
constexpr IssueQueue::StreamTraits kNonBlocking{false, 0};
constexpr IssueQueue::StreamTraits kBlocking{true, 0};

class IssueQueueTest : public ::testing::Test {
 protected:
  RecordHeader header(Order order, std::uint64_t context, std::uint64_t stream = 0) {
    RecordHeader result;
    result.sequence = ++last_;
    result.order = order;
    result.context = context;
    result.stream = stream;
    return result;
  }
  void stream(std::uint64_t context, std::uint64_t stream_value,
              IssueQueue::StreamTraits traits = kNonBlocking, std::uint16_t flags = 0,
              std::uint64_t subject = 0, std::uint32_t lane = 0) {
    RecordHeader record = header(Order::kStream, context, stream_value);
    record.flags = flags;
    record.subject = subject;
    record.lane = lane;
    queue_.push(record, traits, nullptr);
  }
  void other(Order order, std::uint64_t context, std::uint32_t lane = 0, std::uint16_t flags = 0,
             std::uint64_t subject = 0) {
    RecordHeader record = header(order, context);
    record.lane = lane;
    record.flags = flags;
    record.subject = subject;
    queue_.push(record, {}, nullptr);
  }
  // Takes the next call, which must be `sequence`, so that the test can hold it.
  IssueQueue::Item* take(std::uint64_t sequence) {
    IssueQueue::Item* item = queue_.take();
    EXPECT_EQ(item == nullptr ? 0 : item->sequence(), sequence);
    return item;
  }
  // Issues all that can be issued.
  std::vector<std::uint64_t> drain() {
    std::vector<std::uint64_t> issued;
    while (IssueQueue::Item* item = queue_.take()) {
      issued.push_back(item->sequence());
      queue_.finish(item);
    }
    return issued;
  }

  void release() { queue_.retry_held(); }
  static std::uint64_t handle(driver_abi::HandleKind kind, std::uint64_t index) {
    return protocol::kHandleTag << protocol::kHandleTagShift |
           static_cast<std::uint64_t>(kind) << protocol::kHandleKindShift | index;
  }
  void TearDown() override { EXPECT_TRUE(!queue_.empty() || queue_.remembered() == 0); }

  IssueQueue queue_;
  std::uint64_t last_ = 0;
};

TEST_F(IssueQueueTest, HeldCallStallsOnlyItsStream) {
  stream(kContextA, kStreamX);
  stream(kContextA, kStreamX);
  stream(kContextA, kStreamY);
  stream(kContextB, protocol::kStreamNull);
  queue_.hold(take(1));
  EXPECT_THAT(drain(), ElementsAre(3, 4));
  release();
  EXPECT_THAT(drain(), ElementsAre(1, 2));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(IssueQueueTest, StreamIsOneQueueAcrossContexts) {
  stream(kContextA, kStreamX);
  stream(kContextB, kStreamX, {false, kContextA});
  queue_.hold(take(1));
  EXPECT_TRUE(drain().empty());
  other(Order::kContext, kContextA);  // In the stream's context, so it also comes after call 2.
  release();
  EXPECT_THAT(drain(), ElementsAre(1, 2, 3));
}

TEST_F(IssueQueueTest, LegacyAndBlockingStreamsKeepLogOrder) {
  stream(kContextA, kStreamX, kBlocking);
  stream(kContextA, protocol::kStreamNull);
  stream(kContextA, kStreamY, kBlocking);
  stream(kContextA, protocol::kStreamPerThread);
  stream(kContextA, 1003, kNonBlocking);
  stream(kContextB, protocol::kStreamLegacy);
  queue_.hold(take(1));
  EXPECT_THAT(drain(), ElementsAre(5, 6));
  release();
  EXPECT_THAT(drain(), ElementsAre(1, 2, 3, 4));
}

TEST_F(IssueQueueTest, NullAndLegacyStreamsAreTheSame) {
  stream(kContextA, protocol::kStreamLegacy);
  stream(kContextA, protocol::kStreamNull);
  queue_.hold(take(1));
  EXPECT_TRUE(drain().empty());
}

TEST_F(IssueQueueTest, BlockingStreamsDoNotWaitForEachOther) {
  stream(kContextA, kStreamX, kBlocking);
  stream(kContextA, kStreamY, kBlocking);
  queue_.hold(take(1));
  EXPECT_THAT(drain(), ElementsAre(2));
}

TEST_F(IssueQueueTest, EachLaneHasItsOwnPerThreadStream) {
  stream(kContextA, protocol::kStreamPerThread, kBlocking, 0, 0, 1);
  stream(kContextA, protocol::kStreamPerThread, kBlocking, 0, 0, 2);
  stream(kContextA, protocol::kStreamPerThread, kBlocking, 0, 0, 1);
  queue_.hold(take(1));
  EXPECT_THAT(drain(), ElementsAre(2));
}

TEST_F(IssueQueueTest, StreamWaitsForEventRecord) {
  stream(kContextA, kStreamX);
  stream(kContextA, kStreamX, kNonBlocking, kFlagWritesSubject, kEvent);
  stream(kContextA, kStreamY, kNonBlocking, 0, kEvent);
  stream(kContextA, kStreamY);
  other(Order::kLane, kContextA, 7, 0, kEvent);  // A query sees the record before it.
  other(Order::kLane, kContextA, 8, 0, 2002);    // A query of another event does not wait.
  queue_.hold(take(1));
  EXPECT_THAT(drain(), ElementsAre(6));
  release();
  EXPECT_THAT(drain(), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(IssueQueueTest, EventRecordWaitsForUsersOfPreviousRecord) {
  stream(kContextA, kStreamX);
  stream(kContextA, kStreamX, kNonBlocking, 0, kEvent);  // Waits for the event, which is not
                                                         // recorded.
  stream(kContextA, kStreamY, kNonBlocking, kFlagWritesSubject, kEvent);
  other(Order::kLane, kContextA, 3, kFlagWritesSubject, kEvent);  // Destroy.
  queue_.hold(take(1));
  EXPECT_TRUE(drain().empty());
  release();
  EXPECT_THAT(drain(), ElementsAre(1, 2, 3, 4));
}

TEST_F(IssueQueueTest, EventReadersDoNotWaitForEachOther) {
  stream(kContextA, kStreamX, kNonBlocking, 0, kEvent);
  stream(kContextA, kStreamY, kNonBlocking, 0, kEvent);
  queue_.hold(take(1));
  EXPECT_THAT(drain(), ElementsAre(2));
}

TEST_F(IssueQueueTest, LaneKeepsItsOrder) {
  other(Order::kLane, kContextA, 1);
  other(Order::kLane, kContextB, 1);
  other(Order::kLane, kContextA, 2);
  queue_.hold(take(1));
  EXPECT_THAT(drain(), ElementsAre(3));
}

// A change of an executable graph is between its launches, in every stream and context. It delays
// no other call, not even one of its lane.
TEST_F(IssueQueueTest, ChangeOfExecutableWaitsForItsLaunchesOnly) {
  const std::uint64_t executable = handle(driver_abi::HandleKind::kGraphExec, 3);
  const std::uint64_t another = handle(driver_abi::HandleKind::kGraphExec, 4);
  stream(kContextA, kStreamX);                                               // 1, held.
  stream(kContextA, kStreamX, kNonBlocking, 0, executable);                  // A launch behind it.
  other(Order::kLane, kContextA, 1, kFlagWritesSubject, executable);         // 3: its change.
  stream(kContextB, kStreamY, kNonBlocking, 0, executable);                  // The next launch.
  other(Order::kLane, kContextA, 1, kFlagWritesSubject, another);            // 5
  other(Order::kLane, kContextA, 1, 0, kEvent);                              // 6: the lane's query.
  stream(kContextA, 1003);                                                   // 7
  other(Order::kContext, kContextA, 1, kFlagPassesStreams);                  // 8: an allocation.
  other(Order::kOrderedHost, kContextB, 1, kFlagWritesSubject, executable);  // 9: its end.
  queue_.hold(take(1));
  EXPECT_THAT(drain(), ElementsAre(5, 6, 7, 8));
  release();
  EXPECT_THAT(drain(), ElementsAre(1, 2, 3, 4, 9));
}

TEST_F(IssueQueueTest, ContextCallIsOrderedWithItsContext) {
  stream(kContextA, kStreamX);
  stream(kContextB, kStreamY);
  other(Order::kContext, kContextA);
  stream(kContextA, 1003);
  other(Order::kLane, kContextA, 5);
  stream(kContextB, 1004);
  other(Order::kContext, kContextB);
  queue_.hold(take(1));
  EXPECT_THAT(drain(), ElementsAre(2, 6, 7));
  release();
  EXPECT_THAT(drain(), ElementsAre(1, 3, 4, 5));
}

TEST_F(IssueQueueTest, ContextCallWaitsOnlyForItsContextInMixedLane) {
  other(Order::kLane, kContextA, 1);
  other(Order::kLane, kContextB, 1);
  other(Order::kContext, kContextA);
  IssueQueue::Item* first = take(1);
  EXPECT_TRUE(drain().empty());
  queue_.finish(first);
  queue_.hold(take(2));
  EXPECT_THAT(drain(), ElementsAre(3));
}

TEST_F(IssueQueueTest, ContextCallOfAllContextsBlocksAllCalls) {
  stream(kContextA, kStreamX);
  other(Order::kContext, 0);
  stream(kContextB, kStreamY);
  queue_.hold(take(1));
  EXPECT_TRUE(drain().empty());
  release();
  EXPECT_THAT(drain(), ElementsAre(1, 2, 3));
}

TEST_F(IssueQueueTest, OrderedHostCallDelaysOnlyContextAndHostCalls) {
  stream(kContextA, kStreamX);
  other(Order::kOrderedHost, kContextA);
  stream(kContextA, kStreamY);
  other(Order::kOrderedHost, kContextA);
  other(Order::kContext, kContextA);
  stream(kContextA, 1003);
  queue_.hold(take(1));
  EXPECT_THAT(drain(), ElementsAre(3));
  release();
  queue_.finish(take(1));
  IssueQueue::Item* running = take(2);  // It runs on its own thread now.
  EXPECT_TRUE(drain().empty());
  queue_.finish(running);
  EXPECT_THAT(drain(), ElementsAre(4, 5, 6));
}

TEST_F(IssueQueueTest, GlobalOrderedHostCallDelaysContextCalls) {
  other(Order::kOrderedHost, 0);
  other(Order::kContext, kContextA);
  stream(kContextB, kStreamX);
  IssueQueue::Item* running = take(1);
  EXPECT_THAT(drain(), ElementsAre(3));
  queue_.finish(running);
  EXPECT_THAT(drain(), ElementsAre(2));
}

TEST_F(IssueQueueTest, BarrierHoldsEveryStreamAndContext) {
  stream(kContextA, kStreamY);
  stream(kContextA, protocol::kStreamNull, kNonBlocking, kFlagBarrier);
  stream(kContextA, kStreamX);
  stream(kContextB, kStreamY);
  other(Order::kLane, kContextB, 4);
  other(Order::kContext, kContextB, 0, kFlagBarrier);
  stream(kContextA, 1003);
  queue_.hold(take(1));  // The barrier does not wait for an earlier call that it does not order.
  queue_.hold(take(2));
  EXPECT_TRUE(drain().empty());
  release();
  queue_.finish(take(1));
  queue_.finish(take(2));
  queue_.finish(take(3));
  queue_.finish(take(4));
  queue_.finish(take(5));
  IssueQueue::Item* running = take(6);
  EXPECT_TRUE(drain().empty());
  queue_.finish(running);
  EXPECT_THAT(drain(), ElementsAre(7));
}

// A free that was answered early. Later calls wait until all earlier work of its context has been
// issued, but not until the free has returned.
TEST_F(IssueQueueTest, FreeHoldsAllCallsUntilItsMarkIsIssued) {
  stream(kContextB, kStreamY);
  stream(kContextA, kStreamX);
  other(Order::kOrderedHost, kContextA, 0, kFlagBarrier);
  EXPECT_TRUE(queue_.has_mark(3));
  stream(kContextB, 1003);
  other(Order::kLane, kContextB, 4);
  other(Order::kContext, kContextA);
  queue_.hold(take(1));  // Another context's.
  queue_.hold(take(2));
  EXPECT_TRUE(drain().empty());
  release();
  queue_.finish(take(1));
  queue_.finish(take(2));
  IssueQueue::Item* mark = take(3);
  EXPECT_TRUE(mark->is_mark());
  EXPECT_TRUE(drain().empty());
  queue_.finish(mark);
  EXPECT_FALSE(queue_.has_mark(3));
  EXPECT_TRUE(queue_.has(3));
  IssueQueue::Item* running = take(3);
  EXPECT_FALSE(running->is_mark());
  EXPECT_THAT(drain(), ElementsAre(4, 5));
  queue_.finish(running);
  EXPECT_THAT(drain(), ElementsAre(6));
}

// Its mark comes behind the mark of the free before it, not behind the end of that free.
TEST_F(IssueQueueTest, ConsecutiveFreesStallNoStream) {
  other(Order::kOrderedHost, kContextA, 0, kFlagBarrier);
  other(Order::kOrderedHost, kContextA, 0, kFlagBarrier);
  stream(kContextA, kStreamX);
  other(Order::kOrderedHost, kContextB, 0, kFlagBarrier);
  stream(kContextB, kStreamY);
  queue_.finish(take(1));
  IssueQueue::Item* first = take(1);
  IssueQueue::Item* mark = take(2);
  EXPECT_TRUE(mark->is_mark());
  queue_.finish(mark);
  EXPECT_THAT(drain(), ElementsAre(3, 4, 4, 5));
  queue_.finish(first);
  EXPECT_THAT(drain(), ElementsAre(2));
}

TEST_F(IssueQueueTest, ContextBarrierIsOrderedWithAllContexts) {
  stream(kContextA, kStreamX);
  other(Order::kContext, kContextB, 0, kFlagBarrier);
  stream(kContextA, kStreamX);
  queue_.hold(take(1));
  EXPECT_TRUE(drain().empty());
  release();
  queue_.finish(take(1));
  queue_.hold(take(2));
  EXPECT_TRUE(drain().empty());
  release();
  EXPECT_THAT(drain(), ElementsAre(2, 3));
}

// A waiting thread makes no other call meanwhile, and no other thread knows of its call.
TEST_F(IssueQueueTest, AwaitedContextCallDelaysNoOtherCall) {
  stream(kContextA, kStreamX);
  other(Order::kContext, kContextA, 0, kFlagFence);
  stream(kContextA, kStreamY);
  other(Order::kLane, kContextA, 4);
  other(Order::kContext, kContextA, 0, kFlagFence);
  queue_.hold(take(1));
  EXPECT_THAT(drain(), ElementsAre(3, 4));
  release();
  EXPECT_THAT(drain(), ElementsAre(1, 2, 5));
}

TEST_F(IssueQueueTest, StreamPassingCallWaitsOnlyForSimilarAndContextCalls) {
  stream(kContextA, kStreamX);
  other(Order::kOrderedHost, kContextA);                         // A free.
  other(Order::kOrderedHost, kContextA, 0, kFlagPassesStreams);  // A load.
  other(Order::kContext, kContextA, 0, kFlagPassesStreams);      // A name in it.
  stream(kContextA, kStreamY);                                   // Its launch.
  other(Order::kOrderedHost, kContextA);                         // An unload.
  queue_.hold(take(1));
  IssueQueue::Item* load = take(3);
  EXPECT_TRUE(drain().empty());
  queue_.finish(load);
  EXPECT_THAT(drain(), ElementsAre(4, 5));
  other(Order::kContext, kContextA);  // A setting, which may affect the stream.
  other(Order::kContext, 0, 0, kFlagPassesStreams);
  EXPECT_TRUE(drain().empty());
  release();
  EXPECT_THAT(drain(), ElementsAre(1, 2, 6, 7, 8));
}

// The contexts of a device share its memory.
TEST_F(IssueQueueTest, AllocationWaitsForFreeOfOtherContextThatPassesStreams) {
  other(Order::kOrderedHost, kContextA, 0, kFlagPassesStreams);  // A free of a pool's memory.
  other(Order::kContext, kContextB, 0, kFlagPassesStreams);      // An allocation.
  other(Order::kContext, kContextB);
  stream(kContextA, kStreamX);
  IssueQueue::Item* free = take(1);
  EXPECT_THAT(drain(), ElementsAre(4));
  queue_.finish(free);
  EXPECT_THAT(drain(), ElementsAre(2, 3));
}

TEST_F(IssueQueueTest, QueryWaitsOnlyForGivenCalls) {
  stream(kContextA, kStreamX);
  IssueQueue::Item* barrier =
      queue_.push(header(Order::kStream, kContextA, kStreamY), kNonBlocking, nullptr);
  queue_.push_behind(++last_, {barrier}, nullptr);
  stream(kContextA, kStreamX);
  queue_.hold(take(1));
  EXPECT_EQ(take(2), barrier);
  EXPECT_TRUE(drain().empty());
  queue_.finish(barrier);
  EXPECT_THAT(drain(), ElementsAre(3));
  release();
  EXPECT_THAT(drain(), ElementsAre(1, 4));
}

TEST_F(IssueQueueTest, LegacyWorkIncludesBlockingStreams) {
  EXPECT_FALSE(queue_.has_legacy_work(kContextA));
  stream(kContextA, kStreamX, kNonBlocking);
  EXPECT_FALSE(queue_.has_legacy_work(kContextA));
  stream(kContextA, kStreamY, kBlocking, kFlagWritesSubject, kEvent);
  EXPECT_TRUE(queue_.has_legacy_work(kContextA));
  EXPECT_FALSE(queue_.has_legacy_work(kContextB));
  EXPECT_TRUE(queue_.has_writer_of(kEvent));
  EXPECT_THAT(drain(), ElementsAre(1, 2));
  EXPECT_FALSE(queue_.has_legacy_work(kContextA));
  EXPECT_FALSE(queue_.has_writer_of(kEvent));
}

bool has_mark(const RecordHeader& call) {
  return call.order == Order::kOrderedHost && (call.flags & kFlagBarrier) != 0;
}

// The rules of protocol/log/record.h, stated again as a relation between two calls.
bool must_wait(const RecordHeader& later, const RecordHeader& earlier, bool blocking) {
  if ((earlier.flags & kFlagBarrier) != 0 && !has_mark(earlier)) return true;
  const auto touches = [](const RecordHeader& gate, const RecordHeader& call) {
    return gate.context == 0 || gate.context == call.context;
  };
  const bool awaited = earlier.order == Order::kContext && (earlier.flags & kFlagFence) != 0;
  if (awaited && earlier.subject == 0) return false;
  if (earlier.order == Order::kContext && touches(earlier, later)) return true;
  const bool later_gate = later.order == Order::kContext || later.order == Order::kOrderedHost;
  const auto shares_subject = [&] {
    return later.subject != 0 && later.subject == earlier.subject &&
           ((later.flags | earlier.flags) & kFlagWritesSubject) != 0;
  };
  const bool passed =
      earlier.order == Order::kOrderedHost && (earlier.flags & kFlagPassesStreams) != 0;
  if (later_gate && passed) return true;
  if (later_gate && (later.flags & kFlagPassesStreams) != 0) {
    const bool gate = earlier.order == Order::kContext;
    return shares_subject() || (gate && (touches(later, earlier) || touches(earlier, later)));
  }
  if (later_gate && touches(later, earlier)) return true;
  if (later.order == Order::kContext && (later.flags & kFlagBarrier) != 0) return true;
  if (later_gate && earlier.order == Order::kOrderedHost && touches(earlier, later)) return true;
  if (shares_subject()) return true;
  if (later.order == Order::kLane && earlier.order == Order::kLane) {
    return later.lane == earlier.lane;
  }
  if (later.order != Order::kStream || earlier.order != Order::kStream) return false;
  const auto legacy = [](const RecordHeader& call) { return call.stream < 2; };
  const auto per_thread = [](const RecordHeader& call) { return call.stream == 2; };
  if (later.stream > 2 && later.stream == earlier.stream) return true;
  if (later.context != earlier.context) return false;
  if (legacy(later) && legacy(earlier)) return true;
  if (per_thread(later) && per_thread(earlier)) return later.lane == earlier.lane;
  const auto joins = [&](const RecordHeader& call) { return per_thread(call) || blocking; };
  return (legacy(later) && joins(earlier)) || (legacy(earlier) && joins(later));
}

// Each call has two places: of its mark, and its own. Without a mark only the second one counts.
using PlaceKey = std::pair<std::uint64_t, bool>;  // Sequence number, and true for the call itself.

bool must_wait(const PlaceKey& later, const RecordHeader& later_call, const PlaceKey& earlier,
               const RecordHeader& earlier_call, bool blocking) {
  if (!earlier.second) return true;  // The mark precedes every later call, and its own call.
  if (later.second) return must_wait(later_call, earlier_call, blocking);
  const bool barrier = (earlier_call.flags & kFlagBarrier) != 0 && !has_mark(earlier_call);
  const bool of_host = earlier_call.order == Order::kOrderedHost;
  RecordHeader mark = later_call;
  mark.subject = 0;
  return barrier || (!of_host && must_wait(mark, earlier_call, blocking));
}

TEST(IssueQueueProperty, IssuesCallsAsSoonAsOrderAllows) {
  std::mt19937 random(20240607);
  const auto pick = [&random](unsigned count) { return static_cast<unsigned>(random() % count); };
  const auto key_of = [](const IssueQueue::Item* item) {
    return PlaceKey(item->sequence(), !item->is_mark());
  };
  for (int round = 0; round < 400; ++round) {
    const bool blocking = pick(2) == 0;
    IssueQueue queue;
    std::map<PlaceKey, RecordHeader> queued;
    std::set<PlaceKey> busy;
    std::vector<IssueQueue::Item*> taken;
    const auto check = [&] {
      while (IssueQueue::Item* item = queue.take()) {
        taken.push_back(item);
        busy.insert(key_of(item));
      }
      for (const auto& [place, later] : queued) {
        bool waits = false;
        for (const auto& [before, earlier] : queued) {
          if (before >= place) break;
          waits = waits || must_wait(place, later, before, earlier, blocking);
        }
        ASSERT_EQ(busy.count(place) == 0, waits)
            << "round " << round << " call " << place.first << (place.second ? "" : " (mark)");
      }
    };
    const auto finish = [&](std::size_t which) {
      queued.erase(key_of(taken[which]));
      busy.erase(key_of(taken[which]));
      queue.finish(taken[which]);
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(which));
    };
    for (std::uint64_t sequence = 1; sequence <= 40; ++sequence) {
      RecordHeader record;
      record.sequence = sequence;
      record.order = static_cast<Order>(2 + (pick(3) == 0 ? pick(4) : pick(2)));
      record.context = pick(2) == 0 ? kContextA : pick(4) == 0 ? 0 : kContextB;
      if (record.order == Order::kStream && record.context == 0) record.context = kContextA;
      record.lane = pick(3);
      record.stream = record.order == Order::kStream ? pick(6) : 0;
      // Each handle belongs to one context here. The test above covers other cases.
      if (record.stream > 2) record.context = record.stream % 2 == 0 ? kContextA : kContextB;
      if (pick(3) == 0) record.subject = kEvent + pick(2);
      if (record.subject != 0 && pick(2) == 0) record.flags |= kFlagWritesSubject;
      if (pick(12) == 0) record.flags |= kFlagBarrier;
      const bool gate = record.order == Order::kContext || record.order == Order::kOrderedHost;
      if (pick(3) == 0) record.flags |= kFlagFence;
      if (gate && (record.flags & kFlagBarrier) == 0 && pick(2) == 0) {
        record.flags |= kFlagPassesStreams;
      }
      if (has_mark(record)) queued[{sequence, false}] = record;
      queued[{sequence, true}] = record;
      queue.push(record, {blocking, 0}, nullptr);
      if (pick(2) == 0) {
        ASSERT_NO_FATAL_FAILURE(check());
      }
      while (!taken.empty() && pick(2) == 0) {
        finish(pick(static_cast<unsigned>(taken.size())));
      }
    }
    while (!queued.empty()) {
      ASSERT_NO_FATAL_FAILURE(check());
      ASSERT_FALSE(taken.empty());
      finish(taken.size() - 1);
    }
    ASSERT_TRUE(queue.empty());
    ASSERT_EQ(queue.remembered(), 0U);
  }
}

}  // namespace
}  // namespace gpurun::server
