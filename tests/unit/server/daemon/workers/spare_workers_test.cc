// SpareWorkers: as many workers wait for a lease as were requested. Each is given away once, to a
// lease that it fits. Failing ones are replaced more and more rarely. None is started while others
// need the processors. No time passes here: everything is due at once, or in an hour.
#include "server/daemon/workers/spare_workers.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <map>
#include <string>
#include <utility>

#include "base/unique_fd.h"

namespace gpurun::server {
namespace {

using Devices = SpareWorkers::Devices;
constexpr std::chrono::hours kHour{1};
constexpr auto kHourMs = std::chrono::milliseconds(kHour).count();

// The state of a worker, by its number.
struct Known {
  Devices devices;
  bool leased = false;
  bool killed = false;
  bool gone = false;
  int ended = -1;  // Its descriptor. A write to it ends the worker.
};

class FakeWorker final : public Worker {
 public:
  FakeWorker(Known* known, const bool* refuses, const bool* lingers)
      : known_(known), refuses_(refuses), lingers_(lingers) {
    known_->ended = ended_.get();
  }
  ~FakeWorker() override { known_->gone = true; }
  int exit_fd() const noexcept override { return ended_.get(); }
  void kill() noexcept override {
    known_->killed = true;
    if (!*lingers_) eventfd_write(ended_.get(), 1);
  }
  std::string how_it_failed() override { return "exit status 1"; }
  Status assign(const Devices& devices, bool leased) override {
    if (*refuses_) return Status(Code::kPeerGone, "on purpose");
    known_->devices = devices;
    known_->leased = leased;
    return {};
  }

 private:
  const UniqueFd ended_{eventfd(0, EFD_CLOEXEC)};
  Known* const known_;
  const bool* const refuses_;
  const bool* const lingers_;  // It ends slowly.
};

class SpareWorkersTest : public testing::Test, public WorkerSpawner {
 protected:
  Result<std::unique_ptr<Worker>> start(WorkerOrder&) override {
    return Status(Code::kInternal, "not here");
  }
  Result<std::unique_ptr<Worker>> spare() override {
    ++tried_;
    if (fails_ != Code::kOk) return Status(fails_, "on purpose");
    return std::unique_ptr<Worker>(new FakeWorker(&known_[started_++], &refuses_, &lingers_));
  }
  SpareWorkers make(std::size_t count, SpareLevel level = SpareLevel::kMapped) {
    options_.count = count;
    options_.level = level;
    return SpareWorkers(*this, options_);
  }
  static void refill_all(SpareWorkers& spares, int times = 10) {
    for (int i = 0; i < times; ++i) {
      spares.look();
      spares.refill();
    }
  }
  void end(int worker) { eventfd_write(known_[worker].ended, 1); }

  SpareOptions options_{.after_session = std::chrono::milliseconds(0),
                        .after_lease = kHour,
                        .after_shortage = kHour,
                        .after_failure = kHour,
                        .after_failure_max = 5 * kHour};
  Code fails_ = Code::kOk;
  bool refuses_ = false, lingers_ = false;
  std::map<int, Known> known_;
  int tried_ = 0, started_ = 0;
};

TEST_F(SpareWorkersTest, StartsRequestedCountAndGivesEachOnce) {
  SpareWorkers spares = make(2);
  spares.refill();
  EXPECT_EQ(spares.count(), 1u);  // One for each call, because others need the thread, too.
  refill_all(spares);
  EXPECT_EQ(spares.count(), 2u);
  EXPECT_EQ(spares.milliseconds_to_refill(), -1);
  {
    const auto first = spares.take({3}), second = spares.take({1, 2});
    ASSERT_TRUE(first != nullptr && second != nullptr);
    EXPECT_EQ(spares.take({0}), nullptr);
    EXPECT_EQ(known_[0].devices, Devices{3});
    EXPECT_EQ(known_[1].devices, (Devices{1, 2}));
    EXPECT_TRUE(known_[0].leased && known_[1].leased);
    refill_all(spares);
  }
  EXPECT_EQ(started_, 4);
  EXPECT_TRUE(known_[0].gone && known_[1].gone);
  EXPECT_FALSE(known_[2].gone || known_[3].gone);
}

TEST_F(SpareWorkersTest, StartsNothingWhenCountIsZero) {
  SpareWorkers spares = make(0);
  refill_all(spares);
  EXPECT_EQ(started_, 0);
  EXPECT_EQ(spares.milliseconds_to_refill(), -1);
  EXPECT_EQ(spares.take({0}), nullptr);
  SpareWorkers initialised = make(0, SpareLevel::kInitialised);
  refill_all(initialised);
  EXPECT_EQ(started_, 0);
}

TEST_F(SpareWorkersTest, RefillsAfterLeaseBeginsSession) {
  SpareWorkers spares = make(1);
  refill_all(spares);
  const auto taken = spares.take({0});
  spares.lease_began();
  refill_all(spares);
  EXPECT_EQ(started_, 1);
  EXPECT_GT(spares.milliseconds_to_refill(), kHourMs / 2);
  spares.session_began();
  refill_all(spares);
  EXPECT_EQ(started_, 2);
}

TEST_F(SpareWorkersTest, RepeatedExitsIncreaseRefillDelay) {
  SpareWorkers spares = make(3);
  refill_all(spares);
  ASSERT_EQ(spares.count(), 3u);
  end(0);
  spares.look();
  EXPECT_TRUE(known_[0].gone);
  EXPECT_EQ(spares.count(), 2u);
  const int once = spares.milliseconds_to_refill();
  EXPECT_LE(once, kHourMs);
  EXPECT_GT(once, kHourMs / 2);
  end(1);
  spares.look();
  EXPECT_GT(spares.milliseconds_to_refill(), kHourMs);
  end(2);
  spares.look();
  EXPECT_GT(spares.milliseconds_to_refill(), 3 * kHourMs);
  // Neither a lease nor a session resets the count of failures.
  EXPECT_EQ(spares.take({0}), nullptr);
  spares.lease_began();
  spares.session_began();
  refill_all(spares);
  EXPECT_EQ(started_, 3);
}

TEST_F(SpareWorkersTest, RefillDelayIsCapped) {
  SpareWorkers spares = make(40);
  refill_all(spares, 40);
  for (int worker = 0; worker < 40; ++worker) {
    end(worker);
    spares.look();
  }
  EXPECT_EQ(spares.count(), 0u);
  EXPECT_LE(spares.milliseconds_to_refill(), 5 * kHourMs);
  EXPECT_GT(spares.milliseconds_to_refill(), 4 * kHourMs);
}

TEST_F(SpareWorkersTest, StartFailureDelaysNextAttempt) {
  fails_ = Code::kUnavailable;
  SpareWorkers spares = make(1);
  refill_all(spares);
  EXPECT_EQ(tried_, 1);
  EXPECT_GT(spares.milliseconds_to_refill(), kHourMs / 2);
}

// One cause, such as a replaced driver, is one failure, whatever number of workers it ends.
TEST_F(SpareWorkersTest, SimultaneousExitsCountAsOneFailure) {
  SpareWorkers spares = make(3);
  refill_all(spares);
  for (int worker = 0; worker < 3; ++worker) end(worker);
  spares.look();
  EXPECT_EQ(spares.count(), 0u);
  EXPECT_LE(spares.milliseconds_to_refill(), kHourMs);
  EXPECT_GT(spares.milliseconds_to_refill(), kHourMs / 2);
}

// For example when leases have all users of workers. This is unrelated to the driver, and ends with
// those leases.
TEST_F(SpareWorkersTest, RepeatedShortagesDoNotIncreaseRefillDelay) {
  options_.after_shortage = std::chrono::milliseconds(0);
  SpareWorkers spares = make(2);
  spares.refill();
  fails_ = Code::kResourceExhausted;
  refill_all(spares, 30);
  EXPECT_EQ(tried_, 31);
  EXPECT_EQ(spares.milliseconds_to_refill(), 0);
  fails_ = Code::kOk;
  refill_all(spares);
  EXPECT_EQ(spares.count(), 2u);
  end(0);  // The first failure.
  spares.look();
  EXPECT_LE(spares.milliseconds_to_refill(), kHourMs);
}
TEST_F(SpareWorkersTest, ShortageDelaysNextAttempt) {
  fails_ = Code::kResourceExhausted;
  SpareWorkers spares = make(1);
  refill_all(spares);
  EXPECT_EQ(tried_, 1);
  EXPECT_GT(spares.milliseconds_to_refill(), kHourMs / 2);
}

TEST_F(SpareWorkersTest, SkipsDeadWorkerAndGivesNext) {
  SpareWorkers spares = make(2);
  refill_all(spares);
  end(0);  // Not noticed yet.
  const auto given = spares.take({7});
  ASSERT_NE(given, nullptr);
  EXPECT_EQ(known_[1].devices, Devices{7});
  EXPECT_EQ(spares.count(), 0u);
}

TEST_F(SpareWorkersTest, KillsWorkerThatRefusesItsDevices) {
  SpareWorkers spares = make(1);
  refill_all(spares);
  refuses_ = true;
  EXPECT_EQ(spares.take({0}), nullptr);
  EXPECT_TRUE(known_[0].killed);
}

// The daemon's only thread serves all clients, so it does not wait for a killed process.
TEST_F(SpareWorkersTest, DoesNotWaitForKilledWorkers) {
  lingers_ = true;
  SpareWorkers spares = make(1, SpareLevel::kInitialised);
  refill_all(spares);
  spares.expect({1});
  refill_all(spares);
  ASSERT_EQ(started_, 2);
  EXPECT_TRUE(known_[0].killed);
  EXPECT_FALSE(known_[0].gone);
  std::vector<pollfd> waited;
  spares.watch(&waited);
  const auto watched = [&] {
    for (const pollfd& each : waited) {
      if (each.fd == known_[0].ended) return true;
    }
    return false;
  };
  EXPECT_TRUE(watched());
  end(0);
  spares.look();
  EXPECT_TRUE(known_[0].gone);
  EXPECT_FALSE(known_[1].killed);
}
TEST_F(SpareWorkersTest, DoesNotWaitForWorkersThatRefuseDevices) {
  lingers_ = true;
  SpareWorkers mapped = make(1);
  refill_all(mapped);
  refuses_ = true;
  EXPECT_EQ(mapped.take({0}), nullptr);
  EXPECT_TRUE(known_[0].killed);
  EXPECT_FALSE(known_[0].gone);
  SpareWorkers initialised = make(1, SpareLevel::kInitialised);
  refill_all(initialised);
  EXPECT_TRUE(known_[1].killed);
  EXPECT_FALSE(known_[1].gone);
  // give_up() waits, because the caller needs the worker's resources.
  EXPECT_TRUE(initialised.give_up());
  EXPECT_TRUE(known_[1].gone);
  EXPECT_FALSE(initialised.give_up());
}

TEST_F(SpareWorkersTest, InitialisedWorkerServesOnlyItsDevices) {
  SpareWorkers spares = make(1, SpareLevel::kInitialised);
  refill_all(spares);
  EXPECT_EQ(known_[0].devices, Devices{0});
  EXPECT_FALSE(known_[0].leased);
  EXPECT_EQ(spares.take({1}), nullptr);
  EXPECT_EQ(spares.take({0, 1}), nullptr);
  EXPECT_EQ(spares.count(), 1u);
  refuses_ = true;  // It already has its devices.
  EXPECT_NE(spares.take({0}), nullptr);
}

TEST_F(SpareWorkersTest, InitialisedWorkersFollowExpectedDevices) {
  SpareWorkers spares = make(1, SpareLevel::kInitialised);
  refill_all(spares);
  spares.expect({1});
  EXPECT_EQ(spares.milliseconds_to_refill(), 0);
  refill_all(spares);
  EXPECT_EQ(started_, 2);
  EXPECT_TRUE(known_[0].gone);
  EXPECT_EQ(spares.count(), 1u);
  EXPECT_NE(spares.take({1}), nullptr);
}

TEST_F(SpareWorkersTest, GiveUpEndsAllWorkers) {
  SpareWorkers spares = make(2);
  EXPECT_FALSE(spares.give_up());
  refill_all(spares);
  EXPECT_TRUE(spares.give_up());
  EXPECT_EQ(spares.count(), 0u);
  EXPECT_TRUE(known_[0].killed && known_[1].killed);
  EXPECT_TRUE(known_[0].gone && known_[1].gone);
}

}  // namespace
}  // namespace gpurun::server
