// Completions: when settle() returns, all completed work has been reported, by whatever thread.
#include "server/worker/execution/completions.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/server/driver/step_device.h"

namespace gpurun::server {
namespace {

// An end with a report that begins, and continues when the test allows it.
struct SlowEnd {
  std::promise<void> begun, let_go;
  std::atomic<bool> over{false};

  Completions::Ended ended() {
    return [this](int result) {
      EXPECT_EQ(result, 0);
      begun.set_value();
      let_go.get_future().wait();
      over = true;
    };
  }
};

TEST(Completions, SettleWaitsForReportRunningOnOtherThread) {
  StepDevice& device = StepDevice::device();
  device.reset();
  const DriverFunctions driver = StepDevice::functions();
  void* stream = nullptr;
  ASSERT_EQ(driver.cuStreamCreate(&stream, 0), 0);

  SlowEnd slow;
  std::thread other;
  std::optional<HelperThreadPool> pool(std::in_place);
  Completions completions(driver, *pool, ~std::uint64_t{0});
  std::promise<void> helper_goes_on;
  // The helper has reported the first end. Before it goes on to the second, another thread reports
  // that one.
  completions.set_told([&](Completions::Teller) {
    if (other.joinable()) return;
    other = std::thread([&] { completions.settle(); });
    slow.begun.get_future().wait();
    helper_goes_on.set_value();
  });
  ASSERT_EQ(completions.after(nullptr, stream, [](int) {}), 0);
  ASSERT_EQ(completions.after(nullptr, stream, slow.ended()), 0);
  device.run(1);
  helper_goes_on.get_future().wait();

  std::atomic<bool> early{false};
  std::thread settler([&] {
    do {
      completions.settle();
      if (!slow.over) early = true;
    } while (!slow.over && !early);
  });
  // Time for the helper to make the mistake: to forget an end while its report is still running.
  for (int i = 0; i < 10'000 && !early; ++i) std::this_thread::yield();
  slow.let_go.set_value();
  settler.join();
  other.join();
  completions.stop();
  pool.reset();  // The helper has returned.
  EXPECT_FALSE(early) << "settle() came back while an end that is complete was being told";
}

// The thread that checks for a completed copy reports its end itself. It also reports the ends
// before it, because their helper still sleeps.
TEST(Completions, CallerReportsAwaitedCompletionInOrder) {
  StepDevice& device = StepDevice::device();
  device.reset();
  DriverFunctions driver = StepDevice::functions();
  static std::promise<void>* asleep = nullptr;  // The helper sleeps until it is set.
  std::promise<void> wakes;
  asleep = &wakes;
  driver.cuEventSynchronize = [](void* event) {
    static thread_local bool once = false;
    if (StepDevice::functions().cuEventQuery(event) == 0) return 0;
    if (!std::exchange(once, true)) asleep->get_future().wait();
    return 0;
  };
  void* stream = nullptr;
  ASSERT_EQ(driver.cuStreamCreate(&stream, 0), 0);

  std::optional<HelperThreadPool> pool(std::in_place);
  Completions completions(driver, *pool, ~std::uint64_t{0});
  completions.set_soon([&](const std::function<bool()>& ready) {
    if (ready()) return true;
    device.run(1);
    return ready();
  });
  std::vector<int> told;
  const auto end = [&told](int which) { return [&told, which](int) { told.push_back(which); }; };
  ASSERT_EQ(completions.after(nullptr, stream, end(1)), 0);
  EXPECT_TRUE(told.empty());
  ASSERT_EQ(completions.after(nullptr, stream, end(2), Completions::NotifyMode::kAwaited), 0);
  EXPECT_EQ(told, (std::vector<int>{1, 2}));
  wakes.set_value();
  completions.stop();
  pool.reset();
  EXPECT_EQ(told, (std::vector<int>{1, 2}));
}

// Work with an end that programs usually query. No helper wakes for it, unless no query comes.
class QueriedCompletionsTest : public ::testing::Test {
 protected:
  QueriedCompletionsTest() {
    device_.reset();
    helped_ = 0;
    driver_.cuEventSynchronize = [](void* event) {
      if (StepDevice::functions().cuEventQuery(event) != 0) ++helped_;  // Only a helper waits here.
      return StepDevice::functions().cuEventSynchronize(event);
    };
    // With driver_at_once_, new work completes at once.
    driver_.cuEventRecord = [](void* event, void* stream) {
      const int result = StepDevice::functions().cuEventRecord(event, stream);
      if (driver_at_once_) StepDevice::device().run(StepDevice::number_of(stream));
      return result;
    };
    EXPECT_EQ(driver_.cuStreamCreate(&stream_, 0), 0);
    completions_.emplace(driver_, *pool_, ~std::uint64_t{0});
  }
  ~QueriedCompletionsTest() override {
    device_.run(1);
    device_.run(2);
    completions_->stop();
    pool_.reset();
  }
  void after(int which, Completions::NotifyMode mode) {
    const auto end = [this, which](int) {
      const std::lock_guard lock(mutex_);
      told_.push_back(which);
      changed_.notify_all();
    };
    ASSERT_EQ(completions_->after(nullptr, stream_, end, mode), 0);
  }
  std::vector<int> told(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(30), [&] { return told_.size() >= count; }));
    return told_;
  }

  StepDevice& device_ = StepDevice::device();
  DriverFunctions driver_ = StepDevice::functions();
  static inline std::atomic<int> helped_{0};
  static inline std::atomic<bool> driver_at_once_{false};
  void* stream_ = nullptr;
  std::optional<HelperThreadPool> pool_{std::in_place};
  std::optional<Completions> completions_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> told_;
};

TEST_F(QueriedCompletionsTest, SettleReportsWithoutWakingHelper) {
  for (int round = 1; round <= 3; ++round) {
    after(round, Completions::NotifyMode::kAsked);
    completions_->settle();
    EXPECT_EQ(told_.size(), static_cast<std::size_t>(round - 1)) << "it runs still";
    device_.run(1);
    completions_->settle();
    EXPECT_EQ(told_.size(), static_cast<std::size_t>(round));
    completions_->attend();
  }
  pool_.reset();  // All helpers have run by then.
  pool_.emplace();
  EXPECT_EQ(helped_, 0);
}

TEST_F(QueriedCompletionsTest, AttendLetsHelperReport) {
  after(1, Completions::NotifyMode::kAsked);
  after(2, Completions::NotifyMode::kAsked);
  completions_->attend();
  device_.run(1);
  EXPECT_EQ(told(2), (std::vector<int>{1, 2}));
}

// A stream has one order.
TEST_F(QueriedCompletionsTest, HelperReportsEarlierCompletionsFirst) {
  after(1, Completions::NotifyMode::kAsked);
  after(2, Completions::NotifyMode::kUnasked);
  device_.run(1);
  EXPECT_EQ(told(2), (std::vector<int>{1, 2}));
}

// A stream may wait for another one's work by a program's event, which this code does not know.
// Ends of completed work are therefore reported in the order in which the work was issued.
TEST_F(QueriedCompletionsTest, ReportsTwoStreamsInIssueOrder) {
  void* streams[2] = {stream_, nullptr};
  ASSERT_EQ(driver_.cuStreamCreate(&streams[1], 0), 0);
  for (const int first : {0, 1}) {
    for (const bool by_helpers : {false, true}) {
      told_.clear();
      for (const int which : {1, 2, 3}) {
        stream_ = streams[which == 2 ? 1 - first : first];
        after(which, Completions::NotifyMode::kAsked);
      }
      device_.run(1);
      device_.run(2);
      by_helpers ? completions_->attend() : completions_->settle();
      EXPECT_EQ(told(3), (std::vector<int>{1, 2, 3})) << first << by_helpers;
    }
  }
  // They also precede work that is complete when it is issued.
  told_.clear();
  stream_ = streams[1];
  after(1, Completions::NotifyMode::kAsked);
  device_.run(2);
  driver_at_once_ = true;
  stream_ = streams[0];
  after(2, Completions::NotifyMode::kUnasked);
  EXPECT_EQ(told(2), (std::vector<int>{1, 2}));
  driver_at_once_ = false;
  stream_ = streams[0];
}

// The caller of after() does not expect the other ends that it reports. Without this notice they
// would wait until something else arrives.
TEST_F(QueriedCompletionsTest, AfterNotifiesWhenItReportsEarlierCompletions) {
  completions_->set_told([this](Completions::Teller teller) {
    told_.push_back(teller == Completions::Teller::kAfter ? 100 : 200);
  });
  void* const first = stream_;
  after(1, Completions::NotifyMode::kAsked);
  device_.run(1);
  ASSERT_EQ(driver_.cuStreamCreate(&stream_, 0), 0);
  driver_at_once_ = true;
  after(2, Completions::NotifyMode::kUnasked);
  EXPECT_EQ(told_, (std::vector<int>{1, 100, 2}));
  after(3, Completions::NotifyMode::kUnasked);  // Nothing other than its own end is to be reported.
  EXPECT_EQ(told_, (std::vector<int>{1, 100, 2, 3}));
  driver_at_once_ = false;
  stream_ = first;
}

}  // namespace
}  // namespace gpurun::server
