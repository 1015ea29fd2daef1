// BulkOpener: a session that ends does not wait for a bulk connection that is being opened. The
// open waits for its peer without a deadline until its descriptor is shut down. Any other wait runs
// into the test's time limit.
#include "client/bulk/bulk_opener.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "base/unique_fd.h"
#include "client/bulk/bulk.h"
#include "protocol/log/frame.h"
#include "transport/loopback/connection.h"

namespace gpurun::client {
namespace {

constexpr std::size_t kCopyBytes = std::size_t{16} << 20;

// Acknowledges each chunk as soon as it arrives.
void be_done(transport::Connection& bulk) {
  Bytes payload;
  for (;;) {
    std::byte head[protocol::kFrameHeaderBytes + protocol::kBulkHeaderBytes];
    if (!bulk.receive(head, sizeof head, Deadline::never()).ok()) return;
    const auto frame = protocol::parse_frame_header(head);
    if (!frame.ok()) return;
    payload.resize(frame->payload_bytes - protocol::kBulkHeaderBytes);
    if (payload.empty()) continue;
    const auto chunk = protocol::parse_bulk_header(
        frame->kind, ByteView(head).subspan(protocol::kFrameHeaderBytes), payload.size());
    if (!chunk.ok() || !bulk.receive(payload, payload.size(), Deadline::never()).ok()) return;
    const protocol::BulkHeader retired{chunk->transfer, chunk->offset + payload.size(),
                                       chunk->total, 0};
    protocol::FrameHeader about;
    about.kind = protocol::FrameKind::kChunkReceipt;
    about.payload_bytes = sizeof retired;
    const ByteView parts[] = {bytes_of(about), bytes_of(retired)};
    if (!bulk.send(parts, Deadline::never()).ok()) return;
  }
}

// A peer that accepts the connection and sends nothing.
class SilentPeer final : public ExtraBulkConnections {
 public:
  Result<Joined> open(transport::DescriptorKeeper& keeper) override {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return Status::from_errno(errno, "socketpair");
    }
    UniqueFd near(ends[0]);
    const UniqueFd far(ends[1]);
    keeper.before_change();
    keeper.after_change(near.get());
    if (opened_++ == 0) waits_.set_value();
    char word = 0;
    EXPECT_EQ(read(near.get(), &word, 1), 0);
    keeper.before_change();
    near.reset();
    keeper.after_change(-1);
    return Status(Code::kPeerGone, "given up");
  }
  std::future<void> waits() { return waits_.get_future(); }

 private:
  int opened_ = 0;
  std::promise<void> waits_;
};

TEST(BulkOpener, StopDoesNotWaitForPeer) {
  auto [near, far] = transport::loopback::connect_pair();
  std::thread worker([&] { be_done(*far); });
  SilentPeer peer;
  std::future<void> waits = peer.waits();
  std::unique_ptr<BulkOpener> opener;
  Bulk::Listener listener;
  listener.user = &opener;
  listener.failed = [](void*, Status) {};
  listener.completed = [](void*, std::uint64_t) {};
  listener.wants_more = [](void* of) { (*static_cast<std::unique_ptr<BulkOpener>*>(of))->look(); };
  Bulk bulk({near.get()}, listener, Bulk::Known{}, ConnectionCount::Bounds{2, 64, false});
  opener = std::make_unique<BulkOpener>(peer, bulk);
  ASSERT_TRUE(bulk.start().ok());
  const Bytes source(kCopyBytes);
  for (int copies = 0; copies < 64; ++copies) {
    EXPECT_TRUE(bulk.send(bulk.open(source)));
    if (waits.wait_for(std::chrono::seconds(0)) == std::future_status::ready) break;
  }
  EXPECT_EQ(bulk.wanted(), 2u);
  waits.get();
  opener->stop();
  near->shut_down();
  bulk.end();
  bulk.join();
  worker.join();
}

}  // namespace
}  // namespace gpurun::client
