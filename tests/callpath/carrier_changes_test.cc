// Carrier changes under a session: copies and calls are right while connections leave their shared
// memory, enter it again, or lose it, at any byte.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/callpath/world.h"
#include "tests/support/carried_parts.h"
#include "tests/support/failing_carrier.h"

namespace gpurun::callpath {
namespace {

using client::Session;
using transport::carrier::CarriedConnection;

constexpr std::size_t kNever = ~std::size_t{0};

// Where the carriers of a connection fail, in bytes.
struct Failures {
  std::size_t client_puts = kNever;
  std::size_t client_takes = kNever;
  std::size_t worker_puts = kNever;
  std::size_t worker_takes = kNever;
};

// Bytes that nothing packs, so that as many go by the carrier. Those of each round differ.
Bytes random_bytes(std::size_t count, std::size_t round) {
  static const Bytes all = [] {
    std::minstd_rand random(7);
    Bytes bytes((std::size_t{5} << 20) + 64);
    for (std::byte& one : bytes) one = static_cast<std::byte>(random() >> 8);
    return bytes;
  }();
  const auto from = all.begin() + static_cast<std::ptrdiff_t>(round % 64);
  return Bytes(from, from + static_cast<std::ptrdiff_t>(count));
}

// Ends behind what the test has asked of the connection. Only the session's sockets order both, and
// ThreadSanitizer does not see that.
class AskedCarrier final : public transport::test::FailingCarrier {
 public:
  AskedCarrier(std::unique_ptr<Carrier> inner, std::size_t puts, std::size_t takes,
               std::shared_ptr<std::mutex> asking)
      : FailingCarrier(std::move(inner), puts, takes), asking_(std::move(asking)) {}
  ~AskedCarrier() override { const std::lock_guard<std::mutex> lock(*asking_); }

 private:
  const std::shared_ptr<std::mutex> asking_;
};

// A session in shared memory, with its connections as they are below it.
struct Carried {
  explicit Carried(const Failures& log = {}, const Failures& bulk = {}) {
    WorldOptions options;
    options.connect = [&](int index) {
      const Failures& fails = index == 0 ? log : bulk;
      transport::test::CarriedParts parts;
      const auto end = [&](int which, std::size_t puts, std::size_t takes) {
        auto failing = std::make_unique<AskedCarrier>(parts.rings(which), puts, takes, asking);
        auto made = parts.carry_by(which, std::move(failing));
        ends.push_back(made.get());
        return made;
      };
      Ends made;
      made.client = end(0, fails.client_puts, fails.client_takes);
      made.worker = end(1, fails.worker_puts, fails.worker_takes);
      return made;
    };
    world = std::make_unique<World>(options);
  }

  // Copies in and out, with calls between, until it has moved `rounds` times 5 MiB each way.
  void work(int rounds) {
    const std::uint64_t device = world->allocate(std::size_t{5} << 20);
    client::CallSite to = world->site("cuMemcpyHtoD_v2");
    client::CallSite from = world->site("cuMemcpyDtoH_v2");
    for (int round = 0; round < rounds; ++round) {
      // Of every size, from bytes in a record to several chunks.
      for (const std::size_t bytes : {std::size_t{4}, std::size_t{60'000}, std::size_t{5} << 20}) {
        const Bytes sent = random_bytes(bytes, static_cast<std::size_t>(round));
        ASSERT_EQ(world->session().copy_in(world->lane(), to, device, sent, Session::Reading::kNow),
                  0);
        ASSERT_EQ(world->synchronize(), 0);
        Bytes back(bytes);
        ASSERT_EQ(world->session().copy_out(world->lane(), from, back, device, true), 0);
        ASSERT_TRUE(back == sent) << bytes << " bytes in round " << round;
      }
    }
  }
  std::uint64_t times_left(int end) const {
    const std::lock_guard<std::mutex> lock(*asking);
    return ends[static_cast<std::size_t>(end)]->changes().left;
  }

  const std::shared_ptr<std::mutex> asking = std::make_shared<std::mutex>();
  // The client's and the worker's of the log, then of bulk.
  std::vector<CarriedConnection*> ends;
  std::unique_ptr<World> world;
};

TEST(CarrierChangesTest, CopiesAreRightWhileConnectionsChange) {
  Carried carried;
  std::atomic<bool> done{false};
  std::thread changes([&] {
    std::minstd_rand random(7);
    while (!done.load()) {
      CarriedConnection& end = *carried.ends[random() % carried.ends.size()];
      EXPECT_TRUE((random() % 2 == 0 ? end.leave() : end.enter()).ok());
      std::this_thread::yield();
    }
  });
  carried.work(6);
  done.store(true);
  changes.join();
  for (int end = 0; end < 4; ++end) EXPECT_GT(carried.times_left(end), 1U) << end;
}

// In the middle of a copy in, of a copy out, and of the records of calls.
TEST(CarrierChangesTest, CarrierThatFailsInMidCopyEndsNothing) {
  constexpr std::size_t kMiddle = (std::size_t{2} << 20) + 4321;
  Failures out_of_client, into_worker, out_of_worker, into_client;
  out_of_client.client_puts = kMiddle;
  into_worker.worker_takes = kMiddle;
  out_of_worker.worker_puts = kMiddle;
  into_client.client_takes = kMiddle;
  for (const Failures& fails : {out_of_client, into_worker, out_of_worker, into_client}) {
    Carried carried({}, fails);
    carried.work(2);
    EXPECT_EQ(carried.times_left(0) + carried.times_left(1), 0U) << "the log's";
    EXPECT_EQ(carried.times_left(2), 1U);
    EXPECT_EQ(carried.times_left(3), 1U);
  }
}

TEST(CarrierChangesTest, LogThatLosesItsCarrierEndsNothing) {
  for (const std::size_t behind : {std::size_t{1}, std::size_t{700}, std::size_t{5000}}) {
    Failures puts, takes;
    puts.client_puts = puts.worker_puts = behind;
    takes.client_takes = takes.worker_takes = behind;
    for (const Failures& fails : {puts, takes}) {
      Carried carried(fails, {});
      carried.work(20);
      EXPECT_EQ(carried.times_left(0), 1U) << behind;
      EXPECT_EQ(carried.times_left(1), 1U) << behind;
      EXPECT_EQ(carried.times_left(2) + carried.times_left(3), 0U) << "the bulk's";
    }
  }
}

}  // namespace
}  // namespace gpurun::callpath
