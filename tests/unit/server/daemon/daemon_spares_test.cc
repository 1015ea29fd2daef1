// Spare workers: a lease takes one, further processes of it take others, and none is reused.
// Without spares everything works as before.
#include "tests/unit/server/daemon/daemon_under_test.h"

namespace gpurun::server {
namespace {

class DaemonSparesTest : public DaemonTest {
 protected:
  void start_with(std::size_t spares, unsigned devices = 1,
                  SpareLevel level = SpareLevel::kMapped) {
    DaemonOptions options;
    options.devices = devices;
    options.handshake_deadline = kLong;
    options.spares.count = spares;
    options.spares.level = level;
    options.spares.after_session = milliseconds(0);
    options.spares.after_lease = kLong;
    start(std::move(options));
  }
  bool have_waited(int count) {
    return workers_.wait([&] { return workers_.spares == count; });
  }
  std::uint32_t listed() {
    const auto listing = link()->list();
    EXPECT_TRUE(listing.ok());
    return listing.ok() ? listing->spare_workers : 99u;
  }
};

TEST_F(DaemonSparesTest, LeaseAndItsNextProcessEachTakeSpare) {
  workers_.prepares = true;
  start_with(1, 2);
  ASSERT_TRUE(have_waited(1));
  auto control = link();
  const auto session = control->request_lease(ask(2));
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  ASSERT_TRUE(workers_.wait([&] { return workers_.assigned == 1; }));
  EXPECT_EQ(workers_.devices, (std::vector<int>{0, 1}));
  EXPECT_EQ(listed(), 0u);  // The next spare starts when the session has begun.
  auto first = client::attach(*session, {});
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  ASSERT_TRUE(have_waited(2));
  auto second = client::attach(*session, {});
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  ASSERT_TRUE(have_waited(3));
  {
    const std::lock_guard lock(workers_.mutex);
    EXPECT_EQ(workers_.assigned, 2);
    EXPECT_EQ(workers_.handed_over, 2);
    EXPECT_EQ(workers_.prepared, 0);
    EXPECT_EQ(workers_.started, 2);
  }
  EXPECT_EQ(listed(), 1u);
  end_lease(*control);
  // They end with the lease, unlike the one that still waits.
  ASSERT_TRUE(workers_.wait([&] { return workers_.killed == 2; }));
  EXPECT_EQ(listed(), 1u);
  const std::lock_guard lock(workers_.mutex);
  EXPECT_EQ(workers_.spares, 3);
}

TEST_F(DaemonSparesTest, UnusedSpareOfEndedLeaseIsKilled) {
  start_with(1);
  ASSERT_TRUE(have_waited(1));
  auto control = link();
  ASSERT_TRUE(control->request_lease(ask(1)).ok());
  ASSERT_TRUE(workers_.wait([&] { return workers_.assigned == 1; }));
  end_lease(*control);
  const std::lock_guard lock(workers_.mutex);
  EXPECT_EQ(workers_.killed, 1);
}

TEST_F(DaemonSparesTest, LeaseWithoutSpareStartsItsOwnWorker) {
  workers_.prepares = true;
  workers_.no_spares = true;
  start_with(1);
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE(workers_.wait([&] { return workers_.prepared == 1; }));
  EXPECT_TRUE(client::attach(*session, {}).ok());
  EXPECT_EQ(listed(), 0u);
}

// Spares hold worker users and descriptors. A lease takes these if nothing else is left.
TEST_F(DaemonSparesTest, ResourceShortageEvictsSpares) {
  workers_.prepares = true;
  workers_.only_without_spares = true;
  start_with(2, 2, SpareLevel::kInitialised);
  ASSERT_TRUE(have_waited(2));
  auto control = link();
  const auto session = control->request_lease(ask(2));  // The spares are for one GPU.
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE(workers_.wait([&] { return workers_.prepared == 1; }));
  EXPECT_TRUE(client::attach(*session, {}).ok());
}

// For example a driver that does not start. Ending spares would not help.
TEST_F(DaemonSparesTest, OtherStartFailuresDoNotEvictSpares) {
  workers_.fail = workers_.refuse_sessions = true;
  start_with(3);
  ASSERT_TRUE(have_waited(3));
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE(workers_.wait([&] { return workers_.assigned == 1; }));
  EXPECT_EQ(client::attach(*session, {}).status().code(), Code::kRefused);
  const std::lock_guard lock(workers_.mutex);
  EXPECT_EQ(workers_.killed, 2);  // The lease's worker, and the spare that did not take its session
                                  // either.
}

// The session goes to another worker. The daemon, which has one thread, does not wait for the first
// one's end.
TEST_F(DaemonSparesTest, SpareThatRefusesSessionDoesNotBlockDaemon) {
  workers_.linger = true;
  workers_.refuse_sessions = true;
  start_with(1);
  ASSERT_TRUE(have_waited(1));
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE(workers_.wait([&] { return workers_.assigned == 1; }));
  EXPECT_TRUE(client::attach(*session, {}).ok());  // The lease's own worker serves it. No spare
                                                   // waits.
  ASSERT_TRUE(have_waited(2));
  EXPECT_TRUE(client::attach(*session, {}).ok());
  {
    const std::lock_guard lock(workers_.mutex);
    EXPECT_EQ(workers_.killed, 2);
    EXPECT_EQ(workers_.handed_over, 0);
    EXPECT_EQ(workers_.started, 2);
    EXPECT_EQ(workers_.lingering.size(), 2u);
    EXPECT_GE(workers_.waiting_spares, 2);  // Those two are destroyed only after they have ended.
  }
  workers_.let_go();
  EXPECT_TRUE(workers_.wait([&] { return workers_.spares == 3 && workers_.waiting_spares == 1; }));
}

}  // namespace
}  // namespace gpurun::server
