// Writes of remote memory over RDMA: the device of one end writes what the other end has lent for
// that, and nothing else. A message behind the report of a write finds the bytes in place, and
// memory that was taken back does not change any more.
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

// The client lends, and the server writes.
struct Writing {
  explicit Writing(const std::string& devices = "rdma0") : pair(devices) {
    lends = pair.client->remote_memory();
    writes = pair.server->remote_memory();
    EXPECT_NE(lends, nullptr);
    EXPECT_NE(writes, nullptr);
    const auto lent = lends->lend_for_writing(into);
    EXPECT_TRUE(lent.ok()) << lent.status().to_string();
    key = lent.ok() ? *lent : 0;
    EXPECT_TRUE(writes->enroll_source(source).ok());
  }
  ~Writing() { writes->withdraw_source(); }

  RemoteMemory::Write write_of(std::uint64_t id, std::size_t offset, std::size_t bytes) const {
    return {source.data() + offset, reinterpret_cast<std::uintptr_t>(into.data()) + offset, key,
            static_cast<std::uint32_t>(bytes), id};
  }
  Began begin(std::uint64_t id, std::size_t offset, std::size_t bytes) {
    return writes->begin_write(write_of(id, offset, bytes));
  }
  // Waits for `count` writes. Those that have ended right.
  std::vector<std::uint64_t> ended(std::size_t count, Deadline deadline = soon()) {
    std::vector<std::uint64_t> right;
    std::array<RemoteMemory::Ended, 4> some;
    last_ended = 0;
    while (last_ended < count) {
      const std::size_t got = writes->await_writes(some, deadline);
      if (got == 0) break;
      for (std::size_t i = 0; i < got; ++i) {
        if (some[i].right) right.push_back(some[i].id);
      }
      last_ended += got;
    }
    return right;
  }
  // A message behind the writes, which the lender receives.
  bool message_comes() { return copies_one_way(*pair.server, *pair.client, pattern(100, 9)); }
  bool failed_alone() {
    const bool copied = copies(pair, pattern(300'000, 7));
    return copied && !writes->works() && pair.server->changes().left == 1;
  }
  bool nothing_came() const {
    return std::all_of(into.begin(), into.end(),
                       [](std::byte each) { return each == std::byte{}; });
  }

  RdmaPair pair;
  Bytes source = pattern(kMemory, 1);
  Bytes into = Bytes(kMemory);
  RemoteMemory* lends = nullptr;
  RemoteMemory* writes = nullptr;
  std::uint32_t key = 0;
  std::size_t last_ended = 0;
};

TEST(RemoteWrites, MessageBehindReportFindsBytesAndLenderDoesNothing) {
  Writing writing;
  ASSERT_TRUE(writing.writes->writes());
  const verbs_double_counts before = VerbsDouble::counts();
  ASSERT_EQ(writing.begin(5, 0, kMemory / 2), Began::kYes);
  ASSERT_EQ(writing.begin(6, kMemory / 2, kMemory / 2), Began::kYes);
  EXPECT_EQ(writing.ended(2), (std::vector<std::uint64_t>{5, 6}));
  const verbs_double_counts after = VerbsDouble::counts();
  EXPECT_EQ(after.posted_write - before.posted_write, 2U);
  EXPECT_EQ(after.written_bytes - before.written_bytes, kMemory);
  EXPECT_EQ(after.post_calls - before.post_calls, 2U) << "the lending end has posted something";
  ASSERT_TRUE(writing.message_comes());
  EXPECT_EQ(writing.into, writing.source);
  EXPECT_TRUE(writing.writes->works());
}

TEST(RemoteWrites, BytesOfReportedWriteAreInPlaceOnceMemoryIsTakenBack) {
  Writing writing;
  ASSERT_EQ(writing.begin(1, 0, kMemory), Began::kYes);
  ASSERT_EQ(writing.ended(1).size(), 1U);
  writing.lends->take_back(writing.key);
  EXPECT_EQ(writing.into, writing.source);
}

TEST(RemoteWrites, MemoryThatIsTakenBackDoesNotChange) {
  Writing writing;
  writing.lends->take_back(writing.key);
  ASSERT_EQ(writing.begin(1, 0, 4096), Began::kYes);
  EXPECT_TRUE(writing.ended(1).empty());
  EXPECT_TRUE(writing.failed_alone());
  EXPECT_TRUE(writing.nothing_came());
}

TEST(RemoteWrites, MemoryThatIsTakenBackWhileItIsWrittenFailsTheWrite) {
  Writing writing;
  VerbsDouble::inject("delays us=300000");
  ASSERT_EQ(writing.begin(1, 0, 4096), Began::kYes);
  writing.lends->take_back(writing.key);
  EXPECT_TRUE(writing.ended(1).empty());
  EXPECT_TRUE(writing.failed_alone());
  EXPECT_TRUE(writing.nothing_came());
}

// Each right is a registration of its own.
TEST(RemoteWrites, MemoryIsLentForOneDirection) {
  {
    Writing writing;
    Bytes filled(4096);
    ASSERT_TRUE(writing.writes->enroll(filled).ok());
    ASSERT_EQ(writing.writes->begin_read({filled.data(),
                                          reinterpret_cast<std::uintptr_t>(writing.into.data()),
                                          writing.key, 4096, 1}),
              Began::kYes);
    std::array<RemoteMemory::Ended, 1> ended;
    ASSERT_EQ(writing.writes->await_reads(ended, soon()), 1U);
    EXPECT_FALSE(ended[0].right) << "memory for writes was read";
    writing.writes->withdraw();
  }
  Writing writing;
  const auto key = writing.lends->lend(writing.into);
  ASSERT_TRUE(key.ok());
  RemoteMemory::Write write = writing.write_of(1, 0, 4096);
  write.key = *key;
  ASSERT_EQ(writing.writes->begin_write(write), Began::kYes);
  EXPECT_TRUE(writing.ended(1).empty()) << "memory for reads was written";
  EXPECT_TRUE(writing.nothing_came());
}

TEST(RemoteWrites, WriteToOtherMemoryFailsTheCarrierOnly) {
  for (const int wrong : {0, 1, 2, 3}) {
    Writing writing;
    RemoteMemory::Write write = writing.write_of(1, 0, 4096);
    if (wrong == 0) write.key += 1;
    if (wrong == 1) write.to -= 1;
    if (wrong == 2) write.to += kMemory - 4095;
    if (wrong == 3) write.to = 0;
    ASSERT_EQ(writing.writes->begin_write(write), Began::kYes);
    EXPECT_TRUE(writing.ended(1).empty()) << wrong;
    EXPECT_EQ(writing.last_ended, 1U) << wrong;
    EXPECT_TRUE(writing.failed_alone()) << wrong;
    EXPECT_TRUE(writing.nothing_came()) << wrong;
    EXPECT_EQ(writing.begin(2, 0, 10), Began::kFailed);
  }
}

TEST(RemoteWrites, DevicesThatDoNotWriteHaveNone) {
  RdmaPair pair("rdma0 immediate=plain");
  RemoteMemory* const remote = pair.client->remote_memory();
  ASSERT_NE(remote, nullptr);
  EXPECT_FALSE(remote->writes());
  Bytes memory(4096);
  EXPECT_EQ(remote->lend_for_writing(memory).status().code(), Code::kUnavailable);
}

TEST(RemoteWrites, EveryWriteEndsWhenTheQueuePairIsLost) {
  for (const char* fault :
       {"breaks_qp posts=4", "cuts_qp posts=4", "port_down port=1 posts=4",
        "completes_with at=4 kind=write status=10", "post_fails at=4 kind=write error=ENOMEM"}) {
    Writing writing;
    VerbsDouble::inject(fault);
    const auto before = std::chrono::steady_clock::now();
    std::size_t begun = 0;
    for (std::uint64_t id = 1; id <= 8; ++id) {
      if (writing.begin(id, id * 4096, 4096) == Began::kYes) ++begun;
    }
    EXPECT_GE(begun, 3U) << fault;
    const std::vector<std::uint64_t> right = writing.ended(begun);
    EXPECT_EQ(writing.last_ended, begun) << fault;
    EXPECT_LT(std::chrono::steady_clock::now() - before, milliseconds(4000)) << fault;
    EXPECT_TRUE(writing.failed_alone()) << fault;
    writing.lends->take_back(writing.key);
    for (const std::uint64_t id : right) {
      EXPECT_TRUE(std::equal(writing.into.begin() + static_cast<std::ptrdiff_t>(id * 4096),
                             writing.into.begin() + static_cast<std::ptrdiff_t>(id * 4096 + 4096),
                             writing.source.begin() + static_cast<std::ptrdiff_t>(id * 4096)))
          << fault << ": reported right, but not there";
    }
  }
}

TEST(RemoteWrites, CarrierThatIsGivenUpEndsItsWrites) {
  Writing writing;
  VerbsDouble::inject("delays us=300000");
  ASSERT_EQ(writing.begin(1, 0, 4096), Began::kYes);
  writing.writes->give_up();
  EXPECT_TRUE(writing.ended(1).empty());
  EXPECT_EQ(writing.last_ended, 1U);
  EXPECT_TRUE(writing.failed_alone());
}

// One of the two threads takes the completions of both. The other one must not sleep over its own.
TEST(RemoteWrites, ThreadsWaitForReadsAndWritesAtOnce) {
  Writing writing;
  const Bytes lent = pattern(kMemory, 4);
  Bytes filled(kMemory);
  const auto key = writing.lends->lend(lent);
  ASSERT_TRUE(key.ok());
  ASSERT_TRUE(writing.writes->enroll(filled).ok());
  constexpr std::uint64_t kRounds = 300;
  const auto before = std::chrono::steady_clock::now();
  std::thread reading([&] {
    std::array<RemoteMemory::Ended, 4> ended;
    for (std::uint64_t id = 0; id < kRounds; ++id) {
      const std::size_t at = id % 256 * 4096;
      ASSERT_EQ(writing.writes->begin_read({filled.data() + at,
                                            reinterpret_cast<std::uintptr_t>(lent.data()) + at,
                                            *key, 4096, id}),
                Began::kYes);
      ASSERT_EQ(writing.writes->await_reads(ended, soon()), 1U);
      ASSERT_TRUE(ended[0].right && ended[0].id == id);
    }
  });
  for (std::uint64_t id = 0; id < kRounds; ++id) {
    ASSERT_EQ(writing.begin(id, id % 256 * 4096, 4096), Began::kYes);
    ASSERT_EQ(writing.ended(1), (std::vector<std::uint64_t>{id}));
  }
  reading.join();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(15))
      << "a thread has slept over its completions";
  EXPECT_EQ(filled, lent);
  ASSERT_TRUE(writing.message_comes());
  EXPECT_EQ(writing.into, writing.source);
  writing.writes->withdraw();
}

TEST(RemoteWrites, WritesAndMessagesShareTheQueue) {
  Writing writing("rdma0 wr=256 cqe=256");
  auto copying = std::async(std::launch::async, [&] {
    return copies_one_way(*writing.pair.server, *writing.pair.client, pattern(2 << 20, 3));
  });
  constexpr std::uint64_t kWrites = 250;
  std::uint64_t begun = 0;
  std::uint64_t ended = 0;
  const Deadline deadline = soon();
  while (ended < kWrites && !deadline.passed()) {
    const Began began = begun < kWrites ? writing.begin(begun, begun * 4096, 4096) : Began::kLater;
    ASSERT_NE(began, Began::kFailed);
    if (began == Began::kYes) {
      ++begun;
    } else if (begun > ended) {
      static_cast<void>(writing.ended(1));
      ended += writing.last_ended;
    } else {
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(ended, kWrites);
  EXPECT_TRUE(copying.get());
  EXPECT_EQ(writing.pair.server->changes().left, 0U);
  ASSERT_TRUE(writing.message_comes());
  EXPECT_TRUE(
      std::equal(writing.into.begin(), writing.into.begin() + 250 * 4096, writing.source.begin()));
}

TEST(RemoteWrites, LimitOfLockedMemoryIsNamed) {
  Writing writing;
  VerbsDouble::inject("memlock bytes=1000");
  Bytes more(4096);
  const auto lent = writing.lends->lend_for_writing(more);
  EXPECT_EQ(lent.status().code(), Code::kResourceExhausted);
  EXPECT_NE(lent.status().message().find("does not register"), std::string::npos);
}

}  // namespace
}  // namespace gpurun::transport::test
