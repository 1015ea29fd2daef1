// Bulk on the worker: bytes stall only their own stream, and a credit returns when the device has
// the bytes. No reply overtakes a completed copy. Memory is bounded both ways. A client that breaks
// the contract gets the reason and loses its session.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "server/bulk/bulk_out.h"
#include "tests/unit/server/bulk/bulk_parts.h"
#include "tests/unit/server/worker/channels/raw_client.h"

namespace gpurun::server {
namespace {

using protocol::FrameKind;
using protocol::ReplyKind;

constexpr std::uint16_t kFence = protocol::kFlagFence;

Bytes pattern(std::size_t byte_count) {
  Bytes bytes(byte_count);
  unsigned value = 7;
  for (std::byte& each : bytes) each = static_cast<std::byte>((value = value * 75 + 74) >> 3);
  return bytes;
}
ByteView part(const Bytes& of, std::size_t offset) {
  return ByteView(of).subspan(offset, std::min(kChunk, of.size() - offset));
}
StepDevice& device() { return StepDevice::device(); }

// A device that works by itself during its lifetime.
class Running {
 public:
  ~Running() {
    stopping_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stopping_{false};
  std::thread thread_{[this] {
    while (!stopping_) {
      device().run(1);
      device().run(2);
      std::this_thread::yield();
    }
  }};
};

TEST(WorkerBulk, CopyInWaitsForBytesAndReturnsCreditWhenRetired) {
  RawClient client;
  const Bytes bytes = pattern(2 * kChunk + 5);
  Bytes memory(bytes.size());
  client.copy_in(1, memory.data(), bytes.size(), 1);
  std::byte other{};
  client.fill(&other, 3, 1, kFence, 2);  // Another stream, which waits for nothing.
  EXPECT_EQ(client.item().header.result, 0);
  EXPECT_EQ(device().queued(1) + device().queued(2), 1u);

  client.chunk(1, 0, bytes.size(), part(bytes, 0));
  client.chunk(1, kChunk, bytes.size(), part(bytes, kChunk));
  client.chunk(1, 2 * kChunk, bytes.size(), part(bytes, 2 * kChunk));
  // The driver's queue holds all of it, and nothing has retired.
  ASSERT_TRUE(eventually([] { return device().queued(1) + device().queued(2) >= 5; }));
  EXPECT_TRUE(client.bulk_is_quiet());
  const Running running;
  for (std::uint64_t retired = 0; retired != bytes.size();) {
    const RawClient::BulkFrame frame = client.bulk();
    ASSERT_EQ(frame.kind, FrameKind::kChunkReceipt);
    retired = frame.header.offset;
  }
  EXPECT_EQ(memory, bytes);
}

TEST(WorkerBulk, RequestsOnDemandBytesWhenStreamReachesCopy) {
  RawClient client;
  const Bytes from = pattern(kChunk + 3);
  client.copy_out(1, from.data(), from.size(), 0, 1);
  const Bytes bytes = pattern(kChunk + 5);
  Bytes memory(bytes.size());
  const std::uint64_t call =
      client.copy_in(2, memory.data(), bytes.size(), 1, protocol::kFlagBulkOnDemand);
  std::byte other{};
  client.fill(&other, 3, 1, kFence, 2);
  EXPECT_EQ(client.item().header.kind, ReplyKind::kReply)
      << "asked for before the stream was there";
  device().run(1);
  const RawClient::Item asked = client.item();
  EXPECT_EQ(asked.header.kind, ReplyKind::kBytesWanted);
  EXPECT_EQ(asked.header.subject, 2u);
  EXPECT_EQ(asked.header.call_sequence, call);
  EXPECT_EQ(asked.header.watermark, 1u) << "what was copied out before may be what is copied in";
  client.chunk(2, 0, bytes.size(), part(bytes, 0));
  client.chunk(2, kChunk, bytes.size(), part(bytes, kChunk));
  const Running running;
  ASSERT_TRUE(eventually([&] { return client.bulk().header.offset == bytes.size(); }));
  EXPECT_EQ(memory, bytes);
}

TEST(WorkerBulk, FailedOnDemandCopyReportsCallError) {
  RawClient client;
  Bytes memory(kChunk);
  client.fill(memory.data(), 1, 1, 0, 1);
  const std::uint64_t call =
      client.copy_in(2, nullptr, kChunk, 1, protocol::kFlagBulkOnDemand);  // The device refuses it.
  std::byte other{};
  client.fill(&other, 3, 1, kFence, 2);
  EXPECT_EQ(client.item().header.kind, ReplyKind::kReply);
  device().run(1);
  EXPECT_EQ(client.item().header.kind, ReplyKind::kBytesWanted);
  client.chunk(2, 0, kChunk, part(pattern(kChunk), 0));
  const RawClient::Item failed = client.item();
  EXPECT_EQ(failed.header.kind, ReplyKind::kCallError);
  EXPECT_EQ(failed.header.call_sequence, call);
}

TEST(WorkerBulk, AcceptsBytesBeforeTheirCall) {
  RawClient client;
  const Bytes bytes = pattern(kChunk + 1);
  Bytes memory(bytes.size());
  client.chunk(9, kChunk, bytes.size(), part(bytes, kChunk));  // In reverse order.
  client.chunk(9, 0, bytes.size(), part(bytes, 0));
  client.copy_in(9, memory.data(), bytes.size());
  const Running running;
  while (client.bulk().header.offset != bytes.size()) ASSERT_FALSE(::testing::Test::HasFailure());
  EXPECT_EQ(memory, bytes);
}

TEST(WorkerBulk, CopyOutAdvancesWatermarkWhenDeviceIsDone) {
  RawClient client;
  const Bytes memory = pattern(kChunk + 3);
  client.copy_out(1, memory.data(), memory.size(), 0, 1);
  std::byte other{};
  client.fill(&other, 3, 1, kFence, 2);
  EXPECT_EQ(client.item().header.watermark, 0u);  // Nothing has arrived, and the fence does not
                                                  // wait for it.
  device().run(1);
  client.fill(&other, 4, 1, kFence, 2);
  EXPECT_EQ(client.item().header.watermark, 1u);
  const RawClient::BulkFrame first = client.bulk();
  const RawClient::BulkFrame second = client.bulk();
  EXPECT_EQ(first.header.watermark, 0u);
  EXPECT_EQ(second.header.watermark, 1u);
  Bytes got = first.bytes;
  got.insert(got.end(), second.bytes.begin(), second.bytes.end());
  EXPECT_EQ(got, memory);
}

TEST(WorkerBulk, AwaitedCopyOutRepliesAfterItsBytes) {
  RawClient client;
  const Bytes memory = pattern(3 * kChunk);
  client.copy_out(1, memory.data(), memory.size(), kFence);
  // Three chunks with an event each, and the event of the reply. Work that is queued after run()
  // stays.
  ASSERT_TRUE(eventually([] { return device().queued(1) >= 7; }));
  device().run(1);
  const RawClient::Item reply = client.item();
  EXPECT_EQ(reply.header.result, 0);
  EXPECT_EQ(reply.header.watermark, 1u);
}

// The worker's bound for a client that reads nothing: requested chunks, chunks that arrived, and
// bytes in the connection.
TEST(WorkerBulk, LimitsCopyOutWhileClientReadsNothing) {
  RawClient client;
  const Bytes memory = pattern(64 * kChunk);
  client.copy_out(1, memory.data(), memory.size());
  // Each has an event behind it.
  ASSERT_TRUE(eventually([] { return device().queued(1) == 2 * kChunksAskedMax; }));
  constexpr std::size_t kHeldMax =
      kChunksAskedMax + kBytesAheadMax / kChunk + transport::loopback::kQueueBytes / kChunk + 3;
  std::size_t done = 0;
  while (const std::size_t asked = device().queued(1)) {
    done += asked / 2;
    device().run(1);
    const Deadline quiet = Deadline::in(std::chrono::milliseconds(50));
    while (device().queued(1) < 2 && !quiet.passed()) std::this_thread::yield();
  }
  EXPECT_LE(done, kHeldMax);
  const Running running;
  for (std::uint64_t got = 0; got < memory.size();) {
    const RawClient::BulkFrame frame = client.bulk();
    ASSERT_FALSE(frame.bytes.empty());
    EXPECT_EQ(frame.header.offset, got);
    EXPECT_EQ(frame.bytes[0], memory[got]);
    got += frame.bytes.size();
  }
}

// The slots are shared, so a copy behind a long kernel requests only a part of them.
TEST(WorkerBulk, CopyBehindLongKernelLeavesSlotsToOtherStreams) {
  RawClient client;
  const Bytes memory = pattern(2 * kChunksAskedMax * kChunk);
  client.copy_out(1, memory.data(), memory.size(), 0, 1);
  ASSERT_TRUE(eventually([] { return device().queued(1) == 2 * kChunksAskedMax; }));
  client.copy_out(2, memory.data(), kChunk, 0, 2);
  ASSERT_TRUE(eventually([] { return device().queued(2) == 2; }));
  device().run(2);
  EXPECT_EQ(client.bulk().header.transfer, 2u);
}

TEST(WorkerBulk, AbandonsFailedCopiesInBothDirections) {
  RawClient client;
  client.copy_out(1, nullptr, kChunk);
  RawClient::BulkFrame frame = client.bulk();
  EXPECT_EQ(frame.kind, FrameKind::kChunkAbandoned);
  EXPECT_EQ(frame.header.transfer, 1u);
  RawClient::Item item = client.item();
  EXPECT_EQ(item.header.kind, ReplyKind::kCallError);
  EXPECT_EQ(item.header.result, StepDevice::kInvalidValue);

  const Bytes bytes = pattern(2 * kChunk);
  client.copy_in(2, nullptr, bytes.size());
  client.chunk(2, 0, bytes.size(), part(bytes, 0));
  std::byte other{};  // The device may write it last.
  const Running running;
  while (frame.kind != FrameKind::kChunkAbandoned || frame.header.transfer != 2) {
    ASSERT_FALSE(::testing::Test::HasFailure());
    frame = client.bulk();
  }
  item = client.item();
  EXPECT_EQ(item.header.kind, ReplyKind::kCallError);
  client.chunk(2, kChunk, bytes.size(), part(bytes, kChunk));  // It was on its way.
  client.fill(&other, 3, 1, kFence);
  EXPECT_EQ(client.item().header.result, 0);
}

// The client gives up the transfer before its call or after it, with or without bytes. The call
// fails, and the session goes on.
TEST(WorkerBulk, TransferAbandonedByClientFailsOnlyItsCall) {
  RawClient client;
  const Bytes bytes = pattern(3 * kChunk);
  Bytes memory(bytes.size());
  client.chunk(1, 0, bytes.size(), part(bytes, 0));
  client.bulk_frame(FrameKind::kChunkAbandoned, {1, 0, bytes.size(), 0}, {});
  client.chunk(1, kChunk, bytes.size(), part(bytes, kChunk));  // It was on another connection.
  const std::uint64_t first = client.copy_in(1, memory.data(), bytes.size());
  RawClient::Item told = client.item();
  EXPECT_EQ(told.header.kind, ReplyKind::kCallError);
  EXPECT_EQ(told.header.call_sequence, first);
  EXPECT_EQ(told.header.result, kErrorUnknown);

  const std::uint64_t second = client.copy_in(2, memory.data(), bytes.size(), 1, kFence);
  client.chunk(2, 0, bytes.size(), part(bytes, 0));
  client.bulk_frame(FrameKind::kChunkAbandoned, {2, 0, bytes.size(), 0}, {});
  told = client.item();
  EXPECT_EQ(told.header.call_sequence, second);
  EXPECT_EQ(told.header.result, kErrorUnknown);

  const Running running;
  client.chunk(3, 0, kChunk, part(bytes, 0));
  const std::uint64_t third = client.copy_in(3, memory.data(), kChunk, 1, kFence);
  told = client.item();
  EXPECT_EQ(told.header.call_sequence, third);
  EXPECT_EQ(told.header.result, 0);
}

TEST(WorkerBulk, DeviceFaultAbandonsCopyOut) {
  RawClient client;
  const Bytes memory = pattern(kChunk);
  const std::uint64_t call = client.copy_out(1, memory.data(), memory.size());
  ASSERT_TRUE(eventually([] { return device().queued(1) == 2; }));
  device().fail(700);
  EXPECT_EQ(client.bulk().kind, FrameKind::kChunkAbandoned);
  const RawClient::Item item = client.item();
  EXPECT_EQ(item.header.kind, ReplyKind::kCallError);
  EXPECT_EQ(item.header.flags, protocol::kReplyFlagSticky);
  EXPECT_EQ(item.header.call_sequence, call);
}

TEST(WorkerBulk, OneStreamDoesNotFillDriverQueue) {
  WorkerOptions options;
  options.launch_depth = 64;
  RawClient client(options);
  std::byte target{};
  constexpr int kFills = 1000;
  for (int i = 0; i < kFills; ++i) client.fill(&target, 1, 1, 0, 1);
  std::byte other{};
  client.fill(&other, 3, 1, kFence, 2);  // Another stream goes on.
  EXPECT_EQ(client.item().header.result, 0);
  EXPECT_LE(device().longest_queue(), 64u + 64 / 8);
  const std::uint64_t last = client.fill(&target, 2, 1, kFence, 1);
  const Running running;
  EXPECT_EQ(client.item().header.call_sequence, last);
  EXPECT_LE(device().longest_queue(), 64u + 64 / 8);
}

// A way to break the contract.
struct Breach {
  const char* name;
  const char* reason;
  void (*commit)(RawClient&);
};
class WorkerBulkBreach : public ::testing::TestWithParam<Breach> {};

TEST_P(WorkerBulkBreach, EndsSessionWithReason) {
  RawClient client;
  GetParam().commit(client);
  EXPECT_NE(client.goodbye().find(GetParam().reason), std::string::npos);
  EXPECT_EQ(client.end().code(), Code::kProtocol);
}

const Breach kBreaches[] = {
    {"ChunkOffTheGrid", "not on the grid",
     [](RawClient& client) { client.chunk(1, 8, kChunk + 8, Bytes(kChunk)); }},
    {"ShortChunk", "not on the grid",
     [](RawClient& client) { client.chunk(1, 0, kChunk, Bytes(kChunk - 1)); }},
    {"EmptyChunk", "not on the grid", [](RawClient& client) { client.chunk(1, 0, kChunk, {}); }},
    {"ChunkBeyondItsTransfer", "reaches outside",
     [](RawClient& client) { client.chunk(1, 0, 4, Bytes(8)); }},
    {"NoTransfer", "no transfer", [](RawClient& client) { client.chunk(0, 0, 8, Bytes(8)); }},
    {"ChunkTwice", "comes twice",
     [](RawClient& client) {
       client.chunk(1, 0, 2 * kChunk, Bytes(kChunk));
       client.chunk(1, 0, 2 * kChunk, Bytes(kChunk));
     }},
    {"TotalsDisagree", "disagree",
     [](RawClient& client) {
       client.chunk(1, 0, 3 * kChunk, Bytes(kChunk));
       client.chunk(1, kChunk, 2 * kChunk, Bytes(kChunk));
     }},
    {"TotalIsNotTheCalls", "disagree",
     [](RawClient& client) {
       std::byte memory{};
       client.copy_in(1, &memory, 2 * kChunk, 0);
       client.fill(&memory, 1, 1, kFence, 5);
       EXPECT_EQ(client.item().header.result, 0);
       client.chunk(1, 0, 3 * kChunk, Bytes(kChunk));
     }},
    {"MoreThanTheWindow", "credit",
     [](RawClient& client) {
       const Bytes bytes(kChunk);
       const std::size_t slots = limits::kBulkWindowBytes / kChunk;
       for (std::size_t i = 0; i <= slots; ++i) client.chunk(1 + i, 0, kChunk, bytes);
     }},
    {"ReceiptForNothing", "never sent",
     [](RawClient& client) {
       static const Bytes memory(kChunk);
       client.copy_out(1, memory.data(), memory.size());
       EXPECT_TRUE(eventually([] { return device().queued(1) == 2; }));
       client.bulk_frame(FrameKind::kChunkReceipt, {1, kChunk, kChunk, 0}, {});
     }},
};
INSTANTIATE_TEST_SUITE_P(Each, WorkerBulkBreach, ::testing::ValuesIn(kBreaches),
                         [](const auto& of) { return std::string(of.param.name); });

TEST(WorkerBulk, AcceptsFullWindowInFlight) {
  RawClient client;
  const Bytes bytes = pattern(kChunk);
  constexpr std::size_t kSlots = limits::kBulkWindowBytes / kChunk;
  for (std::size_t i = 1; i <= kSlots; ++i) client.chunk(i, 0, kChunk, bytes);
  // The last transfer is as valid as any, because none has ended the session. Uses the largest
  // number of chunks for which a receipt waits.
  std::vector<Bytes> memory(limits::kChunksPerReceipt, Bytes(kChunk));
  for (std::size_t i = 0; i < memory.size(); ++i) {
    client.copy_in(kSlots - i, memory[i].data(), kChunk);
  }
  const Running running;
  for (std::size_t i = memory.size(); i-- > 0;) {
    const RawClient::BulkFrame receipt = client.bulk();
    EXPECT_EQ(receipt.kind, FrameKind::kChunkReceipt);
    EXPECT_EQ(receipt.header.transfer, kSlots - i);
    EXPECT_EQ(memory[i], bytes);
  }
}

TEST(WorkerBulk, FailsOversizedImageAndWaitsForImageAtLimit) {
  WorkerOptions options;
  options.handlers.generic = [](Call&) { return CallOutcome::done(0); };
  RawClient client(options);
  protocol::RecordHeader load;
  load.form = protocol::Form::kRaw;
  load.order = protocol::Order::kStream;
  load.flags = kFence;
  load.bulk = 1;
  const std::uint64_t waits = client.record(load, {}, 1);
  client.chunk(1, 0, limits::kImageBytesMax, Bytes(kChunk));
  load.bulk = 2;
  const std::uint64_t fails = client.record(load, {}, 2);
  client.chunk(2, 0, limits::kImageBytesMax + 1, Bytes(kChunk));
  RawClient::Item answer = client.item();
  EXPECT_EQ(answer.header.call_sequence, fails);
  EXPECT_EQ(answer.header.result, StepDevice::kInvalidValue);
  // The other one still waits for its bytes. Small ones arrive soon.
  load.bulk = 3;
  const std::uint64_t small = client.record(load, {}, 3);
  client.chunk(3, 0, 8, Bytes(8));
  answer = client.item();
  EXPECT_EQ(answer.header.call_sequence, small);
  EXPECT_EQ(answer.header.result, 0);
  EXPECT_LT(waits, small);
}

// One of several connections may bring the first chunk last. The client's window may be full by
// then, so that no other chunk causes a receipt.
TEST(WorkerBulk, ClosingGapSendsReceipt) {
  constexpr std::size_t kCame = 6;
  WorkerOptions options;
  options.handlers.generic = [](Call&) { return CallOutcome::done(0); };
  RawClient client(options);
  const Bytes bytes = pattern(8 * kChunk);
  protocol::RecordHeader load;
  load.form = protocol::Form::kRaw;
  load.order = protocol::Order::kStream;
  load.flags = kFence;
  load.bulk = 1;
  client.record(load, {}, 1);
  for (std::size_t i = 1; i < kCame; ++i)
    client.chunk(1, i * kChunk, bytes.size(), part(bytes, i * kChunk));
  client.chunk(1, 0, bytes.size(), part(bytes, 0));
  std::uint64_t told = 0;
  while (told != kCame * kChunk && !HasFailure()) {
    const RawClient::BulkFrame frame = client.bulk();
    if (frame.kind == FrameKind::kChunkReceipt) told = frame.header.offset;
  }
  EXPECT_EQ(told, kCame * kChunk);
}

TEST(WorkerBulk, LostBulkConnectionEndsSession) {
  RawClient client;
  Bytes memory(4 * kChunk);
  client.copy_in(1, memory.data(), memory.size());
  client.chunk(1, 0, memory.size(), Bytes(kChunk));
  client.cut_bulk();
  EXPECT_EQ(client.end().code(), Code::kPeerGone);
}

TEST(WorkerBulk, ReusingPendingTransferFailsOnlySecondCall) {
  RawClient client;
  const Bytes bytes = pattern(kChunk);
  Bytes memory(bytes.size());
  client.copy_in(1, memory.data(), bytes.size(), 1);
  Bytes thief(bytes.size());
  client.copy_in(1, thief.data(), bytes.size(), 2);
  EXPECT_EQ(client.item().header.result, StepDevice::kInvalidValue);
  client.chunk(1, 0, bytes.size(), bytes);
  ASSERT_TRUE(eventually([&] { return (device().run(1), device().run(2), memory == bytes); }));
}

}  // namespace
}  // namespace gpurun::server
