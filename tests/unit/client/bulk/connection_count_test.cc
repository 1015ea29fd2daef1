// ConnectionCount: chooses the number of connections that copies share, by the link's response to
// each number. Link and clock are simulated. Bytes under way leave at the rate of that number of
// connections.
#include "client/bulk/connection_count.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace gpurun::client {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

class Link {
 public:
  // Bytes per second for a number of connections. `share` is the part of a core that each sender
  // needs.
  using Rate = std::function<double(unsigned)>;
  Link(Rate rate, ConnectionCount::Bounds bounds, double share = 0.05)
      : rate_(std::move(rate)), share_(share), count_(bounds) {}

  // A copy of that many MiB, of which 4 MiB are under way at a time.
  void copy(std::uint64_t mebibytes) {
    std::uint64_t sent = 0;
    for (std::uint64_t done = 0; done < mebibytes; ++done) {
      for (; sent < std::min(mebibytes, done + 4); ++sent) count_.sent(now_, kMebibyte);
      const auto took = duration_cast<ConnectionCount::Span>(
          std::chrono::duration<double>(static_cast<double>(kMebibyte) / rate_(count_.in_use())));
      now_ += took;
      count_.worked(duration_cast<ConnectionCount::Span>(took * share_ * count_.in_use()));
      count_.retired(now_, kMebibyte);
      open();
      seen_.push_back(count_.in_use());
    }
  }
  // A copy that is still to come, and one that is given up.
  void ask_for(std::uint64_t mebibytes) { count_.sent(now_, mebibytes * kMebibyte); }
  void drop(std::uint64_t mebibytes) { count_.dropped(now_, mebibytes * kMebibyte); }
  void idle(ConnectionCount::Span span) { now_ += span; }
  void none_can_be_opened() { opens_ = false; }
  void set_rate(Rate rate) { rate_ = std::move(rate); }
  unsigned asked() const { return asked_; }
  // The largest number since the last call.
  unsigned most() {
    const unsigned most = seen_.empty() ? 1 : *std::max_element(seen_.begin(), seen_.end());
    seen_.clear();
    return most;
  }
  // The smallest number since the last call.
  unsigned least() {
    const unsigned least = seen_.empty() ? 1 : *std::min_element(seen_.begin(), seen_.end());
    seen_.clear();
    return least;
  }
  ConnectionCount& count() { return count_; }
  void set_their_cores(unsigned cores) { their_cores_ = cores; }

 private:
  void open() {
    if (count_.wanted() <= open_) return;
    ++asked_;
    if (!opens_) return count_.not_opened(now_);
    count_.opened(now_, ++open_, their_cores_);
  }

  Rate rate_;
  const double share_;
  ConnectionCount count_;
  ConnectionCount::Time now_{seconds(1000)};
  unsigned open_ = 1;
  unsigned their_cores_ = 0;
  unsigned asked_ = 0;
  bool opens_ = true;
  std::vector<unsigned> seen_;
};

constexpr ConnectionCount::Bounds kWide{8, 64, false};
double each(unsigned connections) { return 50e6 * connections; }
double together(unsigned) { return 500e6; }
Link::Rate up_to(unsigned many) {
  return [many](unsigned connections) { return each(std::min(connections, many)); };
}

TEST(ConnectionCount, StaysAtOneUntilEnoughBytesAreSent) {
  Link link(each, kWide);
  link.copy(ConnectionCount::kQuietBytes / kMebibyte - 1);
  EXPECT_EQ(link.asked(), 0u);
  EXPECT_EQ(link.most(), 1u);
}

TEST(ConnectionCount, GrowsToMaximumWhenEachAddsThroughput) {
  Link link(each, kWide);
  link.copy(2000);
  EXPECT_EQ(link.count().in_use(), 8u);
  EXPECT_EQ(link.asked(), 7u);
}

TEST(ConnectionCount, SettlesAtLargestNumberThatAddsThroughput) {
  for (const unsigned many : {2u, 4u}) {
    Link link(up_to(many), kWide);
    link.copy(2000);
    EXPECT_EQ(link.count().in_use(), many);
    EXPECT_EQ(link.most(), 2 * many);  // It was tried.
  }
}

TEST(ConnectionCount, StaysAtOneWhenLinkIsBottleneck) {
  Link link(together, kWide);
  link.copy(2000);
  EXPECT_EQ(link.count().in_use(), 1u);
  EXPECT_EQ(link.most(), 2u);
}

TEST(ConnectionCount, GrowsOnlyForClearGain) {
  for (const double gain : {1.10, 1.20}) {
    Link link([gain](unsigned connections) { return 100e6 * (connections > 1 ? gain : 1); }, kWide);
    link.copy(1000);
    EXPECT_EQ(link.count().in_use(), gain > ConnectionCount::kClearly ? 2u : 1u) << gain;
  }
}

// Otherwise the first connection would look slow because of what its first bytes met.
TEST(ConnectionCount, IgnoresSlowStart) {
  std::uint64_t calls = 0;
  Link link([&calls](unsigned) { return ++calls < 110 ? 20e6 : 500e6; }, kWide);
  link.copy(2000);
  EXPECT_EQ(link.count().in_use(), 1u);
}

TEST(ConnectionCount, WaitsLongerAfterEachFailedTrial) {
  Link link(together, kWide);
  link.copy(1000);
  link.most();
  ConnectionCount::Span rest = ConnectionCount::kRestMin;
  for (int times = 0; times < 4; ++times, rest *= 2) {
    link.idle(rest - seconds(10));
    link.copy(200);
    EXPECT_EQ(link.most(), 1u) << "before the rest was over";
    link.idle(seconds(10));
    link.copy(1000);
    EXPECT_EQ(link.most(), 2u) << "after it";
    EXPECT_EQ(link.count().in_use(), 1u);
  }
  EXPECT_EQ(link.asked(), 1u);  // The other connection still exists.
}

TEST(ConnectionCount, ShrinksWhenFewerAreEquallyFast) {
  Link link(up_to(4), kWide);
  link.copy(2000);
  ASSERT_EQ(link.count().in_use(), 4u);
  link.set_rate(together);
  for (int hours = 0; hours < 6; ++hours) {
    link.idle(ConnectionCount::kRestMax);
    link.copy(1000);
  }
  EXPECT_EQ(link.count().in_use(), 1u);
}

// On a fast link a whole trial may lie within one decision of the scheduler.
TEST(ConnectionCount, EarlyRecheckDropsMomentaryGain) {
  for (const double gain : {1.3, 2.0}) {
    Link link([gain](unsigned connections) { return connections > 1 ? gain * 3e9 : 3e9; },
              {2, 64, false});
    link.copy(1000);
    ASSERT_EQ(link.count().in_use(), 2u) << gain;
    link.set_rate([](unsigned connections) { return connections > 1 ? 2.5e9 : 3e9; });
    link.idle(ConnectionCount::kUnsureRest);
    link.copy(1000);
    EXPECT_EQ(link.count().in_use(), 1u) << gain;
    // The number that was given up rests as long as ever.
    link.most();
    link.idle(ConnectionCount::kRestMin - seconds(10));
    link.copy(1000);
    EXPECT_EQ(link.most(), 1u) << gain;
  }
}

TEST(ConnectionCount, EarlyRecheckKeepsRealGainOnFastLink) {
  Link link([](unsigned connections) { return 1e9 * connections; }, {4, 64, false});
  link.copy(2000);
  ASSERT_EQ(link.count().in_use(), 4u);
  link.idle(ConnectionCount::kUnsureRest);
  link.least();
  link.copy(1000);
  EXPECT_EQ(link.least(), 2u);
  EXPECT_EQ(link.count().in_use(), 4u);
  link.idle(ConnectionCount::kRestMin - seconds(10));
  link.copy(1000);
  EXPECT_EQ(link.least(), 4u);
}

TEST(ConnectionCount, LongMeasurementNeedsNoEarlyRecheck) {
  Link link([](unsigned connections) { return 20e6 * connections; }, kWide);
  link.copy(400);
  ASSERT_EQ(link.count().in_use(), 8u);
  link.least();
  link.idle(ConnectionCount::kRestMin - seconds(10));
  link.copy(1000);
  EXPECT_EQ(link.least(), 8u);
}

TEST(ConnectionCount, LimitsConnectionsByAvailableCores) {
  const auto used = [](unsigned cores, double share, bool same_host, unsigned their_cores) {
    Link link(each, {8, cores, same_host}, share);
    link.set_their_cores(their_cores);
    link.copy(4000);
    return link.count().in_use();
  };
  EXPECT_EQ(used(1, 0.9, false, 0), 1u);
  EXPECT_EQ(used(2, 0.9, false, 0), 2u);
  EXPECT_EQ(used(3, 0.9, false, 0), 3u);
  EXPECT_EQ(used(2, 0.9, true, 0), 1u);  // The receivers use the same two.
  EXPECT_EQ(used(64, 0.9, false, 2), 2u);
  EXPECT_EQ(used(1, 0.05, false, 1), 8u);  // A waiting thread needs no core.
}

TEST(ConnectionCount, SmallTransfersWithGapsAddNoConnection) {
  Link link(each, kWide);
  // One second between pieces: the worker's device is busy, not the link.
  for (int times = 0; times < 100; ++times) {
    link.count().sent(ConnectionCount::Time(seconds(2000 + 2 * times)), kMebibyte);
    link.count().retired(ConnectionCount::Time(seconds(2001 + 2 * times)), 1);
  }
  EXPECT_EQ(link.count().wanted(), 1u);
}

TEST(ConnectionCount, KeepsCountAndRetriesLaterWhenOpenFails) {
  Link link(each, kWide);
  link.none_can_be_opened();
  link.copy(1000);
  EXPECT_EQ(link.asked(), 1u);
  EXPECT_EQ(link.count().in_use(), 1u);
  link.idle(ConnectionCount::kRestMin);
  link.copy(1000);
  EXPECT_EQ(link.asked(), 2u);
  EXPECT_EQ(link.count().wanted(), 1u);
}

TEST(ConnectionCount, NeverExceedsMaximum) {
  Link link(each, {1, 64, false});
  link.copy(2000);
  EXPECT_EQ(link.asked(), 0u);
  Link three(each, {3, 64, false});
  three.copy(2000);
  EXPECT_EQ(three.count().in_use(), 3u);
  EXPECT_EQ(three.most(), 3u);
}

// Bytes that were under way when the number changed give no information about the new number. The
// count waits until they are gone.
TEST(ConnectionCount, DroppedBytesDoNotDelayNextTrial) {
  constexpr std::uint64_t kMuch = 64 << 10;
  Link link([](unsigned count) { return 100e6 * count; }, {2, 64, false});
  link.ask_for(kMuch);
  link.copy(1024);
  EXPECT_TRUE(link.count().in_use() == 2 && link.count().tried_most() == 2);
  link.copy(1024);
  link.drop(kMuch);
  link.set_rate([](unsigned count) { return count == 1 ? 200e6 : 100e6; });
  link.idle(ConnectionCount::kRestMax);
  link.copy(1024);
  EXPECT_EQ(link.count().in_use(), 1u);
}

}  // namespace
}  // namespace gpurun::client
