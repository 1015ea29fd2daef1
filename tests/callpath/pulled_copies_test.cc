// Pulled copies and written results: over RDMA the worker reads large pinned sources by itself, and
// writes large results into pinned memory. The bytes are right whatever fails, the program's memory
// is free once it has been read, and a client that lies harms its own copy only.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/callpath/pulling.h"
#include "tests/support/failing_carrier.h"
#include "tests/support/rdma_parts.h"

namespace gpurun::callpath {
namespace {

using client::Session;
using transport::RemoteMemory;
using transport::carrier::CarriedConnection;
using transport::test::VerbsDouble;

constexpr std::size_t kNever = ~std::size_t{0};

// Lends other memory than it says, or says another key.
class LyingMemory final : public RemoteMemory {
 public:
  enum class Lie { kNone, kKey, kLength, kAddress };
  LyingMemory(RemoteMemory& inner, Lie lie) : inner_(inner), lie_(lie) {}
  bool works() const noexcept override { return inner_.works(); }
  Result<std::uint32_t> lend(ByteView memory) override {
    if (lie_ == Lie::kLength) memory = memory.first(memory.size() - 5000);
    if (lie_ == Lie::kAddress) memory = memory.subspan(1);
    const auto key = inner_.lend(memory);
    if (!key.ok() || lie_ != Lie::kKey) return key;
    return *key + 1;
  }
  Result<std::uint32_t> lend_for_writing(MutableBytes memory) override {
    if (lie_ == Lie::kLength) memory = memory.first(memory.size() - 5000);
    if (lie_ == Lie::kAddress) memory = memory.subspan(1);
    const auto key = inner_.lend_for_writing(memory);
    if (!key.ok() || lie_ != Lie::kKey) return key;
    return *key + 1;
  }
  bool writes() const noexcept override { return inner_.writes(); }
  void take_back(std::uint32_t key) noexcept override { inner_.take_back(key); }
  Status enroll(MutableBytes memory) override { return inner_.enroll(memory); }
  void withdraw() noexcept override { inner_.withdraw(); }
  std::size_t read_bytes_max() const noexcept override { return inner_.read_bytes_max(); }
  Began begin_read(const Read& read) noexcept override { return inner_.begin_read(read); }
  std::size_t await_reads(std::span<Ended> ended, Deadline deadline) noexcept override {
    return inner_.await_reads(ended, deadline);
  }
  void give_up() noexcept override { inner_.give_up(); }

 private:
  RemoteMemory& inner_;
  const Lie lie_;
};
using Lie = LyingMemory::Lie;

class LyingCarrier final : public transport::test::FailingCarrier {
 public:
  LyingCarrier(std::unique_ptr<Carrier> inner, Lie lie)
      : FailingCarrier(std::move(inner), kNever, kNever), lie_(lie) {}
  RemoteMemory* remote_memory() noexcept override {
    RemoteMemory* const real = FailingCarrier::remote_memory();
    if (real == nullptr) return nullptr;
    if (lying_ == nullptr) lying_ = std::make_unique<LyingMemory>(*real, lie_);
    return lying_.get();
  }

 private:
  const Lie lie_;
  std::unique_ptr<LyingMemory> lying_;
};

Pulling::Options lying(Lie lie) {
  Pulling::Options options;
  if (lie == Lie::kNone) return options;
  options.wrap = [lie](Pulling::Carrier carrier) {
    return std::make_unique<LyingCarrier>(std::move(carrier), lie);
  };
  return options;
}

// The posts that carry bytes of the client, of the worker, and the reads.
TEST(PulledCopies, NoThreadTouchesBytesOfLargeCopy) {
  Pulling pulling;
  const Bytes source = random_bytes(64 * kMiB, 1);
  const std::uint64_t device = pulling.world->allocate(source.size());
  ASSERT_TRUE(pulling.may_pull(source));
  const verbs_double_counts before = VerbsDouble::counts();
  ASSERT_EQ(pulling.copy(device, source), 0);
  pulling.session().await_read(source);
  const verbs_double_counts after = VerbsDouble::counts();
  EXPECT_EQ(after.read_bytes - before.read_bytes, source.size());
  EXPECT_LT(after.posted_bytes - before.posted_bytes - source.size(), 64U << 10)
      << "bytes went in messages";
  EXPECT_EQ(pulling.pulled_bytes(), source.size());
  EXPECT_EQ(pulling.session().pulls().sent, 0U);
  EXPECT_EQ(pulling.world->synchronize(), 0);
  EXPECT_TRUE(pulling.back(device, source.size()) == source);
}

TEST(PulledCopies, OldBytesAreReadBeforeTheProgramWritesNewOnes) {
  Pulling pulling;
  Bytes source = random_bytes(5 * kMiB + 17, 2);
  const std::uint64_t device = pulling.world->allocate(source.size());
  for (unsigned round = 0; round < 8; ++round) {
    ASSERT_TRUE(pulling.may_pull(source));
    ASSERT_EQ(pulling.copy(device, source), 0);
    ASSERT_EQ(pulling.world->synchronize(), 0);
    const Bytes sent = source;
    std::memset(source.data(), static_cast<int>(round), source.size());
    EXPECT_TRUE(pulling.back(device, sent.size()) == sent) << round;
    source = random_bytes(source.size(), round + 3);
  }
  EXPECT_EQ(pulling.session().pulls().sent, 0U);
}

TEST(PulledCopies, StreamsCopyAtOnce) {
  Pulling pulling;
  constexpr std::size_t kStreams = 6;
  std::vector<Bytes> sources;
  std::vector<std::uint64_t> devices;
  for (unsigned i = 0; i < kStreams; ++i) {
    sources.push_back(random_bytes((7 + i) * kMiB + i, i));
    devices.push_back(pulling.world->allocate(sources.back().size()));
    ASSERT_TRUE(pulling.may_pull(sources.back()));
  }
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < kStreams; ++i) {
      client::CallSite site =
          pulling.world->site("cuMemcpyHtoDAsync_v2", pulling.world->make_stream());
      ASSERT_EQ(pulling.session().copy_in(
                    pulling.world->lane(), site, devices[i], sources[i],
                    i % 2 == 0 ? Session::Reading::kPulledSoon : Session::Reading::kPulledInTurn),
                0);
    }
  }
  for (std::size_t i = 0; i < kStreams; ++i) pulling.session().await_read(sources[i]);
  EXPECT_EQ(pulling.world->synchronize(), 0);
  for (std::size_t i = 0; i < kStreams; ++i) {
    EXPECT_TRUE(pulling.back(devices[i], sources[i].size()) == sources[i]) << i;
  }
  EXPECT_EQ(pulling.session().pulls().sent, 0U);
}

// As cuMemFreeHost does it behind a copy that was just issued.
TEST(PulledCopies, MemoryEndsOnceItIsRead) {
  Pulling pulling;
  VerbsDouble::inject("delays us=2000");
  for (int round = 0; round < 4; ++round) {
    auto source = std::make_unique<Bytes>(random_bytes(4 * kMiB, 5));
    const Bytes sent = *source;
    const std::uint64_t device = pulling.world->allocate(sent.size());
    ASSERT_TRUE(pulling.may_pull(*source));
    ASSERT_EQ(pulling.copy(device, *source), 0);
    pulling.session().await_read(*source);
    EXPECT_FALSE(pulling.session().reads(*source));
    const verbs_double_counts before = VerbsDouble::counts();
    pulling.session().take_back(*source);
    EXPECT_EQ(VerbsDouble::counts().deregistrations - before.deregistrations, 1U);
    source.reset();
    EXPECT_EQ(pulling.world->synchronize(), 0);
    EXPECT_TRUE(pulling.back(device, sent.size()) == sent);
  }
  EXPECT_EQ(pulling.session().pulls().sent, 0U);
}

// Each fault in mid-copy: all bytes come over the socket. LostQueuePairEndsCopyWithinTwoSeconds
// bounds the time.
TEST(PulledCopies, CopyEndsRightWhenTheQueuePairFails) {
  for (const char* fault :
       {"completes_with at=1 kind=read status=10", "completes_with at=9 kind=read status=12",
        "post_fails at=5 kind=read error=ENOMEM", "breaks_qp bytes=3000000",
        "cuts_qp bytes=2000000", "port_down port=1 bytes=2000000"}) {
    Pulling pulling;
    const Bytes source = random_bytes(9 * kMiB, 6);
    const std::uint64_t device = pulling.world->allocate(source.size());
    ASSERT_TRUE(pulling.may_pull(source));
    const std::uint64_t taken_back = VerbsDouble::counts().deregistrations;
    VerbsDouble::inject(fault);
    const auto before = std::chrono::steady_clock::now();
    ASSERT_EQ(pulling.copy(device, source), 0);
    pulling.session().await_read(source);
    EXPECT_EQ(pulling.world->synchronize(), 0) << fault;
    EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20)) << fault;
    EXPECT_TRUE(pulling.back(device, source.size()) == source) << fault;
    EXPECT_EQ(pulling.session().pulls().sent, 1U) << fault;
    EXPECT_FALSE(pulling.may_pull(source)) << fault;
    EXPECT_EQ(pulling.session().pulls().reason, "the server could not read an earlier copy");
    EXPECT_EQ(VerbsDouble::counts().deregistrations, taken_back + 1) << fault;
    // What is not lent any more goes in turn.
    ASSERT_EQ(pulling.copy(device, source), 0);
    EXPECT_EQ(pulling.world->synchronize(), 0) << fault;
  }
}

constexpr const char* kLostQueuePairs[] = {"breaks_qp bytes=3000000", "cuts_qp bytes=2000000",
                                           "port_down port=1 bytes=2000000"};

TEST(PulledCopies, LostQueuePairEndsCopyWithinTwoSeconds) {
  for (const char* fault : kLostQueuePairs) {
    const auto took = shortest_time([fault] {
      Pulling pulling;
      const Bytes source = random_bytes(9 * kMiB, 6);
      const std::uint64_t device = pulling.world->allocate(source.size());
      EXPECT_TRUE(pulling.may_pull(source));
      VerbsDouble::inject(fault);
      const auto before = std::chrono::steady_clock::now();
      EXPECT_EQ(pulling.copy(device, source), 0);
      EXPECT_EQ(pulling.world->synchronize(), 0) << fault;
      const auto took = std::chrono::steady_clock::now() - before;
      EXPECT_EQ(pulling.session().pulls().sent, 1U) << fault;
      return took;
    });
    EXPECT_LT(took, kLostFabricEnds) << fault;
  }
}

TEST(PulledCopies, LostReportCostsTheCarrierAtMost) {
  Pulling pulling;
  const Bytes source = random_bytes(3 * kMiB, 7);
  const std::uint64_t device = pulling.world->allocate(source.size());
  ASSERT_TRUE(pulling.may_pull(source));
  VerbsDouble::inject("loses_completion at=6 kind=read");  // The last one.
  ASSERT_EQ(pulling.copy(device, source), 0);
  pulling.session().await_read(source);
  EXPECT_EQ(pulling.world->synchronize(), 0);
  EXPECT_TRUE(pulling.back(device, source.size()) == source);
}

// The worker reads what the client names, in its own memory. A wrong name costs the client RDMA.
TEST(PulledCopies, WrongKeyLengthOrAddressEndsInTheSocketsBytes) {
  for (const Lie lie : {Lie::kKey, Lie::kLength, Lie::kAddress}) {
    Pulling pulling("rdma0", lying(lie));
    const Bytes source = random_bytes(6 * kMiB, 8);
    const std::uint64_t device = pulling.world->allocate(source.size());
    ASSERT_TRUE(pulling.may_pull(source));
    ASSERT_EQ(pulling.copy(device, source), 0);
    EXPECT_EQ(pulling.world->synchronize(), 0);
    EXPECT_TRUE(pulling.back(device, source.size()) == source);
    EXPECT_EQ(pulling.session().pulls().sent, 1U);
  }
}

TEST(PulledCopies, CopyThatFailsOnTheDeviceLeavesMemoryFree) {
  Pulling pulling;
  const Bytes source = random_bytes(2 * kMiB, 9);
  ASSERT_TRUE(pulling.may_pull(source));
  client::CallSite site = pulling.world->site("cuMemcpyHtoDAsync_v2", std::uint64_t{12345} << 20);
  (void)pulling.session().copy_in(pulling.world->lane(), site, 4096, source,
                                  Session::Reading::kPulledSoon);  // No such stream.
  pulling.session().await_read(source);
  EXPECT_NE(pulling.world->synchronize(), 0);
}

// The program's way: limits of the device, of locked memory, and of an older worker.
TEST(PulledCopies, WhatCannotBePulledIsSentAndCounted) {
  const Bytes source = random_bytes(2 * kMiB, 10);
  {
    Pulling pulling("rdma0 reads=0");
    EXPECT_FALSE(pulling.may_pull(source));
    EXPECT_EQ(pulling.session().pulls().refused, 0U) << "such a session has nothing to lend to";
  }
  {
    Pulling::Options options;
    options.knows = false;
    Pulling pulling("rdma0", options);
    EXPECT_FALSE(pulling.may_pull(source));
  }
  Pulling pulling;
  EXPECT_FALSE(
      pulling.session().may_pull(source, ByteView(source).first(limits::kPulledBytesMin - 1)));
  VerbsDouble::inject("memlock bytes=1000");
  for (std::uint64_t times = 1; times <= 3; ++times) {
    const verbs_double_counts before = VerbsDouble::counts();
    EXPECT_FALSE(pulling.may_pull(source));
    EXPECT_EQ(VerbsDouble::counts().registrations, before.registrations);
    EXPECT_EQ(pulling.session().pulls().refused, times);
  }
  EXPECT_NE(pulling.session().pulls().reason.find("does not register"), std::string::npos);
}

// The worker's own memory for reads is refused: it asks for the bytes.
TEST(PulledCopies, WorkerWithoutMemoryForReadsAsksForBytes) {
  Pulling pulling;
  const Bytes source = random_bytes(2 * kMiB, 11);
  const std::uint64_t device = pulling.world->allocate(source.size());
  ASSERT_TRUE(pulling.may_pull(source));
  VerbsDouble::inject("memlock bytes=1000");
  ASSERT_EQ(pulling.copy(device, source), 0);
  EXPECT_EQ(pulling.world->synchronize(), 0);
  EXPECT_TRUE(pulling.back(device, source.size()) == source);
  EXPECT_EQ(pulling.session().pulls().sent, 1U);
}

// A device with other bytes than the destination, so that a byte that never comes shows.
struct Results {
  explicit Results(std::size_t bytes, Lie lie = Lie::kNone)
      : pulling("rdma0", lying(lie)), source(random_bytes(bytes, 21)), destination(bytes) {
    device = pulling.world->allocate(bytes);
    EXPECT_EQ(pulling.copy(device, source, Session::Reading::kNow), 0);
    EXPECT_EQ(pulling.world->synchronize(), 0);
  }
  Pulling pulling;
  Bytes source;
  Bytes destination;
  std::uint64_t device = 0;
};

TEST(WrittenResults, NoThreadTouchesBytesOfLargeCopy) {
  for (const bool wait : {false, true}) {
    Results results(64 * kMiB);
    Pulling& pulling = results.pulling;
    ASSERT_TRUE(pulling.may_be_written(results.destination));
    const verbs_double_counts before = VerbsDouble::counts();
    ASSERT_EQ(pulling.copy_back(results.destination, results.device, wait), 0);
    if (!wait) {
      EXPECT_EQ(pulling.world->synchronize(), 0);
    }
    EXPECT_TRUE(results.destination == results.source) << "the completion came before the bytes";
    const verbs_double_counts after = VerbsDouble::counts();
    EXPECT_EQ(after.written_bytes - before.written_bytes, results.source.size());
    EXPECT_LT(after.posted_bytes - before.posted_bytes - results.source.size(), 64U << 10)
        << "bytes went in messages";
    EXPECT_EQ(pulling.written_bytes(), results.source.size());
    EXPECT_FALSE(pulling.session().may_still_write(results.destination));
  }
}

// Of two copies to one place the later one stays, whichever way each of them takes.
TEST(WrittenResults, LaterCopyToTheSamePlaceStays) {
  Results results(2 * kMiB);
  Pulling& pulling = results.pulling;
  const Bytes other = random_bytes(2 * kMiB, 22);
  const std::uint64_t second = pulling.world->allocate(other.size());
  ASSERT_EQ(pulling.copy(second, other, Session::Reading::kNow), 0);
  VerbsDouble::inject("delays us=500");
  for (int round = 0; round < 6; ++round) {
    ASSERT_TRUE(pulling.may_be_written(results.destination)) << "an earlier write is no reason";
    ASSERT_EQ(pulling.copy_back(results.destination, results.device, false), 0);
    MutableBytes part = results.destination;
    if (round % 2 == 1) part = part.subspan(kMiB / 2, 1000);
    ASSERT_EQ(pulling.session().copy_out(pulling.world->lane(),
                                         pulling.world->site("cuMemcpyDtoHAsync_v2"), part, second,
                                         false),
              0);
    EXPECT_FALSE(pulling.may_be_written(results.destination))
        << "a thread of this process still writes there";
    ASSERT_EQ(pulling.world->synchronize(), 0);
    Bytes expected = round % 2 == 1 ? results.source : other;
    if (round % 2 == 1) std::copy_n(other.begin(), 1000, expected.begin() + kMiB / 2);
    EXPECT_TRUE(results.destination == expected) << round;
  }
}

// As a program does that frees its memory behind an event.
TEST(WrittenResults, MemoryEndsOnceTheCopyIsDone) {
  Results results(4 * kMiB);
  Pulling& pulling = results.pulling;
  VerbsDouble::inject("delays us=2000");
  for (int round = 0; round < 4; ++round) {
    auto destination = std::make_unique<Bytes>(results.source.size());
    ASSERT_TRUE(pulling.may_be_written(*destination));
    ASSERT_EQ(pulling.copy_back(*destination, results.device, false), 0);
    ASSERT_EQ(pulling.world->synchronize(), 0);
    const verbs_double_counts before = VerbsDouble::counts();
    pulling.session().take_back(*destination);
    EXPECT_EQ(VerbsDouble::counts().deregistrations - before.deregistrations, 1U);
    EXPECT_TRUE(*destination == results.source);
    destination.reset();
  }
  EXPECT_EQ(pulling.session().connections_that_left().count, 0U) << "a write met memory that ended";
}

TEST(WrittenResults, CopyEndsRightWhenTheQueuePairFails) {
  for (const char* fault :
       {"completes_with at=1 kind=write status=10", "completes_with at=9 kind=write status=12",
        "completes_with at=18 kind=write status=12",  // The last one.
        "post_fails at=5 kind=write error=ENOMEM", "post_fails at=18 kind=write error=ENOMEM",
        "breaks_qp bytes=3000000", "cuts_qp bytes=2000000", "port_down port=1 bytes=2000000",
        "stops_qp bytes=2000000"}) {
    for (const bool wait : {false, true}) {
      Results results(9 * kMiB);
      Pulling& pulling = results.pulling;
      ASSERT_TRUE(pulling.may_be_written(results.destination));
      const std::uint64_t taken_back = VerbsDouble::counts().deregistrations;
      VerbsDouble::inject(fault);
      const auto before = std::chrono::steady_clock::now();
      ASSERT_EQ(pulling.copy_back(results.destination, results.device, wait), 0);
      if (!wait) {
        EXPECT_EQ(pulling.world->synchronize(), 0) << fault;
      }
      EXPECT_TRUE(results.destination == results.source) << fault;
      EXPECT_EQ(VerbsDouble::counts().deregistrations, taken_back + 1)
          << fault << ": the worker may still write";
      EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20)) << fault;
      EXPECT_FALSE(pulling.may_be_written(results.destination)) << fault;
      EXPECT_EQ(pulling.session().pulls().why_unwritten,
                "the server could not write an earlier copy");
      // What is not lent any more is sent.
      std::memset(results.destination.data(), 0, results.destination.size());
      ASSERT_EQ(pulling.copy_back(results.destination, results.device, wait), 0);
      EXPECT_EQ(pulling.world->synchronize(), 0) << fault;
      EXPECT_TRUE(results.destination == results.source) << fault;
    }
  }
}

TEST(WrittenResults, LostQueuePairEndsCopyWithinTwoSeconds) {
  for (const char* fault : kLostQueuePairs) {
    const auto took = shortest_time([fault] {
      Results results(9 * kMiB);
      EXPECT_TRUE(results.pulling.may_be_written(results.destination));
      VerbsDouble::inject(fault);
      const auto before = std::chrono::steady_clock::now();
      EXPECT_EQ(results.pulling.copy_back(results.destination, results.device, true), 0) << fault;
      const auto took = std::chrono::steady_clock::now() - before;
      EXPECT_TRUE(results.destination == results.source) << fault;
      EXPECT_GT(results.pulling.session().connections_that_left().count, 0U) << fault;
      return took;
    });
    EXPECT_LT(took, kLostFabricEnds) << fault;
  }
}

// The worker gets a copy of the memory, and the kernel notes no write of a device. So a later write
// would be lost to the worker.
TEST(WrittenResults, EndOfDeviceWritesWaitsForThoseUnderWay) {
  Results results(4 * kMiB);
  Pulling& pulling = results.pulling;
  ASSERT_TRUE(pulling.may_be_written(results.destination));
  VerbsDouble::inject("delays us=3000");
  ASSERT_EQ(pulling.copy_back(results.destination, results.device, false), 0);
  pulling.session().end_device_writes(results.destination);
  EXPECT_TRUE(results.destination == results.source) << "a write was under way";
  EXPECT_FALSE(pulling.may_be_written(results.destination));
  EXPECT_EQ(pulling.session().pulls().why_unwritten, "the device reaches the memory");
  // The next one is sent, and other memory is written.
  const std::uint64_t written = pulling.written_bytes();
  std::memset(results.destination.data(), 0, results.destination.size());
  ASSERT_EQ(pulling.copy_back(results.destination, results.device, true), 0);
  EXPECT_TRUE(results.destination == results.source);
  EXPECT_EQ(pulling.written_bytes(), written);
  Bytes other(results.source.size());
  EXPECT_TRUE(pulling.may_be_written(other));
  EXPECT_EQ(pulling.session().connections_that_left().count, 0U);
}

// A write that cannot come in time, such as one of a stream that waits, comes as chunks.
TEST(WrittenResults, EndOfDeviceWritesTakesTheRightFromLateWrites) {
  Results results(2 * kMiB);
  Pulling& pulling = results.pulling;
  ASSERT_TRUE(pulling.may_be_written(results.destination));
  const std::uint64_t taken_back = VerbsDouble::counts().deregistrations;
  VerbsDouble::inject("delays us=700000");  // The record, and then each write.
  ASSERT_EQ(pulling.copy_back(results.destination, results.device, false), 0);
  pulling.session().end_device_writes(results.destination);
  EXPECT_EQ(VerbsDouble::counts().deregistrations, taken_back + 1) << "the worker may still write";
  EXPECT_EQ(pulling.world->synchronize(), 0);
  EXPECT_TRUE(results.destination == results.source);
  EXPECT_FALSE(pulling.may_be_written(results.destination));
}

// Several copies are under way, and some of them have not begun.
TEST(WrittenResults, EveryCopyEndsRightWhenTheQueuePairFails) {
  Results results(3 * kMiB);
  Pulling& pulling = results.pulling;
  std::vector<Bytes> destinations(5, Bytes(results.source.size()));
  for (const Bytes& each : destinations) ASSERT_TRUE(pulling.may_be_written(each));
  VerbsDouble::inject("breaks_qp bytes=7000000");
  for (Bytes& each : destinations) {
    client::CallSite site =
        pulling.world->site("cuMemcpyDtoHAsync_v2", pulling.world->make_stream());
    ASSERT_EQ(pulling.session().copy_out(pulling.world->lane(), site, each, results.device, false,
                                         Session::Arrival::kWritten),
              0);
  }
  ASSERT_EQ(pulling.world->synchronize(), 0);
  for (const Bytes& each : destinations) EXPECT_TRUE(each == results.source);
}

TEST(WrittenResults, LostReportCostsTheCarrierAtMost) {
  Results results(3 * kMiB);
  ASSERT_TRUE(results.pulling.may_be_written(results.destination));
  VerbsDouble::inject("loses_completion at=6 kind=write");  // The last one.
  ASSERT_EQ(results.pulling.copy_back(results.destination, results.device, true), 0);
  EXPECT_TRUE(results.destination == results.source);
}

// The worker writes where the client says, in the client's memory. A wrong name costs RDMA.
TEST(WrittenResults, WrongKeyLengthOrAddressEndsInTheSocketsBytes) {
  for (const Lie lie : {Lie::kKey, Lie::kLength, Lie::kAddress}) {
    Results results(6 * kMiB, lie);
    ASSERT_TRUE(results.pulling.may_be_written(results.destination));
    ASSERT_EQ(results.pulling.copy_back(results.destination, results.device, true), 0);
    EXPECT_TRUE(results.destination == results.source);
    EXPECT_FALSE(results.pulling.may_be_written(results.destination));
  }
}

TEST(WrittenResults, CopyThatFailsOnTheDeviceLeavesMemoryFree) {
  Results results(2 * kMiB);
  Pulling& pulling = results.pulling;
  ASSERT_TRUE(pulling.may_be_written(results.destination));
  client::CallSite site = pulling.world->site("cuMemcpyDtoHAsync_v2", std::uint64_t{12345} << 20);
  EXPECT_NE(pulling.session().copy_out(pulling.world->lane(), site, results.destination,
                                       results.device, true, Session::Arrival::kWritten),
            0);  // No such stream.
  EXPECT_FALSE(pulling.session().may_still_write(results.destination));
  ASSERT_TRUE(pulling.may_be_written(results.destination));
  ASSERT_EQ(pulling.copy_back(results.destination, results.device, true), 0);
  EXPECT_TRUE(results.destination == results.source);
}

TEST(WrittenResults, WhatCannotBeWrittenIsSentAndCounted) {
  {
    Pulling pulling("rdma0 immediate=plain");
    EXPECT_FALSE(pulling.may_be_written(Bytes(2 * kMiB)));
    EXPECT_EQ(pulling.session().pulls().unwritten, 0U) << "such a session has nothing to lend to";
  }
  {
    Pulling::Options options;
    options.knows = false;
    Pulling pulling("rdma0", options);
    EXPECT_FALSE(pulling.may_be_written(Bytes(2 * kMiB)));
  }
  Results results(2 * kMiB);
  Pulling& pulling = results.pulling;
  EXPECT_FALSE(pulling.session().may_be_written(
      results.destination, ByteView(results.destination).first(limits::kPulledBytesMin - 1)));
  VerbsDouble::inject("memlock bytes=1000");
  EXPECT_FALSE(pulling.may_be_written(results.destination));
  EXPECT_EQ(pulling.session().pulls().unwritten, 1U);
  EXPECT_NE(pulling.session().pulls().why_unwritten.find("does not register"), std::string::npos);
  ASSERT_EQ(pulling.copy_back(results.destination, results.device, true), 0);
  EXPECT_TRUE(results.destination == results.source);
}

// The worker's own staging memory is refused: it sends the bytes.
TEST(WrittenResults, WorkerWithoutMemoryForWritesSendsBytes) {
  Results results(2 * kMiB);
  ASSERT_TRUE(results.pulling.may_be_written(results.destination));
  VerbsDouble::inject("memlock bytes=1000");
  ASSERT_EQ(results.pulling.copy_back(results.destination, results.device, true), 0);
  EXPECT_TRUE(results.destination == results.source);
  EXPECT_EQ(results.pulling.session().connections_that_left().count, 0U);
}

}  // namespace
}  // namespace gpurun::callpath
