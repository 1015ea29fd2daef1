// Device windows: the worker grants window memory exactly as far as the device has any, and never
// the same memory twice. It trusts nothing: it looks up whatever a client claims to own or to
// return.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <map>
#include <vector>

#include "protocol/calls/device_memory.h"
#include "server/handlers/memory/device_windows.h"
#include "tests/callpath/world.h"

namespace gpurun::callpath {
namespace {

using protocol::CreditGrant;
using protocol::CreditRequest;
using protocol::MemoryReturn;
using protocol::Order;
using protocol::ReturnKind;

constexpr int kInvalidValue = 1, kOutOfMemory = 2;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// The n-th address for a window at which the kernel places a mapping on request. ThreadSanitizer
// supports few addresses, so the result lies in the range that the kernel itself uses, but far
// below the mappings that exist.
std::uint64_t wish(unsigned n) {
  static const std::uint64_t first = [] {
    void* const taken = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(taken, MAP_FAILED);
    EXPECT_EQ(munmap(taken, 4096), 0);
    return (reinterpret_cast<std::uint64_t>(taken) / kGiB - 512) * kGiB;
  }();
  return first - n * 64 * kGiB;
}

// The last ticket that the worker reported. Written by the receiver thread.
std::atomic<std::uint64_t> g_done{0};

class DeviceWindows : public ::testing::Test {
 protected:
  DeviceWindows() {
    g_done = 0;
    world_.session().set_work_done([](std::uint64_t ticket) { g_done = ticket; });
  }
  ~DeviceWindows() override {
    // The null device belongs to the process, so nothing may remain for the next test.
    MemoryReturn all;
    all.kind = ReturnKind::kWindow;
    (void)give_back(all);
    for (const std::uint64_t each : plain_) {
      std::uint64_t address = each;
      (void)world_.call("cuMemFree_v2", {&address});
    }
  }

  client::CallSite raw(const char* symbol, Order order) {
    client::CallSite site = world_.site(symbol);
    site.form = protocol::Form::kRaw;
    site.order = order;
    return site;
  }
  int ask(const CreditRequest& request, CreditGrant* grant) {
    client::Reply reply;
    const int result = world_.session().call(world_.lane(), raw("cuMemAlloc_v2", Order::kContext),
                                             bytes_of(request), &reply);
    if (result != 0) return result;
    EXPECT_EQ(reply.payload.size(), sizeof *grant);
    std::memcpy(grant, reply.payload.data(), sizeof *grant);
    if (grant->plain != 0) plain_.push_back(grant->plain);
    return 0;
  }
  CreditRequest request(std::uint64_t bytes) { return {bytes, wish(0), kWindow}; }
  int give_back(const MemoryReturn& payload, Order order = Order::kOrderedHost) {
    client::Reply reply;
    return world_.session().call(world_.lane(), raw("cuMemFree_v2", order), bytes_of(payload),
                                 &reply);
  }
  MemoryReturn piece(std::uint64_t at) { return {ReturnKind::kPiece, 0, 77, at}; }

  static constexpr std::uint64_t kWindow = 32 * kGiB;
  World world_;
  std::vector<std::uint64_t> plain_;
};

TEST_F(DeviceWindows, PieceIsUsableMemoryInsideWindow) {
  CreditGrant grant;
  ASSERT_EQ(ask(request(5 * kMiB), &grant), 0);
  ASSERT_EQ(grant.plain, 0u);
  EXPECT_GE(grant.piece, grant.window);
  EXPECT_LE(grant.piece + grant.piece_bytes, grant.window + grant.window_bytes);
  EXPECT_GE(grant.piece_bytes, limits::kCreditBytesFirst);
  const Bytes sent(grant.piece_bytes, std::byte{0x5a});
  Bytes back(sent.size());
  ASSERT_EQ(world_.session().copy_in(world_.lane(), world_.site("cuMemcpyHtoDAsync_v2"),
                                     grant.piece, sent, client::Session::Reading::kNow),
            0);
  ASSERT_EQ(world_.session().copy_out(world_.lane(), world_.site("cuMemcpyDtoHAsync_v2"), back,
                                      grant.piece, true),
            0);
  EXPECT_TRUE(sent == back);
}

TEST_F(DeviceWindows, GrantsGrowAndNeverOverlap) {
  std::map<std::uint64_t, std::uint64_t> pieces;
  CreditGrant grant;
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(ask(request(kMiB), &grant), 0);
    ASSERT_EQ(grant.plain, 0u);
    for (const auto& [at, bytes] : pieces) {
      EXPECT_TRUE(grant.piece >= at + bytes || grant.piece + grant.piece_bytes <= at);
    }
    pieces[grant.piece] = grant.piece_bytes;
    EXPECT_LE(grant.piece_bytes, limits::kCreditBytesMax);
  }
  EXPECT_EQ(grant.piece_bytes, limits::kCreditBytesMax);
}

TEST_F(DeviceWindows, GrantsExactlyFreeDeviceMemory) {
  std::uint64_t free = 0, total = 0, given = 0;
  void* places[] = {&free, &total};
  ASSERT_EQ(world_.call("cuMemGetInfo_v2", {&places[0], &places[1]}), 0);
  CreditGrant grant;
  int result = 0;
  std::uint64_t last_piece = 0;
  for (std::uint64_t bytes : {limits::kWindowedBytesMax, kMiB, std::uint64_t{4096}}) {
    while ((result = ask(request(bytes), &grant)) == 0) {
      given += grant.plain != 0 ? bytes : grant.piece_bytes;
      if (grant.piece != 0) last_piece = grant.piece;
    }
    ASSERT_EQ(result, kOutOfMemory);
  }
  EXPECT_EQ(given, free);
  // Returned memory is available again.
  ASSERT_EQ(give_back(piece(last_piece)), 0);
  EXPECT_EQ(g_done, 77u);
  EXPECT_EQ(ask(request(kMiB), &grant), 0);
}

TEST_F(DeviceWindows, AcceptsReturnsOnlyOfGrantedPieces) {
  CreditGrant grant;
  EXPECT_EQ(give_back(piece(wish(0))), kInvalidValue);  // No window yet.
  ASSERT_EQ(ask(request(kMiB), &grant), 0);
  EXPECT_EQ(give_back(piece(grant.piece + kMiB)), kInvalidValue);
  EXPECT_EQ(give_back(piece(grant.window + grant.window_bytes)), kInvalidValue);
  EXPECT_EQ(give_back(piece(0)), kInvalidValue);
  MemoryReturn other = piece(grant.piece);
  other.device = 1000;
  EXPECT_EQ(give_back(other), kInvalidValue);
  other.device = ~0u;
  EXPECT_EQ(give_back(other), kInvalidValue);
  EXPECT_EQ(g_done, 0u);
  EXPECT_EQ(give_back(piece(grant.piece), Order::kContext), kInvalidValue);  // A return in context
                                                                             // order may block.
  EXPECT_EQ(give_back(piece(grant.piece)), 0);
  EXPECT_EQ(give_back(piece(grant.piece)), kInvalidValue);
  MemoryReturn unknown;
  unknown.kind = static_cast<ReturnKind>(9);
  EXPECT_EQ(give_back(unknown), kInvalidValue);
}

TEST_F(DeviceWindows, ReturnedPartIsGrantedAgainBehindIdleMemory) {
  CreditGrant grant;
  ASSERT_EQ(ask(request(kMiB), &grant), 0);
  const std::uint64_t piece_end = grant.piece + grant.piece_bytes;
  ASSERT_EQ(grant.part_bytes, 2 * kMiB);
  // The last part is returned, and the next piece is placed there, directly behind idle memory.
  ASSERT_EQ(give_back(piece(piece_end - 2 * kMiB)), 0);
  CreditRequest behind = request(3 * kMiB);
  behind.behind = piece_end - 2 * kMiB;
  behind.behind_bytes = kMiB;
  ASSERT_EQ(ask(behind, &grant), 0);
  EXPECT_EQ(grant.piece, behind.behind);
  // If that address holds memory, has no room or lies in no window, the piece goes elsewhere.
  for (const std::uint64_t at : {grant.piece + 2 * kMiB, grant.window + grant.window_bytes,
                                 grant.window - 2 * kMiB, grant.piece + kMiB, ~std::uint64_t{0}}) {
    behind.behind = at;
    ASSERT_EQ(ask(behind, &grant), 0);
    EXPECT_NE(grant.piece, at);
    EXPECT_GE(grant.piece_bytes, 4 * kMiB);
  }
  behind.behind_bytes = behind.bytes + 1;
  EXPECT_EQ(ask(behind, &grant), kInvalidValue);
}

TEST_F(DeviceWindows, RefusesOutOfBoundsAndMalformedRequests) {
  CreditGrant grant;
  EXPECT_EQ(ask(request(0), &grant), kInvalidValue);
  EXPECT_EQ(ask(request(limits::kWindowedBytesMax + 1), &grant), kInvalidValue);
  EXPECT_EQ(ask(request(~std::uint64_t{0}), &grant), kInvalidValue);
  EXPECT_EQ(ask({kMiB, wish(0), limits::kWindowBytesMax + 1}, &grant), kInvalidValue);
  client::Reply reply;
  const std::uint64_t little = 1;
  for (const char* symbol : {"cuMemAlloc_v2", "cuMemFree_v2"}) {
    EXPECT_EQ(world_.session().call(world_.lane(), raw(symbol, Order::kOrderedHost),
                                    bytes_of(little), &reply),
              kInvalidValue);
  }
  // A request without a waiting caller grants no memory. The next fence reports the error.
  ASSERT_EQ(world_.session().post(world_.lane(), raw("cuMemAlloc_v2", Order::kContext),
                                  bytes_of(request(kMiB))),
            0);
  EXPECT_EQ(world_.synchronize(), kInvalidValue);
  EXPECT_EQ(ask(request(limits::kWindowedBytesMax), &grant), 0);
}

TEST_F(DeviceWindows, GrantsDriverMemoryWithoutWindow) {
  CreditGrant grant;
  ASSERT_EQ(ask({kMiB, 0, 0}, &grant), 0);
  EXPECT_TRUE(grant.window == 0 && grant.piece == 0 && grant.plain != 0);
  // A window, and its return.
  ASSERT_EQ(ask(request(kMiB), &grant), 0);
  EXPECT_NE(grant.piece, 0u);
  MemoryReturn all;
  all.kind = ReturnKind::kWindow;
  EXPECT_EQ(give_back(all), 0);
  EXPECT_EQ(give_back(all), kInvalidValue);
  ASSERT_EQ(ask(request(kMiB), &grant), 0);
  EXPECT_TRUE(grant.window == 0 && grant.plain != 0);
}

// Memory that comes with the attach needs no request. The first request either reports that its
// window is held, or names another window. In the latter case nothing of the first window remains.
TEST_F(DeviceWindows, FirstGrantIsKeptIfClientHoldsWindow) {
  server::DeviceWindow& window = *world_.state().window(0);
  CreditGrant first;
  ASSERT_TRUE(window.grant_first(&first));
  EXPECT_EQ(first.piece, first.window);
  EXPECT_GT(first.piece_bytes, 0u);
  EXPECT_EQ(window.committed_bytes(), first.piece_bytes);
  CreditGrant again;
  EXPECT_FALSE(window.grant_first(&again));
  ASSERT_EQ(ask({kMiB, first.window, first.window_bytes}, &again), 0);
  EXPECT_EQ(again.window, first.window);
  EXPECT_GE(again.piece, first.piece + first.piece_bytes);
  EXPECT_EQ(window.committed_bytes(), first.piece_bytes + again.piece_bytes);
  EXPECT_EQ(give_back(piece(first.piece)), 0);
}

TEST_F(DeviceWindows, FirstGrantIsFreedIfClientNamesOtherWindow) {
  server::DeviceWindow& window = *world_.state().window(0);
  CreditGrant first, grant;
  ASSERT_TRUE(window.grant_first(&first));
  const std::uint64_t elsewhere = wish(1);
  ASSERT_EQ(ask({kMiB, elsewhere, kWindow}, &grant), 0);
  EXPECT_EQ(grant.window, elsewhere);
  EXPECT_EQ(window.committed_bytes(), grant.piece_bytes);
  // Returns that cross with that request are accepted once for each part.
  for (std::uint64_t at = 0; at < first.piece_bytes; at += first.part_bytes) {
    EXPECT_EQ(give_back(piece(first.piece + at)), 0);
    EXPECT_EQ(give_back(piece(first.piece + at)), kInvalidValue);
  }
  EXPECT_EQ(window.committed_bytes(), grant.piece_bytes);
  // Only the first request decides about the window.
  ASSERT_EQ(ask({kMiB, first.window, kWindow}, &grant), 0);
  EXPECT_EQ(grant.window, elsewhere);
}

// The request of a client that keeps no address ranges, although it was granted a window.
TEST_F(DeviceWindows, FirstGrantIsFreedIfClientWantsNoWindow) {
  server::DeviceWindow& window = *world_.state().window(0);
  CreditGrant first, grant;
  ASSERT_TRUE(window.grant_first(&first));
  ASSERT_EQ(ask({kMiB, 0, 0}, &grant), 0);
  EXPECT_TRUE(grant.window == 0 && grant.piece == 0 && grant.plain != 0);
  EXPECT_EQ(window.committed_bytes(), 0u);
  EXPECT_FALSE(window.reaches(first.window));
  ASSERT_EQ(ask(request(kMiB), &grant), 0);
  EXPECT_EQ(grant.window, wish(0));
}

// A client that cannot hold the window returns it part by part before it names another one, or all
// at once.
TEST_F(DeviceWindows, FirstGrantCanBeReturnedInParts) {
  server::DeviceWindow& window = *world_.state().window(0);
  CreditGrant first, grant;
  ASSERT_TRUE(window.grant_first(&first));
  for (std::uint64_t at = 0; at < first.piece_bytes; at += first.part_bytes) {
    EXPECT_EQ(give_back(piece(first.piece + at)), 0);
  }
  EXPECT_EQ(window.committed_bytes(), 0u);
  const std::uint64_t elsewhere = wish(1);
  ASSERT_EQ(ask({kMiB, elsewhere, kWindow}, &grant), 0);
  EXPECT_EQ(grant.window, elsewhere);
}

TEST_F(DeviceWindows, FirstGrantIsFreedWithItsWindow) {
  server::DeviceWindow& window = *world_.state().window(0);
  CreditGrant first, grant;
  ASSERT_TRUE(window.grant_first(&first));
  MemoryReturn all;
  all.kind = ReturnKind::kWindow;
  EXPECT_EQ(give_back(all), 0);
  EXPECT_EQ(window.committed_bytes(), 0u);
  ASSERT_EQ(ask(request(kMiB), &grant), 0);
  EXPECT_TRUE(grant.window == 0 && grant.plain != 0);
}

TEST_F(DeviceWindows, OrderedFreeReportsItsTicket) {
  MemoryReturn freed;
  freed.ticket = 5;
  EXPECT_EQ(give_back(freed), 0);
  EXPECT_EQ(g_done, 5u);  // Reported before the reply.
  freed.ticket = 6;
  ASSERT_EQ(world_.session().post(world_.lane(), raw("cuMemFree_v2", Order::kOrderedHost),
                                  bytes_of(freed)),
            0);
  EXPECT_EQ(world_.synchronize(), 0);
  EXPECT_EQ(g_done, 6u);
}

}  // namespace
}  // namespace gpurun::callpath
