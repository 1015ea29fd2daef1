// Carried connections: a change in mid-copy loses no byte and brings none twice, and two ends with
// full rings do not wait for each other. A peer that lies about a change ends the connection.
#include "transport/carrier/connection.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/carried_parts.h"
#include "tests/support/failing_carrier.h"
#include "transport/carrier/control.h"

namespace gpurun::transport::carrier {
namespace {

constexpr std::size_t kRing = shm::kRingBytesMin;

Deadline soon() { return Deadline::in(std::chrono::seconds(20)); }

Bytes pattern(std::size_t count, unsigned seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>((i * 131 + i / 251 + seed) & 0xff);
  }
  return bytes;
}

Status send_bytes(Connection& connection, ByteView bytes) {
  return connection.send({&bytes, 1}, soon());
}

Bytes receive_bytes(Connection& connection, std::size_t count) {
  Bytes bytes(count);
  const auto got = connection.receive(bytes, count, soon());
  EXPECT_TRUE(got.ok()) << got.status().to_string();
  return bytes;
}

struct Pair {
  explicit Pair(std::size_t ring_bytes = kRing) {
    test::CarriedParts parts(ring_bytes);
    for (int end = 0; end < 2; ++end) ends[end] = parts.carry_by(end, parts.rings(end));
  }
  CarriedConnection& client() { return *ends[0]; }
  CarriedConnection& server() { return *ends[1]; }
  std::unique_ptr<CarriedConnection> ends[2];
};

// Receives all of `whole` in pieces, and calls `between` with the bytes so far. The end that sends
// receives too, as in a session, until `sent` is done.
template <typename Between>
void copy_with_changes(Pair& pair, const Bytes& whole, Between between) {
  auto sender = std::async(std::launch::async, [&] { return send_bytes(pair.client(), whole); });
  auto listening = std::async(std::launch::async, [&] { return receive_bytes(pair.client(), 1); });
  Bytes got;
  Bytes piece(777);
  while (got.size() < whole.size()) {
    between(got.size());
    const auto count = pair.server().receive(piece, 1, soon());
    ASSERT_TRUE(count.ok()) << count.status().to_string();
    got.insert(got.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(*count));
  }
  EXPECT_TRUE(sender.get().ok());
  EXPECT_TRUE(got == whole);
  // In the other direction, too, while both ends receive.
  auto last = std::async(std::launch::async, [&] { return receive_bytes(pair.server(), 1); });
  EXPECT_TRUE(send_bytes(pair.server(), pattern(1, 9)).ok());
  EXPECT_EQ(listening.get(), pattern(1, 9));
  EXPECT_TRUE(send_bytes(pair.client(), pattern(1, 10)).ok());
  EXPECT_EQ(last.get(), pattern(1, 10));
}

TEST(CarriedConnectionTest, LeavesInMidCopyAndGoesOnOverTheSocket) {
  Pair pair;
  const Bytes whole = pattern(50 * kRing, 1);
  bool asked = false;
  copy_with_changes(pair, whole, [&](std::size_t got) {
    if (got > 10 * kRing && !std::exchange(asked, true)) {
      EXPECT_TRUE(pair.server().leave().ok());
    }
  });
  // The copy may end before the client's receiver has read the request.
  for (const Deadline end = soon(); pair.client().changes().left == 0 && !end.passed();) {
    EXPECT_TRUE(pair.client().attend().ok());
    EXPECT_TRUE(pair.server().attend().ok());
  }
  EXPECT_EQ(pair.server().changes().left, 1U);
  EXPECT_EQ(pair.client().changes().left, 1U);
  EXPECT_EQ(pair.server().changes().entered, 0U);
  EXPECT_EQ(pair.server().why_left(), "this end wanted it");
  EXPECT_EQ(pair.client().why_left(), "the other end wanted it");
}

// A watch that counts its pauses. At a pause it notes whether bytes have come to `peer`.
class CountedWatch final : public Watch {
 public:
  explicit CountedWatch(Connection& peer) : peer_(peer) {}
  Status wait(Deadline deadline) override {
    (void)deadline;
    return {};
  }
  void pause() noexcept override {
    Bytes one(1);
    const auto come = peer_.receive_some(one, false);
    if (!come.ok() || *come != 0) bytes_came_first = true;
    ++pauses;
  }
  void resume() noexcept override { ++resumes; }

  std::atomic<int> pauses{0};
  std::atomic<int> resumes{0};
  bool bytes_came_first = false;

 private:
  Connection& peer_;
};

// An answer cannot come before the pause, so it wakes no watcher.
TEST(CarriedConnectionTest, PausedSendPausesBeforeItsBytesGoOut) {
  Pair pair;
  CountedWatch watch(pair.server());
  {
    WatchPause pause(&watch);
    const Bytes call = pattern(60, 1);
    const ByteView part = call;
    EXPECT_TRUE(pair.client().send_paused({&part, 1}, soon(), pause).ok());
    EXPECT_EQ(receive_bytes(pair.server(), 60), call);
    EXPECT_EQ(watch.pauses, 1);
    EXPECT_EQ(watch.resumes, 0);
  }
  EXPECT_FALSE(watch.bytes_came_first);
  EXPECT_EQ(watch.resumes, 1);
}

// The other end may read nothing until this end receives. So the pause ends before the send waits.
TEST(CarriedConnectionTest, PausedSendThatWaitsEndsItsPause) {
  for (const bool by_socket : {false, true}) {
    Pair pair;
    if (by_socket) {
      ASSERT_TRUE(pair.client().leave().ok());
      ASSERT_TRUE(pair.server().attend().ok());
      ASSERT_TRUE(pair.client().attend().ok());
    }
    CountedWatch watch(pair.client());
    WatchPause pause(&watch);
    const Bytes whole = pattern(16 << 20, 3);
    auto sender = std::async(std::launch::async, [&] {
      const ByteView part = whole;
      return pair.client().send_paused({&part, 1}, soon(), pause);
    });
    for (const Deadline end = soon(); watch.resumes == 0 && !end.passed();) {
      std::this_thread::yield();
    }
    EXPECT_EQ(watch.resumes, 1) << "while nothing is received";
    EXPECT_EQ(receive_bytes(pair.server(), whole.size()), whole);
    EXPECT_TRUE(sender.get().ok());
    EXPECT_EQ(watch.pauses, 1);
    EXPECT_EQ(watch.resumes, 1);
  }
}

TEST(CarriedConnectionTest, EntersAgainAndLeavesAgain) {
  Pair pair;
  const Bytes whole = pattern(16 << 20, 2);
  std::size_t next = kRing;
  bool out = false;
  copy_with_changes(pair, whole, [&](std::size_t got) {
    if (got < next) return;
    next += 1 << 20;
    out = !out;
    // Either end may ask.
    CarriedConnection& asks = (got & 1) != 0 ? pair.client() : pair.server();
    EXPECT_TRUE((out ? asks.leave() : asks.enter()).ok());
  });
  EXPECT_GE(pair.server().changes().left, 2U);
  EXPECT_GE(pair.server().changes().entered, 2U);
}

// A carrier that fails behind any byte, at either end, is left at once.
TEST(CarriedConnectionTest, FailureInMidCopyGoesOnOverTheSocket) {
  for (const std::size_t behind : {std::size_t{0}, std::size_t{1}, 3 * kRing + 5}) {
    for (const bool in_put : {true, false}) {
      test::CarriedParts parts(kRing);
      const std::size_t never = ~std::size_t{0};
      Pair pair = [&] {
        Pair made;
        made.ends[0] = parts.carry_by(0, std::make_unique<test::FailingCarrier>(
                                             parts.rings(0), in_put ? behind : never, never));
        made.ends[1] = parts.carry_by(1, std::make_unique<test::FailingCarrier>(
                                             parts.rings(1), never, in_put ? never : behind));
        return made;
      }();
      copy_with_changes(pair, pattern(20 * kRing, 3), [](std::size_t) {});
      EXPECT_EQ(pair.server().changes().left, 1U) << behind << in_put;
      EXPECT_EQ(pair.client().changes().left, 1U) << behind << in_put;
      // One end has noticed the failure, and the other one has been asked.
      const std::string both = pair.client().why_left() + pair.server().why_left();
      EXPECT_NE(both.find(in_put ? "the other end wanted it" : " has failed"), std::string::npos)
          << both;
    }
  }
}

// Each end has more bytes in its ring than the sockets take, and no thread of either sends. The
// receiving threads send them without waiting for each other.
TEST(CarriedConnectionTest, TwoFullRingsLeaveWithoutSender) {
  Pair pair(shm::kRingBytesMax);
  const Bytes sent = pattern(shm::kRingBytesMax, 4);
  ASSERT_TRUE(send_bytes(pair.client(), sent).ok());
  ASSERT_TRUE(send_bytes(pair.server(), sent).ok());
  ASSERT_TRUE(pair.client().leave().ok());
  auto receiving = std::async(std::launch::async, [&] {
    Bytes got = receive_bytes(pair.client(), sent.size());
    // What the other end has not got yet leaves while this end waits.
    EXPECT_EQ(receive_bytes(pair.client(), 1), pattern(1, 5));
    return got;
  });
  EXPECT_TRUE(receive_bytes(pair.server(), sent.size()) == sent);
  EXPECT_TRUE(send_bytes(pair.server(), pattern(1, 5)).ok());
  EXPECT_TRUE(receiving.get() == sent);
}

// The bytes are on their way over the socket, and a part of them had no room there.
TEST(CarriedConnectionTest, EndWaitsForBytesThatLeaveTheCarrier) {
  Pair pair(shm::kRingBytesMax);
  const Bytes sent = pattern(shm::kRingBytesMax, 6);
  ASSERT_TRUE(send_bytes(pair.client(), sent).ok());
  ASSERT_TRUE(pair.server().leave().ok());
  ASSERT_TRUE(pair.client().attend().ok());  // Asked.
  ASSERT_TRUE(pair.server().attend().ok());  // Has left.
  ASSERT_TRUE(pair.client().attend().ok());  // Sends the rest.
  auto ending = std::async(std::launch::async, [&] { pair.ends[0].reset(); });
  EXPECT_TRUE(receive_bytes(pair.server(), sent.size()) == sent);
  ending.get();
  Bytes one(1);
  EXPECT_EQ(pair.server().receive(one, 1, soon()).status().code(), Code::kPeerGone);
}

// The other end died before it could send the rest again. It lies in memory that both map.
TEST(CarriedConnectionTest, BytesLeftInTheCarrierOfADeadPeerArrive) {
  Pair pair;
  ASSERT_TRUE(send_bytes(pair.client(), pattern(100, 7)).ok());
  ASSERT_TRUE(pair.client().leave().ok());
  pair.ends[0].reset();
  EXPECT_EQ(receive_bytes(pair.server(), 100), pattern(100, 7));
  Bytes one(1);
  EXPECT_EQ(pair.server().receive(one, 1, soon()).status().code(), Code::kPeerGone);
}

TEST(CarriedConnectionTest, OlderPeerIsNotAsked) {
  test::CarriedParts parts(kRing);
  const auto ours = parts.carry_by(0, parts.rings(0), false);
  EXPECT_EQ(ours->leave().code(), Code::kUnavailable);
  EXPECT_EQ(ours->enter().code(), Code::kUnavailable);
  // It counted any byte as a wake-up.
  Bytes got(1);
  EXPECT_FALSE(parts.sockets[1]->receive(got, 1, Deadline::in(std::chrono::milliseconds(1))).ok());
}

// One end has the bare socket and memory, so it can lie.
class LyingPeerTest : public testing::Test {
 protected:
  void say(const std::vector<Record>& records) {
    for (const Record& record : records) {
      std::array<std::byte, kRecordBytesMax> bytes;
      const std::size_t count = write_record(record, &bytes);
      ASSERT_TRUE(send_bytes(*parts_.sockets[0], ByteView(bytes).first(count)).ok());
    }
  }
  Code received() {
    Bytes got(1);
    return ours_->receive(got, 1, Deadline::in(std::chrono::seconds(2))).status().code();
  }
  test::CarriedParts parts_{kRing};
  const std::unique_ptr<CarriedConnection> ours_ = parts_.carry_by(1, parts_.rings(1));
};

TEST_F(LyingPeerTest, DataWhileItSendsByTheCarrierEndsConnection) {
  say({{Kind::kData, 0, 1}});
  EXPECT_EQ(received(), Code::kPeerGone);
}

TEST_F(LyingPeerTest, EntryOfOneThatHasNotLeftEndsConnection) {
  say({{Kind::kEnter, 0, 0}});
  EXPECT_EQ(received(), Code::kPeerGone);
}

TEST_F(LyingPeerTest, MoreBytesTakenThanWerePutEndsConnection) {
  ASSERT_TRUE(send_bytes(*ours_, pattern(10, 0)).ok());
  say({{Kind::kLeave, 1, 11}});
  EXPECT_EQ(received(), Code::kPeerGone);
}

TEST_F(LyingPeerTest, LeaveOfAnotherEntryEndsConnection) {
  say({{Kind::kLeave, 2, 0}});
  EXPECT_EQ(received(), Code::kPeerGone);
}

TEST_F(LyingPeerTest, SecondLeaveEndsConnection) {
  say({{Kind::kLeave, 1, 0}, {Kind::kLeave, 1, 0}});
  EXPECT_EQ(received(), Code::kPeerGone);
}

TEST_F(LyingPeerTest, EntryBehindMoreThanTheRingHoldsEndsConnection) {
  say({{Kind::kAsk}});
  ASSERT_TRUE(ours_->attend().ok());  // Leaves, and says so.
  say({{Kind::kEnter, 0, kRing + 1}});
  EXPECT_EQ(received(), Code::kPeerGone);
}

TEST_F(LyingPeerTest, UnknownRecordEndsConnection) {
  const std::byte unknown{99};
  ASSERT_TRUE(send_bytes(*parts_.sockets[0], ByteView(&unknown, 1)).ok());
  EXPECT_EQ(received(), Code::kPeerGone);
}

// Requests without end do not make this end keep anything.
TEST_F(LyingPeerTest, ManyRequestsAreAnsweredAndTheConnectionStillWorks) {
  for (int i = 0; i < 1000; ++i) {
    say({{Kind::kAsk}, {Kind::kAnswer}, {Kind::kWake}});
    ASSERT_TRUE(ours_->attend().ok());
    Bytes answers(64);
    while (*parts_.sockets[0]->receive_some(answers, false) != 0) continue;
  }
  say({{Kind::kData, 0, 1}});
  ASSERT_TRUE(send_bytes(*parts_.sockets[0], pattern(1, 8)).ok());
  EXPECT_EQ(receive_bytes(*ours_, 1), pattern(1, 8));
}

}  // namespace
}  // namespace gpurun::transport::carrier
