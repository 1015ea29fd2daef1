// Faulty transport: it injects exactly the faults that it was asked for, at the same place for the
// same seed. Other suites rely on that.
#include <gtest/gtest.h>

#include "tests/conformance/worlds.h"
#include "transport/faulty/connection.h"
#include "transport/loopback/connection.h"

namespace gpurun::transport {
namespace {

Bytes zeros_through(const faulty::Plan& plan, std::size_t byte_count, Status* sent) {
  loopback::Pair pair = loopback::connect_pair();
  std::unique_ptr<Connection> sender = faulty::wrap(std::move(pair.first), plan);
  const Bytes zeros(byte_count);
  const ByteView view(zeros);
  *sent = sender->send({&view, 1}, Deadline::in(kTestTimeout));
  sender.reset();
  Bytes got;
  Bytes piece(4096);
  for (;;) {
    Result<std::size_t> count = pair.second->receive(piece, 1, Deadline::in(kTestTimeout));
    if (!count.ok()) return got;
    got.insert(got.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(*count));
  }
}

std::size_t changed_count(const Bytes& bytes) {
  std::size_t count = 0;
  for (const std::byte one : bytes) count += one != std::byte{0};
  return count;
}

TEST(FaultyTransport, CorruptsAtPlannedRateAndRepeatsForSameSeed) {
  faulty::Plan plan;
  plan.seed = test_seed();
  plan.corrupt_one_in_bytes = 100;
  Status sent;
  const Bytes first = zeros_through(plan, 100'000, &sent);
  ASSERT_TRUE(sent.ok());
  ASSERT_EQ(first.size(), 100'000u);
  EXPECT_GT(changed_count(first), 700u);
  EXPECT_LT(changed_count(first), 1400u);
  EXPECT_TRUE(zeros_through(plan, 100'000, &sent) == first);
  plan.seed += 1;
  EXPECT_FALSE(zeros_through(plan, 100'000, &sent) == first);
}

TEST(FaultyTransport, CutsConnectionAfterPlannedByte) {
  faulty::Plan plan;
  plan.cut_after_bytes = 1234;
  Status sent;
  const Bytes got = zeros_through(plan, 5000, &sent);
  EXPECT_EQ(sent.code(), Code::kPeerGone);
  EXPECT_EQ(got.size(), 1234u);
}

TEST(FaultyTransport, HarmlessFaultsChangeNothing) {
  Status sent;
  const Bytes got = zeros_through(faulty::Plan::harmless(test_seed()), 50'000, &sent);
  EXPECT_TRUE(sent.ok());
  EXPECT_EQ(got.size(), 50'000u);
  EXPECT_EQ(changed_count(got), 0u);
}

}  // namespace
}  // namespace gpurun::transport
