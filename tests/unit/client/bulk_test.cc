// Copies as bulk: within a bounded window, and no completion is told before its bytes are in place.
#include "client/bulk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <vector>

#include "protocol/packed_chunk.h"
#include "tests/unit/client/fake_worker.h"

namespace gpurun::client {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr int kIllegalAddress = 700;

SessionOptions quiet() {
  SessionOptions options;
  options.heartbeat = std::chrono::hours(1);
  options.silence_deadline = std::chrono::hours(2);
  return options;
}

Bytes pattern(std::size_t byte_count) {
  Bytes bytes(byte_count);
  std::uint32_t value = 1;
  for (std::byte& each : bytes) {
    value = value * 1'664'525 + 1'013'904'223;
    each = static_cast<std::byte>(value >> 24);
  }
  return bytes;
}

class BulkTest : public testing::Test {
 protected:
  struct BulkFrame {
    protocol::FrameHeader frame;
    protocol::BulkHeader bulk;
    Bytes bytes;
  };

  void SetUp() override { begin(quiet()); }
  void begin(const SessionOptions& options) {
    session_.reset();
    worker_ = std::make_unique<FakeWorker>();
    auto session = Session::start(worker_->channels(), options);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    session_ = *std::move(session);
  }

  BulkFrame next_bulk() {
    BulkFrame result;
    std::byte head[protocol::kFrameHeaderBytes + protocol::kBulkHeaderBytes];
    const auto got = worker_->bulk().receive(head, sizeof head, FakeWorker::patience());
    EXPECT_TRUE(got.ok()) << got.status().to_string();
    if (!got.ok()) return result;
    const auto frame = protocol::parse_frame_header(head);
    EXPECT_TRUE(frame.ok());
    result.frame = *frame;
    result.bytes.resize(frame->payload_bytes - protocol::kBulkHeaderBytes);
    const auto bulk = protocol::parse_bulk_header(
        frame->kind, ByteView(head).subspan(protocol::kFrameHeaderBytes), result.bytes.size());
    EXPECT_TRUE(bulk.ok());
    result.bulk = *bulk;
    if (!result.bytes.empty()) {
      EXPECT_TRUE(
          worker_->bulk().receive(result.bytes, result.bytes.size(), FakeWorker::patience()).ok());
    }
    return result;
  }
  void send_bulk(protocol::FrameKind kind, const protocol::BulkHeader& header,
                 ByteView bytes = {}) {
    Bytes payload(sizeof header + bytes.size());
    std::memcpy(payload.data(), &header, sizeof header);
    if (!bytes.empty()) std::memcpy(payload.data() + sizeof header, bytes.data(), bytes.size());
    worker_->send_frame(worker_->bulk(), kind, payload, 0);
  }
  void send_packed(const protocol::BulkHeader& header, const protocol::PackedHead& head,
                   ByteView bytes) {
    Bytes packed(sizeof head + bytes.size());
    std::memcpy(packed.data(), &head, sizeof head);
    std::memcpy(packed.data() + sizeof head, bytes.data(), bytes.size());
    send_bulk(protocol::FrameKind::kChunkPacked, header, packed);
  }
  void receipt(const protocol::BulkHeader& about, std::uint64_t retired) {
    send_bulk(protocol::FrameKind::kChunkReceipt, {about.transfer, retired, about.total, 0});
  }
  // Receives a whole transfer that comes alone, with a receipt for each chunk.
  Bytes take_transfer(std::uint64_t transfer, std::size_t byte_count) {
    Bytes whole(byte_count);
    for (std::size_t got = 0; got < byte_count;) {
      const BulkFrame chunk = next_bulk();
      EXPECT_EQ(chunk.bulk.transfer, transfer);
      EXPECT_EQ(chunk.bulk.offset, got);
      EXPECT_EQ(chunk.bulk.total, byte_count);
      if (chunk.bytes.empty() || chunk.bulk.offset + chunk.bytes.size() > byte_count) break;
      std::copy(chunk.bytes.begin(), chunk.bytes.end(),
                whole.begin() + static_cast<std::ptrdiff_t>(chunk.bulk.offset));
      got += chunk.bytes.size();
      receipt(chunk.bulk, got);
    }
    return whole;
  }
  // The stream has come to the copy `about`.
  void want(const FakeWorker::Record& about, std::uint64_t watermark) {
    protocol::ReplyHeader item;
    item.kind = protocol::ReplyKind::kBytesWanted;
    item.lane = about.header.lane;
    item.call_sequence = about.header.sequence;
    item.subject = about.header.bulk;
    item.watermark = watermark;
    worker_->send_item(item);
  }
  std::future<int> fence() {
    return std::async(std::launch::async, [this] {
      Reply reply;
      CallSite site;
      site.opcode = 9;
      return session_->call(*Lane::current(), site, ByteView(), &reply);
    });
  }
  std::future<int> copy_out(MutableBytes destination, bool wait) {
    return std::async(std::launch::async, [this, destination, wait] {
      return session_->copy_out(*Lane::current(), CallSite(), destination, 0x2000, wait);
    });
  }
  int copy_in(ByteView source, Session::Reading reading, Handle stream = 0) {
    CallSite site;
    site.stream = stream;
    return session_->copy_in(*Lane::current(), site, 0x1000, source, reading);
  }

  std::unique_ptr<FakeWorker> worker_;
  std::unique_ptr<Session> session_;
};

TEST_F(BulkTest, PageableSourceIsFreeWhenItReturnsAndTheWindowIsBounded) {
  const Bytes original = pattern(33 * kMiB + 5);
  Bytes source = original;
  auto copy = std::async(std::launch::async, [&] {
    const int result = copy_in(source, Session::Reading::kNow);
    std::fill(source.begin(), source.end(), std::byte{0});  // The program uses it again.
    return result;
  });
  const FakeWorker::Record record = worker_->next();
  EXPECT_EQ(record.header.form, protocol::Form::kCopyIn);
  // Without receipts it stops at the transfer's window.
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

TEST_F(BulkTest, PinnedSourceReturnsAtOnceWhateverItsSize) {
  const Bytes source = pattern(20 * kMiB);
  ASSERT_EQ(copy_in(source, Session::Reading::kSoon), 0);  // Nobody reads yet.
  const FakeWorker::Record record = worker_->next();
  EXPECT_TRUE(take_transfer(record.header.bulk, source.size()) == source);
  session_->await_read(source);
}

TEST_F(BulkTest, ACopyInTurnCarriesWhatEarlierWorkLeaves) {
  Bytes memory(100, std::byte{1});  // However small.
  ASSERT_EQ(copy_out(memory, false).get(), 0);
  const FakeWorker::Record out = worker_->next();
  ASSERT_EQ(copy_in(memory, Session::Reading::kInTurn), 0);
  const FakeWorker::Record in = worker_->next();
  EXPECT_EQ(in.header.form, protocol::Form::kCopyIn);
  EXPECT_NE(in.header.flags & protocol::kFlagBulkOnDemand, 0);
  EXPECT_TRUE(session_->reads(memory));
  EXPECT_FALSE(session_->reads(ByteView(memory).first(0)));
  auto freeing = std::async(std::launch::async, [&] { session_->await_read(memory); });
  // Asked for before the bytes of the copy out have come: those are what it waits for.
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

TEST_F(BulkTest, ACopyInTurnFindsRoomInAWindowFullOfLaterOnes) {
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

TEST_F(BulkTest, WhatWasNotOfferedCannotBeAskedFor) {
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
  freeing.get();  // Nobody waits longer than the session lives.
  EXPECT_EQ(session_->death().code(), Code::kProtocol);
}

TEST_F(BulkTest, SmallTransferDoesNotWaitForALargeOneOfAnotherStream) {
  // Static: pinned sources are read until their copies are complete, and this test ends before.
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

// What came before its turn would wait in the worker, and out of its caches.
TEST_F(BulkTest, TransfersOfAStreamGoInTheirOrder) {
  static const Bytes source = pattern(8 * limits::kBulkChunkBytes);
  for (const Handle stream : {100, 100, 101, 100, 101}) {
    ASSERT_EQ(copy_in(source, Session::Reading::kSoon, stream), 0);
  }
  std::map<std::uint64_t, std::vector<std::uint64_t>> sent;  // By stream: transfers.
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

TEST_F(BulkTest, NoCompletionIsToldBeforeItsBytesAreThere) {
  const Bytes source = pattern(limits::kBulkChunkBytes + 100);
  Bytes destination(source.size());
  ASSERT_EQ(copy_out(destination, false).get(), 0);
  EXPECT_TRUE(session_->host_write_outstanding());
  const FakeWorker::Record record = worker_->next();
  auto waiting = fence();
  worker_->reply(worker_->next(), 0, {}, 1);
  auto other = fence();  // Its reply is handled after the first one's.
  worker_->reply(worker_->next());
  EXPECT_EQ(other.get(), 0);
  EXPECT_NE(waiting.wait_for(std::chrono::milliseconds(20)), std::future_status::ready);
  const std::uint64_t total = source.size();
  const ByteView bytes(source);
  send_bulk(protocol::FrameKind::kChunk, {record.header.bulk, 0, total, 0},
            bytes.first(limits::kBulkChunkBytes));
  send_bulk(protocol::FrameKind::kChunk, {record.header.bulk, limits::kBulkChunkBytes, total, 1},
            bytes.subspan(limits::kBulkChunkBytes));
  EXPECT_EQ(waiting.get(), 0);
  EXPECT_TRUE(destination == source);
  EXPECT_FALSE(session_->host_write_outstanding());
}

// Not each at once, but all in the end, or a worker that keeps them would run out of room.
TEST_F(BulkTest, ReceiptsComeForSeveralChunksTogether) {
  const std::uint64_t total = 2 * Bulk::kChunksPerReceipt * limits::kBulkChunkBytes;
  Bytes destination(total);
  const Bytes chunk = pattern(limits::kBulkChunkBytes);
  ASSERT_EQ(copy_out(destination, false).get(), 0);
  const FakeWorker::Record record = worker_->next();
  for (std::uint64_t at = 0, told = 0; at < total; at += chunk.size()) {
    const bool last = at + chunk.size() == total;
    send_bulk(protocol::FrameKind::kChunk, {record.header.bulk, at, total, last ? 1u : 0u}, chunk);
    if ((at / chunk.size() + 1) % Bulk::kChunksPerReceipt != 0) continue;
    const BulkFrame receipt = next_bulk();
    EXPECT_EQ(receipt.frame.kind, protocol::FrameKind::kChunkReceipt);
    EXPECT_GT(receipt.bulk.offset, told);
    EXPECT_EQ(receipt.bulk.offset, at + chunk.size());
    told = receipt.bulk.offset;
  }
}

TEST_F(BulkTest, AbandonedCopyReturnsItsErrorAndNeverSuccess) {
  Bytes destination(kMiB);
  auto copy = copy_out(destination, true);
  FakeWorker::Record record = worker_->next();
  send_bulk(protocol::FrameKind::kChunkAbandoned, {record.header.bulk, 0, kMiB, 0});
  worker_->reply(record, kIllegalAddress);
  EXPECT_EQ(copy.get(), kIllegalAddress);
  EXPECT_TRUE(session_->alive());

  copy = copy_out(destination, true);
  record = worker_->next();
  send_bulk(protocol::FrameKind::kChunkAbandoned, {record.header.bulk, 0, kMiB, 0});
  worker_->reply(record, 0);
  EXPECT_EQ(copy.get(), kResultPeerGone) << "an answer without its bytes is no success";

  begin(quiet());
  ASSERT_EQ(copy_out(destination, false).get(), 0);
  record = worker_->next();
  send_bulk(protocol::FrameKind::kChunkAbandoned, {record.header.bulk, 0, kMiB, 1});
  auto waiting = fence();
  worker_->reply(worker_->next(), 0, {}, 1);
  EXPECT_EQ(waiting.get(), 0);
  EXPECT_FALSE(session_->host_write_outstanding());
}

TEST_F(BulkTest, PackedChunksArriveAndThoseOfAFailedCopyGoNowhere) {
  constexpr std::size_t kChunk = limits::kBulkChunkBytes, kPage = protocol::kPageBytes;
  constexpr std::uint64_t kTotal = 2 * kChunk;
  Bytes expected(kTotal, std::byte{'a'});
  const Bytes page = pattern(kPage);
  std::fill_n(expected.begin(), kChunk, std::byte{0});
  std::copy(page.begin(), page.end(), expected.begin() + kPage);
  // One 'a', the same as often as is left, and five of them, with which each block ends.
  Bytes block = {std::byte{0x1f}, std::byte{'a'}, std::byte{1}, std::byte{0}};
  constexpr std::size_t kMore = kChunk - 1 - 5 - 19;
  block.resize(block.size() + kMore / 255, std::byte{255});
  block.push_back(static_cast<std::byte>(kMore % 255));
  block.push_back(std::byte{0x50});
  block.resize(block.size() + 5, std::byte{'a'});
  const protocol::PackedHead sparse = {protocol::Packing::kSparse, 0, 2};
  const protocol::PackedHead compressed = {protocol::Packing::kLz4, 0, 0};

  Bytes destination(kTotal, std::byte{0x5a});
  auto copy = copy_out(destination, true);
  FakeWorker::Record record = worker_->next();
  send_packed({record.header.bulk, 0, kTotal, 0}, sparse, page);
  send_packed({record.header.bulk, kChunk, kTotal, 1}, compressed, block);
  worker_->reply(record, 0, {}, 1);
  EXPECT_EQ(copy.get(), 0);
  EXPECT_TRUE(destination == expected);

  copy = copy_out(destination, true);
  record = worker_->next();
  worker_->reply(record, kIllegalAddress);
  EXPECT_EQ(copy.get(), kIllegalAddress);
  destination.assign(kTotal, std::byte{0x5a});
  send_packed({record.header.bulk, 0, kTotal, 0}, sparse, page);
  send_packed({record.header.bulk, kChunk, kTotal, 2}, compressed, block);
  Bytes next(kTotal);
  copy = copy_out(next, true);
  record = worker_->next();
  send_packed({record.header.bulk, 0, kTotal, 0}, sparse, page);
  send_packed({record.header.bulk, kChunk, kTotal, 3}, compressed, block);
  worker_->reply(record, 0, {}, 3);
  EXPECT_EQ(copy.get(), 0);
  EXPECT_TRUE(next == expected);
  EXPECT_TRUE(destination == Bytes(kTotal, std::byte{0x5a}));
}

TEST_F(BulkTest, HostileChunksEndTheSession) {
  Bytes destination(kMiB);
  auto copy = copy_out(destination, true);
  FakeWorker::Record record = worker_->next();
  send_bulk(protocol::FrameKind::kChunk, {record.header.bulk, 0, 2 * kMiB, 0}, pattern(8));
  EXPECT_EQ(copy.get(), kResultPeerGone);
  EXPECT_EQ(session_->death().code(), Code::kProtocol);

  begin(quiet());
  copy = copy_out(destination, true);
  record = worker_->next();
  send_bulk(protocol::FrameKind::kChunk, {record.header.bulk + 1, 0, kMiB, 0}, pattern(8));
  EXPECT_EQ(copy.get(), kResultPeerGone);

  // Other bytes than its pages have; and what is no block.
  for (const protocol::PackedHead& head : {protocol::PackedHead{protocol::Packing::kSparse, 0, 3},
                                           protocol::PackedHead{protocol::Packing::kLz4, 0, 0}}) {
    begin(quiet());
    copy = copy_out(destination, true);
    record = worker_->next();
    send_packed({record.header.bulk, 0, kMiB, 0}, head, pattern(protocol::kPageBytes));
    EXPECT_EQ(copy.get(), kResultPeerGone);
    EXPECT_EQ(session_->death().code(), Code::kProtocol);
  }
}

// They may come early, over another connection; not twice, and not without end.
TEST_F(BulkTest, CompletionsThatCannotBeEndTheSession) {
  const auto refused = [this](std::uint64_t count, std::uint64_t step) {
    begin(quiet());
    Bytes destination(kMiB);
    auto copy = copy_out(destination, true);
    const FakeWorker::Record record = worker_->next();
    for (std::uint64_t watermark = 2; count > 0; --count, watermark += step) {
      send_bulk(protocol::FrameKind::kChunkAbandoned, {record.header.bulk, 0, kMiB, watermark});
    }
    if (copy.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
      worker_->goodbye("all of it was believed");
    }
    return copy.get() == kResultPeerGone && session_->death().code() == Code::kProtocol;
  };
  EXPECT_TRUE(refused(2, 0));
  EXPECT_TRUE(refused(Bulk::kEarlyCompletionsMax + 1, 1));
}

// The first send of a chunk stands still until it is let go.
class StandingConnection final : public transport::Connection {
 public:
  explicit StandingConnection(std::unique_ptr<transport::Connection> inner)
      : inner_(std::move(inner)) {}
  const transport::Capabilities& capabilities() const override { return inner_->capabilities(); }
  const std::string& description() const override { return inner_->description(); }
  Status send(std::span<const ByteView> parts, Deadline deadline) override {
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

 private:
  const std::unique_ptr<transport::Connection> inner_;
  std::atomic<bool> stood_{false};
};

// A worker may say that it has a chunk while our send() still reads it (its last bytes are with the
// network, or it lies): the slot is nobody else's before send() is back.
TEST_F(BulkTest, ASlotIsNotFilledAgainWhileItIsSent) {
  session_.reset();
  worker_ = std::make_unique<FakeWorker>();
  Session::Channels channels = worker_->channels();
  auto owned = std::make_unique<StandingConnection>(std::move(channels.bulk.front()));
  StandingConnection& standing = *owned;
  channels.bulk.front() = std::move(owned);
  auto session = Session::start(std::move(channels), quiet());
  ASSERT_TRUE(session.ok());
  session_ = *std::move(session);
  const Bytes first = pattern(limits::kBulkChunkBytes);
  const Bytes second(limits::kBulkChunkBytes, std::byte{0x55});
  ASSERT_EQ(copy_in(first, Session::Reading::kNow), 0);
  const std::uint64_t transfer = worker_->next().header.bulk;
  auto standing_now = standing.stands_.get_future();
  ASSERT_EQ(standing_now.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  receipt({transfer, 0, first.size(), 0}, first.size());
  // A reply on the same connection's heels tells that the receipt was heard: both are polled.
  Bytes came(limits::kInlineBytesMax + 1);
  auto out = copy_out(came, true);
  const FakeWorker::Record asked = worker_->next();
  send_bulk(protocol::FrameKind::kChunk, {asked.header.bulk, 0, came.size(), 1},
            pattern(came.size()));
  worker_->reply(asked, 0, {}, 1);
  ASSERT_EQ(out.get(), 0);
  ASSERT_EQ(copy_in(second, Session::Reading::kNow), 0);  // Would take the same slot.
  standing.let_go_.set_value();
  BulkFrame frame = next_bulk();
  while (frame.frame.kind != protocol::FrameKind::kChunk) frame = next_bulk();
  EXPECT_EQ(frame.bulk.transfer, transfer);
  EXPECT_EQ(frame.bytes, first);
}

TEST_F(BulkTest, DeathWakesACopyThatWaitsForTheWindow) {
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
