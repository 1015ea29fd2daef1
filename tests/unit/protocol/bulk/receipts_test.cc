// Receipts: they wait for one another, go in one system call, and none is lost.
#include "protocol/bulk/receipts.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpurun::protocol {
namespace {

constexpr std::size_t kChunks = 4;

BulkHeader receipt(std::uint64_t transfer, std::uint64_t through = 100) {
  return {transfer, through, 100, 0};
}

struct Counting {
  Status send(std::span<const ByteView> parts, Deadline) {
    ++sends;
    for (const ByteView part : parts) bytes.insert(bytes.end(), part.begin(), part.end());
    return {};
  }
  int sends = 0;
  Bytes bytes;
};

TEST(Receipts, ReceiptsAreBatched) {
  Receipts receipts(kChunks);
  for (std::uint64_t transfer = 1; transfer < kChunks; ++transfer) {
    EXPECT_FALSE(receipts.note(receipt(transfer), false));
  }
  EXPECT_TRUE(receipts.take().empty());
  EXPECT_TRUE(receipts.note(receipt(kChunks), false));
  EXPECT_EQ(receipts.take().headers().size(), kChunks);
  EXPECT_FALSE(receipts.due());
  EXPECT_FALSE(receipts.note(receipt(9), false)) << "counted from the last ones on";
}

TEST(Receipts, LastReceiptCompletesBatch) {
  Receipts receipts(kChunks);
  EXPECT_TRUE(receipts.note(receipt(1), true));
  EXPECT_EQ(receipts.take().headers().size(), 1U);
}

// Threads that receive a transfer's parts over several connections may report in any order.
TEST(Receipts, BatchKeepsFurthestOffsetOfTransfer) {
  Receipts receipts(kChunks);
  for (const std::uint64_t through : {10, 30, 40, 20}) receipts.note(receipt(1, through), false);
  const Receipts::Batch batch = receipts.take();
  ASSERT_EQ(batch.headers().size(), 1U);
  EXPECT_EQ(batch.headers()[0].offset, 40U);
}

TEST(Receipts, ReceiptsBeyondOneBatchStayPending) {
  Receipts receipts(kBulkWordsMax + 3);
  for (std::uint64_t transfer = 1; transfer <= kBulkWordsMax + 3; ++transfer) {
    receipts.note(receipt(transfer), false);
  }
  std::vector<std::uint64_t> told;
  while (receipts.due()) {
    const Receipts::Batch batch = receipts.take();
    ASSERT_FALSE(batch.empty());
    for (const BulkHeader& each : batch.headers()) told.push_back(each.transfer);
  }
  ASSERT_EQ(told.size(), kBulkWordsMax + 3);
  for (std::size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], i + 1);
}

TEST(Receipts, BatchIsSentAtOnceInSeparateFrames) {
  Receipts receipts(kChunks);
  for (std::uint64_t transfer = 1; transfer <= kChunks; ++transfer) {
    receipts.note(receipt(transfer), false);
  }
  Counting connection;
  const Receipts::Batch batch = receipts.take();
  ASSERT_TRUE(send_bulk_words(connection, FrameKind::kChunkReceipt, batch.headers()).ok());
  EXPECT_EQ(connection.sends, 1);
  ASSERT_EQ(connection.bytes.size(), kChunks * kChunkHeadBytes);
  for (std::uint64_t i = 0; i < kChunks; ++i) {
    const ByteView frame = ByteView(connection.bytes).subspan(i * kChunkHeadBytes, kChunkHeadBytes);
    const auto head = parse_frame_header(frame);
    ASSERT_TRUE(head.ok()) << head.status().to_string();
    EXPECT_EQ(head->kind, FrameKind::kChunkReceipt);
    const auto bulk = parse_bulk_header(head->kind, frame.subspan(kFrameHeaderBytes), 0);
    ASSERT_TRUE(bulk.ok()) << bulk.status().to_string();
    EXPECT_EQ(bulk->transfer, i + 1);
  }
}

}  // namespace
}  // namespace gpurun::protocol
