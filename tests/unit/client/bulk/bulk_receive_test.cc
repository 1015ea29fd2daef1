// Bulk from the worker: no completion is reported before its bytes are in place, and invalid
// messages of the worker end the session.
#include <vector>

#include "tests/unit/client/bulk/bulk_under_test.h"

namespace gpurun::client {
namespace {

TEST_F(BulkTest, CompletionWaitsForItsBytes) {
  const Bytes source = pattern(limits::kBulkChunkBytes + 100);
  Bytes destination(source.size());
  ASSERT_EQ(copy_out(destination, false).get(), 0);
  EXPECT_TRUE(session_->host_write_outstanding());
  const FakeWorker::Record record = worker_->next();
  auto waiting = fence();
  worker_->reply(worker_->next(), 0, {}, 1);
  auto other = fence();  // The client handles its reply after the first one's.
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

// Receipts may be combined, but every chunk needs one. Otherwise a worker that waits for them would
// run out of room.
TEST_F(BulkTest, CombinesReceiptsOfSeveralChunks) {
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

TEST_F(BulkTest, UnpacksChunksAndDiscardsThoseOfFailedCopy) {
  constexpr std::size_t kChunk = limits::kBulkChunkBytes, kPage = protocol::kPageBytes;
  constexpr std::uint64_t kTotal = 2 * kChunk;
  Bytes expected(kTotal, std::byte{'a'});
  const Bytes page = pattern(kPage);
  std::fill_n(expected.begin(), kChunk, std::byte{0});
  std::copy(page.begin(), page.end(), expected.begin() + kPage);
  // One 'a', copies of it, and the five with which each block ends.
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

TEST_F(BulkTest, InvalidChunksEndSession) {
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

  // A sparse chunk with bytes that do not match its pages, and an invalid LZ4 block.
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

// Completions may come early, over another connection. They may not come twice or without a bound.
TEST_F(BulkTest, RepeatedOrExcessCompletionsEndSession) {
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

}  // namespace
}  // namespace gpurun::client
