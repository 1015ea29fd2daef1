// ContextStreams: checks whether a context is done by its streams with work, and only by those.
#include "server/worker/execution/context_streams.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpurun::server {
namespace {

constexpr std::uint64_t kContext = 7, kOther = 8;

void* stream(std::uintptr_t number) { return reinterpret_cast<void*>(number); }

class ContextStreamsTest : public ::testing::Test {
 protected:
  void given(std::uint64_t context, void* stream) {
    streams_.given(context, stream, [&] {
      ++homes_asked_;
      return context;
    });
  }
  bool destroyed(std::uint64_t home, void* stream) {
    return streams_.destroyed(home, stream, [&](void* each) { return is_done(each); });
  }
  bool done(std::uint64_t context) {
    asked_.clear();
    return streams_.done(context, [&](void* each) {
      asked_.push_back(reinterpret_cast<std::uintptr_t>(each));
      return is_done(each);
    });
  }
  bool is_done(void* each) const { return reinterpret_cast<std::uintptr_t>(each) != busy_; }

  ContextStreams streams_;
  std::vector<std::uintptr_t> asked_;
  int homes_asked_ = 0;
  std::uintptr_t busy_ = ~std::uintptr_t{0};
};
using Streams = std::vector<std::uintptr_t>;

TEST_F(ContextStreamsTest, DoneQueriesStreamsWithWorkAndNullStream) {
  given(kContext, stream(1));
  given(kContext, stream(1));
  given(kContext, stream(2));
  given(kOther, stream(3));
  EXPECT_TRUE(done(kContext));
  EXPECT_EQ(asked_, (Streams{1, 2, 0}));
  EXPECT_TRUE(done(kContext));
  EXPECT_EQ(asked_, Streams{0});
  EXPECT_TRUE(done(kOther));
  EXPECT_EQ(asked_, (Streams{3, 0}));
}

TEST_F(ContextStreamsTest, BusyStreamIsQueriedAgain) {
  given(kContext, stream(1));
  given(kContext, stream(2));
  busy_ = 2;
  EXPECT_FALSE(done(kContext));
  EXPECT_EQ(asked_, (Streams{1, 2}));
  EXPECT_FALSE(done(kContext));
  EXPECT_EQ(asked_, Streams{2});  // The other one is done.
  busy_ = 0;
  EXPECT_FALSE(done(kContext));
  EXPECT_EQ(asked_, (Streams{2, 0}));
  busy_ = 9;
  EXPECT_TRUE(done(kContext));
  EXPECT_EQ(asked_, Streams{0});
  given(kContext, stream(2));  // Given again, although it was the last one.
  EXPECT_TRUE(done(kContext));
  EXPECT_EQ(asked_, (Streams{2, 0}));
}

TEST_F(ContextStreamsTest, StreamThatIsDoneIsQueriedAgainAfterNewWork) {
  given(kContext, stream(1));
  given(kContext, stream(2));
  busy_ = 2;
  EXPECT_FALSE(done(kContext));
  given(kContext, stream(1));
  EXPECT_FALSE(done(kContext));
  EXPECT_EQ(asked_, Streams{2});
  busy_ = 1;
  EXPECT_FALSE(done(kContext));
  EXPECT_EQ(asked_, (Streams{2, 1}));
}

TEST_F(ContextStreamsTest, NullStreamWithWorkIsQueriedOnce) {
  given(kContext, stream(0));
  given(kContext, stream(1));
  EXPECT_TRUE(done(kContext));
  EXPECT_EQ(asked_, (Streams{0, 1}));
}

TEST_F(ContextStreamsTest, ManyStreamsMakeStateUnknown) {
  for (std::uintptr_t each = 1; each <= 5; ++each) given(kContext, stream(each));
  EXPECT_FALSE(done(kContext));
  EXPECT_EQ(asked_, Streams{});
  streams_.forget(kContext);
  EXPECT_TRUE(done(kContext));
}

// Repeated work in one stream, as in most programs.
TEST_F(ContextStreamsTest, RepeatedWorkInLastStreamIsNotedOnce) {
  for (int time = 0; time < 3; ++time) given(kContext, stream(1));
  EXPECT_EQ(homes_asked_, 1);
}

TEST_F(ContextStreamsTest, StreamCountsForItsOwnContext) {
  streams_.given(kContext, stream(1), [] { return kOther; });
  EXPECT_TRUE(done(kContext));
  EXPECT_EQ(asked_, Streams{0});
  busy_ = 1;
  EXPECT_FALSE(done(kOther));
}

// It must not be queried, because its handle is no longer a stream.
TEST_F(ContextStreamsTest, DestroyedStreamIsNotQueried) {
  given(kContext, stream(1));
  given(kContext, stream(2));
  destroyed(kContext, stream(1));
  EXPECT_TRUE(done(kContext));
  EXPECT_EQ(asked_, (Streams{2, 0}));
  given(kOther, stream(2));
  destroyed(kOther, stream(9));  // It never had any work.
  EXPECT_TRUE(done(kOther));
  EXPECT_EQ(asked_, (Streams{2, 0}));
}

TEST_F(ContextStreamsTest, DestroyingBusyStreamMakesStateUnknown) {
  given(kContext, stream(1));
  busy_ = 1;
  destroyed(kContext, stream(1));
  EXPECT_FALSE(done(kContext));
  EXPECT_EQ(asked_, Streams{});
}

// A burst of streams does not end the checks for ever.
TEST_F(ContextStreamsTest, FinishedWaitMakesStateKnownAgain) {
  for (std::uintptr_t each = 1; each <= 5; ++each) given(kContext, stream(each));
  EXPECT_FALSE(streams_.is_known(kContext));
  streams_.begin_wait(kContext);
  given(kContext, stream(7));
  EXPECT_FALSE(streams_.is_known(kContext));
  EXPECT_FALSE(done(kContext));
  EXPECT_EQ(asked_, Streams{});
  EXPECT_TRUE(streams_.is_known(kOther));
  streams_.begin_wait(kContext);  // By another thread of the program.
  given(kContext, stream(8));
  streams_.end_wait();
  EXPECT_FALSE(streams_.is_known(kContext));
  streams_.end_wait();
  EXPECT_TRUE(streams_.is_known(kContext));
  EXPECT_TRUE(done(kContext));
  EXPECT_EQ(asked_, (Streams{8, 0}));
}

// For a free: all streams with work, however many, also those for which a wait is under way.
TEST_F(ContextStreamsTest, FreeSeesAllStreamsWithWork) {
  using State = ContextStreams::State;
  const auto busy = [&](std::uintptr_t captures) {
    asked_.clear();
    Streams found;
    for (void* each : streams_.busy(kContext, [&](void* asked) {
           const auto number = reinterpret_cast<std::uintptr_t>(asked);
           asked_.push_back(number);
           if (number == captures) return State::kCapturing;
           return number % 2 == 0 ? State::kDone : State::kBusy;
         })) {
      found.push_back(reinterpret_cast<std::uintptr_t>(each));
    }
    return found;
  };
  EXPECT_FALSE(streams_.may_have_work(kContext));
  for (std::uintptr_t each = 1; each <= 7; ++each) given(kContext, stream(each));
  given(kOther, stream(9));
  streams_.begin_wait(kContext);
  EXPECT_EQ(busy(5), (Streams{1, 3, 7}));
  EXPECT_EQ(busy(0), (Streams{1, 3, 5, 7}));
  EXPECT_EQ(asked_, (Streams{1, 3, 5, 7}));  // A stream that is done is not queried again,
  given(kContext, stream(2));
  EXPECT_EQ(busy(0), (Streams{1, 3, 5, 7}));
  EXPECT_EQ(asked_, (Streams{1, 2, 3, 5, 7}));  // until it gets new work.
  busy_ = 3;
  EXPECT_TRUE(destroyed(kContext, stream(3)));
  EXPECT_FALSE(destroyed(kContext, stream(5)));
  EXPECT_FALSE(destroyed(kContext, stream(2)));
  EXPECT_EQ(busy(0), (Streams{1, 7}));
}

TEST_F(ContextStreamsTest, FreeSeesNewWorkInDoneStream) {
  using State = ContextStreams::State;
  for (std::uintptr_t each = 1; each <= 7; ++each) given(kContext, stream(each));
  EXPECT_TRUE(streams_.busy(kContext, [](void*) { return State::kDone; }).empty());
  EXPECT_FALSE(streams_.may_have_work(kContext));
  given(kContext, stream(2));
  EXPECT_EQ(streams_.busy(kContext, [](void*) { return State::kBusy; }),
            std::vector<void*>{stream(2)});
}

TEST_F(ContextStreamsTest, FreeIgnoresStreamsKnownToBeDone) {
  given(kContext, stream(1));
  EXPECT_TRUE(streams_.may_have_work(kContext));
  EXPECT_TRUE(done(kContext));
  EXPECT_FALSE(streams_.may_have_work(kContext));
  given(kContext, stream(1));
  EXPECT_TRUE(streams_.may_have_work(kContext));
}

TEST_F(ContextStreamsTest, GiveUpMakesStateUnknown) {
  streams_.give_up();
  EXPECT_FALSE(streams_.is_known(kContext));
  EXPECT_FALSE(done(kContext));
}

}  // namespace
}  // namespace gpurun::server
