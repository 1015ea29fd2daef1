// Remote memory over RDMA: the device of one end reads what the other end has lent, and nothing
// else, beside the messages of the connection. Whatever fails costs the carrier only.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/rdma_pair.h"

namespace gpurun::transport::test {
namespace {

using Began = RemoteMemory::Began;
using std::chrono::milliseconds;

constexpr std::size_t kMemory = std::size_t{1} << 20;

// The client lends, and the server reads.
struct Lending {
  explicit Lending(const std::string& devices = "rdma0") : pair(devices) {
    lends = pair.client->remote_memory();
    reads = pair.server->remote_memory();
    EXPECT_NE(lends, nullptr);
    EXPECT_NE(reads, nullptr);
    const auto lent = lends->lend(source);
    EXPECT_TRUE(lent.ok()) << lent.status().to_string();
    key = lent.ok() ? *lent : 0;
    EXPECT_TRUE(reads->enroll(into).ok());
  }
  ~Lending() { reads->withdraw(); }

  RemoteMemory::Read read_of(std::uint64_t id, std::size_t offset, std::size_t bytes) const {
    return {const_cast<std::byte*>(into.data()) + offset,
            reinterpret_cast<std::uintptr_t>(source.data()) + offset, key,
            static_cast<std::uint32_t>(bytes), id};
  }
  Began begin(std::uint64_t id, std::size_t offset, std::size_t bytes) {
    return reads->begin_read(read_of(id, offset, bytes));
  }
  // Waits for `count` reads. Those that have ended right.
  std::vector<std::uint64_t> ended(std::size_t count, Deadline deadline = soon()) {
    std::vector<std::uint64_t> right;
    std::array<RemoteMemory::Ended, 4> some;
    std::size_t all = 0;
    while (all < count) {
      const std::size_t got = reads->await_reads(some, deadline);
      if (got == 0) break;
      for (std::size_t i = 0; i < got; ++i) {
        if (some[i].right) right.push_back(some[i].id);
      }
      all += got;
    }
    last_ended = all;
    return right;
  }
  bool failed_alone() {
    const bool copied = copies(pair, pattern(300'000, 7));
    return copied && !reads->works() && pair.server->changes().left == 1;
  }

  RdmaPair pair;
  Bytes source = pattern(kMemory, 1);
  Bytes into = Bytes(kMemory);
  RemoteMemory* lends = nullptr;
  RemoteMemory* reads = nullptr;
  std::uint32_t key = 0;
  std::size_t last_ended = 0;
};

TEST(RemoteMemory, ReadBringsBytesAndLenderDoesNothing) {
  Lending lending;
  const verbs_double_counts before = VerbsDouble::counts();
  ASSERT_EQ(lending.begin(5, 0, kMemory / 2), Began::kYes);
  ASSERT_EQ(lending.begin(6, kMemory / 2, kMemory / 2), Began::kYes);
  EXPECT_EQ(lending.ended(2), (std::vector<std::uint64_t>{5, 6}));
  EXPECT_EQ(lending.into, lending.source);
  const verbs_double_counts after = VerbsDouble::counts();
  EXPECT_EQ(after.posted_read - before.posted_read, 2U);
  EXPECT_EQ(after.read_bytes - before.read_bytes, kMemory);
  EXPECT_EQ(after.post_calls - before.post_calls, 2U) << "the lending end has posted something";
  EXPECT_TRUE(lending.reads->works());
}

// More reads would stop the messages behind them.
TEST(RemoteMemory, AsManyReadsAreUnderWayAsTheDevicesServe) {
  Lending lending("rdma0 reads=3");
  VerbsDouble::inject("delays us=300000");
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(lending.begin(id, id * 1000, 1000), Began::kYes) << id;
  }
  EXPECT_EQ(lending.begin(4, 4000, 1000), Began::kLater);
  EXPECT_EQ(lending.ended(3).size(), 3U);
  EXPECT_EQ(lending.begin(4, 4000, 1000), Began::kYes);
  EXPECT_EQ(lending.ended(1).size(), 1U);
}

TEST(RemoteMemory, DevicesThatDoNotReadHaveNone) {
  for (const char* devices : {"rdma0 reads=0", "rdma0 profile=send_only", "rdma0 message=4096"}) {
    RdmaPair pair(devices);
    EXPECT_EQ(pair.client->remote_memory(), nullptr) << devices;
    EXPECT_EQ(pair.server->remote_memory(), nullptr) << devices;
    EXPECT_TRUE(copies(pair, pattern(100'000, 2))) << devices;
  }
}

// A message needs a receive, and a read needs none. Both need places in the queue of requests.
TEST(RemoteMemory, ReadsAndMessagesShareTheQueue) {
  for (const char* devices : {"rdma0", "rdma0 immediate=plain", "rdma0 reads=1 wr=256 cqe=256"}) {
    Lending lending(devices);
    const verbs_double_counts before = VerbsDouble::counts();
    auto copying = std::async(std::launch::async, [&] {
      return copies_one_way(*lending.pair.server, *lending.pair.client, pattern(2 << 20, 3));
    });
    constexpr std::uint64_t kReads = 250;
    std::uint64_t begun = 0;
    std::uint64_t ended = 0;
    const Deadline deadline = soon();
    while (ended < kReads && !deadline.passed()) {
      const std::size_t at = begun % 250 * 4096;
      const Began began = begun < kReads ? lending.begin(begun, at, 4096) : Began::kLater;
      ASSERT_NE(began, Began::kFailed) << devices;
      if (began == Began::kYes) {
        ++begun;
      } else if (begun > ended) {
        ended += lending.ended(1).size();
      } else {
        std::this_thread::yield();
      }
    }
    EXPECT_EQ(ended, kReads) << devices;
    EXPECT_TRUE(copying.get()) << devices;
    EXPECT_EQ(lending.pair.server->changes().left, 0U) << devices;
    EXPECT_EQ(VerbsDouble::counts().not_ready, before.not_ready) << devices;
    EXPECT_TRUE(std::equal(lending.into.begin(), lending.into.begin() + 250 * 4096,
                           lending.source.begin()));
  }
}

// The key is a claim of the other end. So are address and length.
TEST(RemoteMemory, ReadOfOtherMemoryFailsTheCarrierOnly) {
  for (const int wrong : {0, 1, 2, 3}) {
    Lending lending;
    RemoteMemory::Read read = lending.read_of(1, 0, 4096);
    if (wrong == 0) read.key += 1;
    if (wrong == 1) read.from -= 1;
    if (wrong == 2) read.from += kMemory - 4095;
    if (wrong == 3) read.from = 0;
    ASSERT_EQ(lending.reads->begin_read(read), Began::kYes);
    EXPECT_TRUE(lending.ended(1).empty()) << wrong;
    EXPECT_EQ(lending.last_ended, 1U) << wrong;
    EXPECT_TRUE(lending.failed_alone()) << wrong;
    EXPECT_EQ(lending.begin(2, 0, 10), Began::kFailed);
  }
}

TEST(RemoteMemory, MemoryThatIsTakenBackCannotBeRead) {
  Lending lending;
  ASSERT_EQ(lending.begin(1, 0, 4096), Began::kYes);
  EXPECT_EQ(lending.ended(1).size(), 1U);
  lending.lends->take_back(lending.key);
  ASSERT_EQ(lending.begin(2, 0, 4096), Began::kYes);
  EXPECT_TRUE(lending.ended(1).empty());
  EXPECT_TRUE(lending.failed_alone());
}

TEST(RemoteMemory, MemoryThatIsTakenBackWhileItIsReadFailsTheRead) {
  Lending lending;
  VerbsDouble::inject("delays us=300000");
  ASSERT_EQ(lending.begin(1, 0, 4096), Began::kYes);
  lending.lends->take_back(lending.key);
  EXPECT_TRUE(lending.ended(1).empty());
  EXPECT_TRUE(lending.failed_alone());
}

TEST(RemoteMemory, EveryReadEndsWhenTheQueuePairIsLost) {
  for (const char* fault :
       {"breaks_qp posts=4", "cuts_qp posts=4", "port_down port=1 posts=4",
        "completes_with at=4 kind=read status=10", "post_fails at=4 kind=read error=ENOMEM"}) {
    Lending lending;
    VerbsDouble::inject(fault);
    const auto before = std::chrono::steady_clock::now();
    std::size_t begun = 0;
    for (std::uint64_t id = 1; id <= 8; ++id) {
      if (lending.begin(id, id * 4096, 4096) == Began::kYes) ++begun;
    }
    EXPECT_GE(begun, 3U) << fault;
    static_cast<void>(lending.ended(begun));
    EXPECT_EQ(lending.last_ended, begun) << fault;
    EXPECT_LT(std::chrono::steady_clock::now() - before, milliseconds(4000)) << fault;
    EXPECT_TRUE(lending.failed_alone()) << fault;
  }
}

// The report of a later read stands for the one that has none.
TEST(RemoteMemory, LostReportIsMadeUpByTheNext) {
  Lending lending;
  VerbsDouble::inject("loses_completion at=1 kind=read");
  ASSERT_EQ(lending.begin(1, 0, 4096), Began::kYes);
  EXPECT_TRUE(lending.ended(1, Deadline::in(milliseconds(150))).empty());
  ASSERT_EQ(lending.begin(2, 4096, 4096), Began::kYes);
  EXPECT_EQ(lending.ended(2), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_TRUE(
      std::equal(lending.into.begin(), lending.into.begin() + 8192, lending.source.begin()));
}

TEST(RemoteMemory, CarrierThatIsGivenUpEndsItsReads) {
  Lending lending;
  VerbsDouble::inject("delays us=300000");
  ASSERT_EQ(lending.begin(1, 0, 4096), Began::kYes);
  lending.reads->give_up();
  EXPECT_TRUE(lending.ended(1).empty());
  EXPECT_EQ(lending.last_ended, 1U);
  EXPECT_TRUE(lending.failed_alone());
}

TEST(RemoteMemory, LimitOfLockedMemoryIsNamed) {
  Lending lending;
  VerbsDouble::inject("memlock bytes=1000");
  const Bytes more(4096);
  const auto lent = lending.lends->lend(more);
  EXPECT_EQ(lent.status().code(), Code::kResourceExhausted);
  EXPECT_NE(lent.status().message().find("does not register"), std::string::npos);
}

}  // namespace
}  // namespace gpurun::transport::test
