// Bulk's parts, without threads and connections: slots, reads, lines, completions and destinations.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "client/bulk/bulk_window.h"
#include "client/bulk/completion_order.h"
#include "client/bulk/incoming_transfers.h"
#include "client/bulk/outgoing_transfers.h"
#include "client/bulk/source_reads.h"

namespace gpurun::client {
namespace {

constexpr std::size_t kChunk = limits::kBulkChunkBytes;

TEST(BulkWindow, ReceiptDuringSendFreesSlotWhenSendEnds) {
  BulkWindow window;
  ASSERT_TRUE(window.map().ok());
  const std::size_t all = window.free_count();
  EXPECT_EQ(all, BulkWindow::kSlots);
  const std::size_t slot = window.take();
  window.begin_send(slot);
  window.retire(slot);
  EXPECT_EQ(window.free_count(), all - 1);
  EXPECT_TRUE(window.end_send(slot));
  EXPECT_EQ(window.free_count(), all);
}

TEST(BulkWindow, ReceiptAfterSendFreesSlotAtOnce) {
  BulkWindow window;
  ASSERT_TRUE(window.map().ok());
  const std::size_t slot = window.take();
  window.begin_send(slot);
  EXPECT_FALSE(window.end_send(slot));
  EXPECT_EQ(window.free_count(), BulkWindow::kSlots - 1);
  window.retire(slot);
  EXPECT_EQ(window.free_count(), BulkWindow::kSlots);
}

TEST(BulkWindow, TrimsOnlyWithoutTransfersSinceLastTrim) {
  BulkWindow window;
  ASSERT_TRUE(window.map().ok());
  const std::size_t slot = window.take();
  *window.start_of(slot) = std::byte{7};
  window.trim(1);
  window.trim(1);  // The slot is under way.
  EXPECT_EQ(*window.start_of(slot), std::byte{7});
  window.give_back(slot);
  window.trim(2);  // A transfer has begun.
  EXPECT_EQ(*window.start_of(slot), std::byte{7});
  window.trim(2);
  EXPECT_EQ(*window.start_of(slot), std::byte{0});
}

TEST(SourceReads, PieceIsReadUntilBothReadersEnd) {
  const Bytes memory(100);
  const ByteView piece = ByteView(memory).subspan(10, 10);
  SourceReads reads;
  reads.begin(3, piece);
  reads.begin(3, piece);
  reads.end(3, piece);
  EXPECT_TRUE(reads.reads(ByteView(memory).subspan(19, 5)));
  EXPECT_FALSE(reads.reads(ByteView(memory).subspan(20, 5)));
  EXPECT_TRUE(reads.reads_up_to(3));
  EXPECT_FALSE(reads.reads_up_to(2));
  reads.end(3, piece);
  EXPECT_FALSE(reads.reads(memory));
}

TEST(CompletionOrder, AdvancesWithoutGapsAndWritesKeptBytesInOrder) {
  CompletionOrder order;
  std::vector<std::uint64_t> written;
  const auto write = [&](std::uint64_t transfer, ByteView bytes) {
    EXPECT_EQ(bytes.size(), transfer);
    written.push_back(transfer);
    return Status();
  };
  EXPECT_TRUE(order.keep(3, 30, Bytes(30)));
  EXPECT_TRUE(order.keep(2, 20, Bytes(20)));
  ASSERT_TRUE(order.note(4).ok());
  ASSERT_TRUE(order.advance(write).ok());
  EXPECT_EQ(order.through(), 0u);
  ASSERT_TRUE(order.note(1).ok());
  ASSERT_TRUE(order.advance(write).ok());
  EXPECT_EQ(order.through(), 4u);
  EXPECT_EQ(written, (std::vector<std::uint64_t>{20, 30}));
}

TEST(CompletionOrder, RejectsRepeatedNumber) {
  CompletionOrder order;
  EXPECT_TRUE(order.note(2).ok());
  EXPECT_EQ(order.note(2).code(), Code::kProtocol);
  EXPECT_TRUE(order.keep(3, 1, Bytes(1)));
  EXPECT_EQ(order.note(3).code(), Code::kProtocol);
}

TEST(IncomingTransfers, OnlyUnattendedTransfersAreOutstanding) {
  Bytes memory(100);
  IncomingTransfers incoming;
  IncomingTransfer in;
  in.destination = HostBox::of(MutableBytes(memory).first(50));
  in.total = 50;
  incoming.add(1, in);
  EXPECT_FALSE(incoming.outstanding());
  in.unattended = true;
  incoming.add(2, in);
  EXPECT_TRUE(incoming.outstanding());
  EXPECT_TRUE(incoming.outstanding(ByteView(memory).subspan(49)));
  EXPECT_FALSE(incoming.outstanding(ByteView(memory).subspan(50)));
  incoming.find(2)->close();
  EXPECT_FALSE(incoming.find(2)->has_room_for(1));
  incoming.remove(2);
  EXPECT_FALSE(incoming.outstanding());
  EXPECT_EQ(incoming.find(2), nullptr);
  EXPECT_NE(incoming.find(1), nullptr);
}

class OutgoingTransfersTest : public ::testing::Test {
 protected:
  OutgoingTransfersTest() { EXPECT_TRUE(window_.map().ok()); }

  OutgoingTransfer make(std::uint64_t transfer, std::size_t bytes) {
    OutgoingTransfer out;
    out.transfer = transfer;
    out.source = ByteView(memory_).first(bytes);
    return out;
  }
  void add_later(std::uint64_t transfer, OutgoingTransfers::Line line, std::size_t bytes = 1) {
    outgoing_.add(make(transfer, bytes), line);
    outgoing_.find(transfer)->begin_later();
  }
  // The number of the next transfer, which has its turn and goes whole. 0: none.
  std::uint64_t send_next() {
    const auto out = outgoing_.next_to_send();
    if (out == nullptr) return 0;
    outgoing_.serve(*out);
    out->head = out->sent = out->source.size();
    return out->transfer;
  }
  void take_all_but(std::size_t slots) {
    while (window_.free_count() > slots) taken_.push_back(window_.take());
  }

  const Bytes memory_ = Bytes(2 * kChunk);
  BulkWindow window_;
  CompletionOrder completions_;
  OutgoingTransfers outgoing_{window_, completions_};
  std::vector<std::size_t> taken_;
};

TEST_F(OutgoingTransfersTest, AlternatesLinesAndKeepsOrderWithinEachLine) {
  add_later(1, {1, 0});
  add_later(2, {1, 0});
  add_later(3, {2, 0});
  add_later(4, {2, 0});
  EXPECT_EQ(send_next(), 1u);
  EXPECT_EQ(send_next(), 3u);
  EXPECT_EQ(send_next(), 2u);
  EXPECT_EQ(send_next(), 4u);
  EXPECT_EQ(send_next(), 0u);
}

TEST_F(OutgoingTransfersTest, TransferAwaitingCompletionDelaysOnlyItsLine) {
  OutgoingTransfer out = make(1, 1);
  out.on_demand = out.in_turn = true;
  outgoing_.add(std::move(out), OutgoingTransfers::Line{1, 0});
  add_later(2, {1, 0});
  add_later(3, {2, 0});
  ASSERT_TRUE(outgoing_.want(1, 1).ok());
  EXPECT_EQ(send_next(), 3u);
  EXPECT_EQ(send_next(), 0u);
  ASSERT_TRUE(completions_.note(1).ok());
  ASSERT_TRUE(completions_.advance([](std::uint64_t, ByteView) { return Status(); }).ok());
  EXPECT_EQ(send_next(), 1u);
  EXPECT_EQ(send_next(), 2u);
}

TEST_F(OutgoingTransfersTest, TightWindowServesOldestTransfer) {
  add_later(1, {2, 0});
  add_later(2, {1, 0});  // In the line that has the next turn.
  take_all_but(OutgoingTransfers::kTurnSlots + 1);
  EXPECT_TRUE(outgoing_.is_tight());
  EXPECT_EQ(send_next(), 1u);
  EXPECT_EQ(send_next(), 2u);  // The oldest now.
}

TEST_F(OutgoingTransfersTest, ReservesSlotsForInTurnTransfers) {
  add_later(1, {1, 0});
  OutgoingTransfer out = make(2, 1);
  out.on_demand = out.in_turn = true;
  outgoing_.add(std::move(out), OutgoingTransfers::Line{2, 0});
  take_all_but(OutgoingTransfers::kTurnSlots);
  EXPECT_EQ(send_next(), 0u);
  ASSERT_TRUE(outgoing_.want(2, 0).ok());
  EXPECT_EQ(send_next(), 2u);
}

TEST_F(OutgoingTransfersTest, RejectsRequestForUnofferedTransfer) {
  add_later(1, {1, 0});
  EXPECT_EQ(outgoing_.want(1, 0).code(), Code::kProtocol);
  EXPECT_TRUE(outgoing_.want(2, 0).ok());  // It may have been abandoned.
}

TEST_F(OutgoingTransfersTest, BoundsOfferedBytesUntilDropped) {
  EXPECT_TRUE(outgoing_.may_offer(OutgoingTransfers::kOfferedBytesMax));
  auto payload = std::make_shared<const Bytes>(kChunk);
  OutgoingTransfer out;
  out.transfer = 1;
  out.source = *payload;
  out.on_demand = true;
  out.offered = payload;
  outgoing_.add(std::move(out), {});
  EXPECT_FALSE(outgoing_.may_offer(OutgoingTransfers::kOfferedBytesMax));
  EXPECT_FALSE(outgoing_.needs_up_to(1));
  const auto offered = outgoing_.find(1);
  EXPECT_TRUE(outgoing_.needs(*payload));
  outgoing_.drop(*offered);
  EXPECT_TRUE(offered->handed_over());
  EXPECT_TRUE(outgoing_.may_offer(OutgoingTransfers::kOfferedBytesMax));
  EXPECT_FALSE(outgoing_.needs(*payload));
}

TEST_F(OutgoingTransfersTest, SourceIsNeededUntilFullyTaken) {
  outgoing_.add(make(1, 2 * kChunk), {});
  const auto out = outgoing_.find(1);
  EXPECT_TRUE(outgoing_.needs(ByteView(memory_).last(1)));
  EXPECT_TRUE(outgoing_.needs_up_to(1));
  EXPECT_FALSE(outgoing_.needs_up_to(0));
  EXPECT_EQ(out->chunk_bytes(0), kChunk);
  out->filled = out->source.size();
  EXPECT_FALSE(outgoing_.needs(memory_));
  EXPECT_FALSE(outgoing_.needs_up_to(1));
}

}  // namespace
}  // namespace gpurun::client
