// Bulk to the worker: copies stay within a bounded window and in order, and sent bytes stay
// untouched until they have left.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <map>
#include <vector>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "tests/unit/client/bulk/bulk_under_test.h"

namespace gpurun::client {
namespace {

TEST_F(BulkTest, PageableCopyBlocksAtWindowAndReleasesItsSource) {
  const Bytes original = pattern(33 * kMiB + 5);
  Bytes source = original;
  auto copy = std::async(std::launch::async, [&] {
    const int result = copy_in(source, Session::Reading::kNow);
    std::fill(source.begin(), source.end(), std::byte{0});  // The program reuses it.
    return result;
  });
  const FakeWorker::Record record = worker_->next();
  EXPECT_EQ(record.header.form, protocol::Form::kCopyIn);
  // Without receipts the copy stops at the transfer's window.
  Bytes whole(original.size());
  std::size_t got = 0;
  BulkFrame chunk;
  while (got < Bulk::kTransferWindowBytes) {
    chunk = next_bulk();
    ASSERT_FALSE(chunk.bytes.empty());
    std::copy(chunk.bytes.begin(), chunk.bytes.end(),
              whole.begin() + static_cast<std::ptrdiff_t>(chunk.bulk.offset));
    got += chunk.bytes.size();
  }
  EXPECT_EQ(got, Bulk::kTransferWindowBytes);
  EXPECT_NE(copy.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  while (got < original.size()) {
    receipt(chunk.bulk, got);
    chunk = next_bulk();
    ASSERT_FALSE(chunk.bytes.empty());
    std::copy(chunk.bytes.begin(), chunk.bytes.end(),
              whole.begin() + static_cast<std::ptrdiff_t>(chunk.bulk.offset));
    got += chunk.bytes.size();
  }
  EXPECT_EQ(copy.get(), 0);
  EXPECT_TRUE(whole == original);
}

// The process's resident memory in bytes (proc(5), statm).
std::size_t resident() {
  const UniqueFd statm(open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  char text[128] = {};
  if (read(statm.get(), text, sizeof text - 1) <= 0) return 0;
  char* second = nullptr;
  static_cast<void>(std::strtoull(text, &second, 10));
  return std::strtoull(second, nullptr, 10) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// An idle session does not keep the memory of its earlier work.
TEST_F(BulkTest, UnusedWindowIsReturnedToSystem) {
  const Bytes source = pattern(16 * kMiB);
  Bulk& bulk = session_->bulk();
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(copy_in(source, Session::Reading::kNow), 0);
    const FakeWorker::Record record = worker_->next();
    const std::size_t full = resident();
    bulk.trim();
    bulk.trim();
    EXPECT_GT(resident() + 8 * kMiB, full) << "it is still to be sent";
    EXPECT_TRUE(take_transfer(record.header.bulk, source.size()) == source);
    auto behind = fence();
    worker_->reply(worker_->next());
    EXPECT_EQ(behind.get(), 0);
    const std::size_t idle = resident();
    const Deadline soon = Deadline::in(std::chrono::seconds(20));
    // After the last receipt has arrived.
    while (resident() + 8 * kMiB > idle && !soon.passed()) bulk.trim();
    EXPECT_FALSE(soon.passed());
  }
}

TEST_F(BulkTest, PinnedCopyReturnsAtOnce) {
  const Bytes source = pattern(20 * kMiB);
  ASSERT_EQ(copy_in(source, Session::Reading::kSoon), 0);  // The worker reads nothing yet.
  const FakeWorker::Record record = worker_->next();
  EXPECT_TRUE(take_transfer(record.header.bulk, source.size()) == source);
  session_->await_read(source);
}

TEST_F(BulkTest, InTurnCopySendsBytesOfEarlierCopyOut) {
  Bytes memory(100, std::byte{1});  // Any size.
  ASSERT_EQ(copy_out(memory, false).get(), 0);
  const FakeWorker::Record out = worker_->next();
  ASSERT_EQ(copy_in(memory, Session::Reading::kInTurn), 0);
  const FakeWorker::Record in = worker_->next();
  EXPECT_EQ(in.header.form, protocol::Form::kCopyIn);
  EXPECT_NE(in.header.flags & protocol::kFlagBulkOnDemand, 0);
  EXPECT_TRUE(session_->reads(memory));
  EXPECT_FALSE(session_->reads(ByteView(memory).first(0)));
  auto freeing = std::async(std::launch::async, [&] { session_->await_read(memory); });
  // The worker asks for the bytes before those of the copy out have arrived. It then waits for the
  // latter.
  want(in, 1);
  auto behind = fence();
  worker_->reply(worker_->next());
  EXPECT_EQ(behind.get(), 0);
  EXPECT_NE(freeing.wait_for(std::chrono::milliseconds(20)), std::future_status::ready);
  const Bytes came = pattern(memory.size());
  send_bulk(protocol::FrameKind::kChunk, {out.header.bulk, 0, memory.size(), 1}, came);
  BulkFrame frame = next_bulk();
  while (frame.frame.kind != protocol::FrameKind::kChunk) frame = next_bulk();
  EXPECT_EQ(frame.bulk.transfer, in.header.bulk);
  EXPECT_EQ(frame.bytes, came);
  freeing.get();
}

// Otherwise a free would wait for ever while other threads keep copying.
TEST_F(BulkTest, AwaitSourcesReadIgnoresLaterCopies) {
  static const Bytes first = pattern(100);
  static const Bytes second = pattern(200);
  ASSERT_EQ(copy_in(first, Session::Reading::kInTurn), 0);
  const FakeWorker::Record in = worker_->next();
  const std::uint64_t last = session_->bulk().last_begun();
  ASSERT_EQ(copy_in(second, Session::Reading::kInTurn), 0);
  const FakeWorker::Record later = worker_->next();
  auto freeing = std::async(std::launch::async, [this, last] {
    session_->bulk().await_sources_read(last);
    return session_->reads(second);
  });
  want(in, 0);
  EXPECT_TRUE(take_transfer(in.header.bulk, first.size()) == first);
  EXPECT_TRUE(freeing.get()) << "it waited for the later one, too";
  want(later, 0);
  EXPECT_TRUE(take_transfer(later.header.bulk, second.size()) == second);
}

TEST_F(BulkTest, InTurnCopyProceedsWhenLaterCopiesFillWindow) {
  static const Bytes turn = pattern(2 * Bulk::kTurnSlots * limits::kBulkChunkBytes);
  static const Bytes later = pattern(Bulk::kTransferWindowBytes);
  ASSERT_EQ(copy_in(turn, Session::Reading::kInTurn), 0);
  const FakeWorker::Record in = worker_->next();
  for (int i = 0; i < 5; ++i) ASSERT_EQ(copy_in(later, Session::Reading::kSoon), 0);
  constexpr std::size_t kSlots = limits::kBulkWindowBytes / limits::kBulkChunkBytes;
  for (std::size_t i = 0; i < kSlots - Bulk::kTurnSlots; ++i) {
    EXPECT_NE(next_bulk().bulk.transfer, in.header.bulk);
  }
  want(in, 0);
  EXPECT_TRUE(take_transfer(in.header.bulk, turn.size()) == turn);
}

TEST_F(BulkTest, RequestForUnofferedBytesEndsSession) {
  static const Bytes source = pattern(kMiB);
  ASSERT_EQ(copy_in(source, Session::Reading::kNow), 0);
  want(worker_->next(), 0);
  EXPECT_EQ(fence().get(), kResultPeerGone);
  EXPECT_EQ(session_->death().code(), Code::kProtocol);

  begin(quiet());
  ASSERT_EQ(copy_in(source, Session::Reading::kInTurn), 0);
  FakeWorker::Record record = worker_->next();
  record.header.bulk += 1;
  auto freeing = std::async(std::launch::async, [&] { session_->await_read(source); });
  want(record, 0);
  freeing.get();  // No thread waits longer than the session lives.
  EXPECT_EQ(session_->death().code(), Code::kProtocol);
}

TEST_F(BulkTest, LargeTransferDoesNotDelayOtherStream) {
  // Static, because pinned sources are read until their copies are complete, and this test ends
  // earlier.
  static const Bytes large = pattern(8 * kMiB);
  static const Bytes small = pattern(2 * limits::kBulkChunkBytes);
  ASSERT_EQ(copy_in(large, Session::Reading::kSoon, 100), 0);
  ASSERT_EQ(copy_in(small, Session::Reading::kSoon, 101), 0);
  worker_->next();
  const std::uint64_t wanted = worker_->next().header.bulk;
  std::size_t of_small = 0;
  int chunks = 0;
  while (of_small < small.size() && chunks < 18) {
    const BulkFrame chunk = next_bulk();
    if (chunk.bulk.transfer == wanted) of_small += chunk.bytes.size();
    ++chunks;
  }
  EXPECT_LE(chunks, 8);
}

// Bytes that came before their turn would wait in the worker, and leave its caches.
TEST_F(BulkTest, TransfersOfStreamKeepTheirOrder) {
  static const Bytes source = pattern(8 * limits::kBulkChunkBytes);
  for (const Handle stream : {100, 100, 101, 100, 101}) {
    ASSERT_EQ(copy_in(source, Session::Reading::kSoon, stream), 0);
  }
  std::map<std::uint64_t, std::vector<std::uint64_t>> sent;  // Transfers by stream.
  std::map<std::uint64_t, std::uint64_t> stream_of;
  for (int i = 0; i < 5; ++i) {
    const FakeWorker::Record record = worker_->next();
    stream_of[record.header.bulk] = record.header.stream;
  }
  for (int i = 0; i < 5 * 8; ++i) {
    const BulkFrame chunk = next_bulk();
    sent[stream_of[chunk.bulk.transfer]].push_back(chunk.bulk.transfer);
  }
  EXPECT_EQ(sent[100].size(), 3 * 8U);
  EXPECT_TRUE(std::is_sorted(sent[100].begin(), sent[100].end()));
  EXPECT_EQ(sent[101].size(), 2 * 8U);
  EXPECT_TRUE(std::is_sorted(sent[101].begin(), sent[101].end()));
}

// The first send of a chunk blocks until the test releases it.
class StandingConnection final : public transport::Connection {
 public:
  explicit StandingConnection(std::unique_ptr<transport::Connection> inner)
      : inner_(std::move(inner)) {}
  const transport::Capabilities& capabilities() const override { return inner_->capabilities(); }
  const std::string& description() const override { return inner_->description(); }
  Status send(std::span<const ByteView> parts, Deadline deadline) override {
    ++sends_;
    if (parts.back().size() == limits::kBulkChunkBytes && !stood_.exchange(true)) {
      stands_.set_value();
      (void)let_go_.get_future().wait_for(std::chrono::seconds(20));
    }
    return inner_->send(parts, deadline);
  }
  Result<std::size_t> receive(MutableBytes into, std::size_t bytes_min,
                              Deadline deadline) override {
    return inner_->receive(into, bytes_min, deadline);
  }
  void shut_down() noexcept override { inner_->shut_down(); }
  int fd() const noexcept override { return inner_->fd(); }

  std::promise<void> stands_;
  std::promise<void> let_go_;
  std::atomic<int> sends_{0};

 private:
  const std::unique_ptr<transport::Connection> inner_;
  std::atomic<bool> stood_{false};
};

class BlockedSendBulkTest : public BulkTest {
 protected:
  void SetUp() override {
    worker_ = std::make_unique<FakeWorker>();
    Session::Channels channels = worker_->channels();
    auto owned = std::make_unique<StandingConnection>(std::move(channels.bulk.front()));
    standing_ = owned.get();
    channels.bulk.front() = std::move(owned);
    auto session = Session::start(std::move(channels), quiet());
    ASSERT_TRUE(session.ok());
    session_ = *std::move(session);
  }
  void await_standing() {
    ASSERT_EQ(standing_->stands_.get_future().wait_for(std::chrono::seconds(20)),
              std::future_status::ready);
  }

  StandingConnection* standing_ = nullptr;  // The session's.
};

// Each send costs both sides a pass through TCP.
TEST_F(BlockedSendBulkTest, CombinesConsecutiveShortTransfersIntoOneSend) {
  static const Bytes first = pattern(limits::kBulkChunkBytes);
  static const Bytes others = pattern(5 * 96 * 1024);  // Each one is too long for its record.
  ASSERT_EQ(copy_in(first, Session::Reading::kSoon, 100), 0);
  await_standing();
  for (std::size_t i = 0; i < 5; ++i) {
    const ByteView part = ByteView(others).subspan(i * others.size() / 5, others.size() / 5);
    ASSERT_EQ(copy_in(part, Session::Reading::kSoon, i % 2 == 0 ? 100 : 101), 0);
  }
  const int before = standing_->sends_;
  standing_->let_go_.set_value();
  EXPECT_EQ(next_bulk().bytes, first);
  std::map<std::uint64_t, ByteView> expected;
  worker_->next();
  for (std::size_t i = 0; i < 5; ++i) {
    expected[worker_->next().header.bulk] =
        ByteView(others).subspan(i * others.size() / 5, others.size() / 5);
  }
  for (std::size_t i = 0; i < 5; ++i) {
    const BulkFrame frame = next_bulk();
    const ByteView bytes = expected[frame.bulk.transfer];
    EXPECT_TRUE(std::equal(frame.bytes.begin(), frame.bytes.end(), bytes.begin(), bytes.end()));
  }
  EXPECT_EQ(standing_->sends_ - before, 1);
}

// A worker may acknowledge a chunk while our send() still reads it. (The network already has its
// last bytes, or the worker lies.) The slot may not be reused before send() returns.
TEST_F(BlockedSendBulkTest, SlotIsNotReusedDuringSend) {
  const Bytes first = pattern(limits::kBulkChunkBytes);
  const Bytes second(limits::kBulkChunkBytes, std::byte{0x55});
  ASSERT_EQ(copy_in(first, Session::Reading::kNow), 0);
  const std::uint64_t transfer = worker_->next().header.bulk;
  await_standing();
  receipt({transfer, 0, first.size(), 0}, first.size());
  // A reply right behind it on the same connection shows that the receipt was handled. Both are
  // polled.
  Bytes came(limits::kInlineBytesMax + 1);
  auto out = copy_out(came, true);
  const FakeWorker::Record asked = worker_->next();
  send_bulk(protocol::FrameKind::kChunk, {asked.header.bulk, 0, came.size(), 1},
            pattern(came.size()));
  worker_->reply(asked, 0, {}, 1);
  ASSERT_EQ(out.get(), 0);
  ASSERT_EQ(copy_in(second, Session::Reading::kNow), 0);  // It would take the same slot.
  standing_->let_go_.set_value();
  BulkFrame frame = next_bulk();
  while (frame.frame.kind != protocol::FrameKind::kChunk) frame = next_bulk();
  EXPECT_EQ(frame.bulk.transfer, transfer);
  EXPECT_EQ(frame.bytes, first);
}

TEST_F(BulkTest, PeerLossWakesCopyBlockedOnWindow) {
  const Bytes source = pattern(40 * kMiB);
  auto copy =
      std::async(std::launch::async, [&] { return copy_in(source, Session::Reading::kNow); });
  worker_->next();
  next_bulk();
  worker_->goodbye("the worker exited with status 1");
  EXPECT_EQ(copy.get(), kResultPeerGone);
}

}  // namespace
}  // namespace gpurun::client
