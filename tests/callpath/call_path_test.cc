// Call path: a client's session and a worker over TCP. Bytes arrive unchanged, whatever their size
// and path. Failures of answered calls reach the next fence.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "client/bulk/bulk.h"
#include "server/bulk/bulk_lanes.h"
#include "server/worker/execution/executor.h"
#include "tests/callpath/world.h"

namespace gpurun::callpath {
namespace {

using client::Handle;
using client::Session;

constexpr int kInvalidValue = 1;
constexpr int kInvalidHandle = 400;

// In words and not in bytes, because tests of many megabytes also run under sanitizers.
Bytes pattern(std::size_t byte_count, std::uint64_t seed) {
  Bytes bytes(byte_count);
  std::uint64_t value = seed + 1;
  for (std::size_t at = 0; at < byte_count; at += sizeof value) {
    value = value * 6'364'136'223'846'793'005 + 1'442'695'040'888'963'407;
    std::memcpy(bytes.data() + at, &value, std::min(sizeof value, byte_count - at));
  }
  return bytes;
}

class CallPath : public ::testing::Test {
 protected:
  int copy_in(std::uint64_t to, ByteView bytes, std::uint64_t stream = 0,
              Session::Reading reading = Session::Reading::kNow) {
    client::CallSite site = world_.site("cuMemcpyHtoDAsync_v2", stream);
    return world_.session().copy_in(world_.lane(), site, to, bytes, reading);
  }
  int copy_out(MutableBytes to, std::uint64_t from, bool wait, std::uint64_t stream = 0) {
    client::CallSite site = world_.site("cuMemcpyDtoHAsync_v2", stream);
    return world_.session().copy_out(world_.lane(), site, to, from, wait);
  }
  World world_;
};

TEST_F(CallPath, CopiesRoundTripUnchanged) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const std::uint64_t device = world_.allocate(80 * kMiB);
  ASSERT_NE(device, 0u);
  std::uint32_t seed = 1;
  for (const std::size_t size : {std::size_t{1}, std::size_t{8192}, std::size_t{8193}, kMiB / 2,
                                 kMiB / 2 + 1, 3 * kMiB + 5, 70 * kMiB}) {
    const Bytes sent = pattern(size, seed++);
    ASSERT_EQ(copy_in(device, sent), 0);
    Bytes back(size);
    ASSERT_EQ(copy_out(back, device, true), 0);
    EXPECT_TRUE(back == sent) << size;
  }
}

// The number of times that this process's threads of that name have gone to sleep.
std::uint64_t sleeps_of(const std::string& name) {
  std::uint64_t sleeps = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string comm, line;
    std::getline(std::ifstream(task.path() / "comm"), comm);
    if (comm != name) continue;
    std::ifstream status(task.path() / "status");
    while (std::getline(status, line)) {
      constexpr std::string_view kKey = "voluntary_ctxt_switches:";
      if (line.starts_with(kKey)) sleeps += std::stoull(line.substr(kKey.size()));
    }
  }
  return sleeps;
}

// A reply wakes the thread that waits for it and nothing before it (docs/performance.md: no thread
// hop that can be avoided). On a busy machine some replies arrive before that thread reads. They
// also wake the receiver thread (docs/adr/0029). If the receiver thread read them, each reply would
// wake it.
TEST_F(CallPath, FencesDoNotEachWakeReceiverThread) {
  constexpr int kFences = 400;
  ASSERT_EQ(world_.synchronize(), 0);
  const std::uint64_t before = sleeps_of("gpurun-receive");
  for (int i = 0; i < kFences; ++i) ASSERT_EQ(world_.synchronize(), 0);
  EXPECT_LT(sleeps_of("gpurun-receive") - before, kFences * 3 / 4);
}

// The record's header names the stream for the worker. A client that ends another stream is
// refused.
TEST_F(CallPath, StreamDestroyMustMatchRecordHeader) {
  Handle first = world_.make_stream(), second = world_.make_stream();
  const auto end = [&](Handle of_header, Handle of_call, protocol::Order order) {
    client::CallSite site = world_.site("cuStreamDestroy_v2", of_header);
    site.order = order;
    return world_.call_at(site, {&of_call});
  };
  EXPECT_EQ(end(first, second, protocol::Order::kStream), kInvalidValue);
  EXPECT_EQ(end(first, first, protocol::Order::kContext), kInvalidValue);
  EXPECT_EQ(end(protocol::kStreamPerThread, protocol::kStreamPerThread, protocol::Order::kStream),
            kInvalidValue);
  EXPECT_EQ(end(first, first, protocol::Order::kStream), 0);
  EXPECT_EQ(end(second, second, protocol::Order::kStream), 0);
}

TEST_F(CallPath, PinnedCopiesArriveBeforeFenceReturns) {
  constexpr std::size_t kSize = (std::size_t{5} << 20) + 3;
  const std::uint64_t device = world_.allocate(kSize);
  const Handle stream = world_.make_stream();
  const Bytes sent = pattern(kSize, 7);
  ASSERT_EQ(copy_in(device, sent, stream, Session::Reading::kSoon), 0);
  Bytes back(kSize);
  ASSERT_EQ(copy_out(back, device, false, stream), 0);
  ASSERT_EQ(world_.synchronize(), 0);
  EXPECT_FALSE(world_.session().host_write_outstanding());
  EXPECT_TRUE(back == sent);
  // As in cuMemFreeHost(): to a sanitizer the send may return after the answer.
  world_.session().await_read(sent);
}

TEST_F(CallPath, TransfersLargerThanWindowArriveIntact) {
  constexpr std::size_t kSize = std::size_t{24} << 20;
  constexpr int kCount = 8;
  const Handle stream = world_.make_stream();
  const std::uint64_t device = world_.allocate(kCount * kSize);
  std::vector<Bytes> sent;
  for (std::uint32_t i = 0; i < kCount; ++i) sent.push_back(pattern(kSize, i));
  for (std::size_t i = 0; i < kCount; ++i) {  // All together, so that they share the window.
    ASSERT_EQ(copy_in(device + i * kSize, sent[i], stream, Session::Reading::kSoon), 0);
  }
  Bytes back(kCount * kSize);
  ASSERT_EQ(copy_out(back, device, true, stream), 0);
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(std::equal(sent[i].begin(), sent[i].end(),
                           back.begin() + static_cast<std::ptrdiff_t>(i * kSize)));
    world_.session().await_read(sent[i]);
  }
}

TEST_F(CallPath, SixtyFourThreadsCopyConcurrently) {
  constexpr std::size_t kSize = (std::size_t{1} << 20) + 77;
  constexpr std::uint32_t kCount = 64;
  const std::uint64_t device = world_.allocate(kCount * kSize);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    threads.emplace_back([&, i] {
      const Handle stream = world_.make_stream();
      const Bytes sent = pattern(kSize, i);
      EXPECT_EQ(copy_in(device + i * kSize, sent, stream), 0);
      Bytes back(kSize);
      EXPECT_EQ(copy_out(back, device + i * kSize, true, stream), 0);
      EXPECT_TRUE(back == sent);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CallPath, FailedCopyInIsReportedAtNextFenceAndFreesWindow) {
  const Bytes bytes = pattern(std::size_t{40} << 20, 3);
  ASSERT_EQ(copy_in(0, bytes), 0);  // The device refuses address 0.
  EXPECT_EQ(world_.synchronize(), kInvalidValue);
  EXPECT_EQ(world_.synchronize(), 0);
  // A copy to a handle that is not a stream is refused before its bytes are read.
  ASSERT_EQ(copy_in(world_.allocate(bytes.size()), bytes, 0x5D18000000000077), 0);
  EXPECT_EQ(world_.synchronize(), kInvalidHandle);
  // The window is free again.
  const std::uint64_t device = world_.allocate(bytes.size());
  ASSERT_EQ(copy_in(device, bytes), 0);
  Bytes back(bytes.size());
  ASSERT_EQ(copy_out(back, device, true), 0);
  EXPECT_TRUE(back == bytes);
}

TEST_F(CallPath, FailedCopyOutIsReportedAndLeavesNothingOutstanding) {
  Bytes back(std::size_t{1} << 20);
  EXPECT_EQ(copy_out(back, 0, true), kInvalidValue);
  EXPECT_EQ(copy_out(back, 0, false), 0);
  EXPECT_EQ(world_.synchronize(), kInvalidValue);
  Bytes little(16);
  EXPECT_EQ(copy_out(little, 0, true), kInvalidValue);
  while (world_.session().host_write_outstanding()) std::this_thread::yield();
  EXPECT_EQ(world_.synchronize(), 0);
}

TEST_F(CallPath, FailedCreationPoisonsHandle) {
  // Posted, as creations are. The queried handle is not a stream.
  std::uint64_t no_stream = 0x5D18000000000077;
  std::uint64_t out = 0;
  void* place = &out;
  void* arguments[] = {&no_stream, &place};
  const std::uint64_t minted =
      world_.session().handles().mint(client::HandleKind::kContext, 0, nullptr);
  protocol::PackedCall packed;
  ASSERT_TRUE(packed.pack(*driver_abi::find_row("cuStreamGetCtx"), arguments, {&minted, 1}).ok());
  ASSERT_EQ(world_.session().post(world_.lane(), world_.site("cuStreamGetCtx"), packed.bytes()), 0);
  EXPECT_EQ(world_.synchronize(), kInvalidHandle);
  EXPECT_EQ(world_.session().handles().check(minted, client::HandleKind::kContext), kInvalidHandle);
}

// A handler of the test, like the module handlers.
constexpr std::uint16_t kImageOpcode = 4000;
server::CallOutcome count_bytes(server::Call& call) {
  std::uint64_t facts[2] = {call.bulk_payload().size(), call.payload().size()};
  for (const std::byte each : call.bulk_payload()) facts[1] += static_cast<std::uint64_t>(each);
  EXPECT_EQ(*(call.bulk_payload().data() + call.bulk_payload().size()), std::byte{0});
  call.set_reply(byte_view(facts, sizeof facts));
  return server::CallOutcome::done(0);
}

TEST(CallPathBulk, HandlerReceivesWholeImage) {
  WorldOptions options;
  options.bulk_connections = 3;
  options.prepare = [](server::WorkerOptions& of) {
    of.handlers.by_opcode[kImageOpcode] = count_bytes;
  };
  World world(options);
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{4096}, std::size_t{1} << 18, std::size_t{100'000'001}}) {
    const Bytes image = pattern(size, 11);
    client::CallSite site;
    site.opcode = kImageOpcode;
    site.context = world.context();
    const Bytes name(3);
    const ByteView part(name);
    client::Reply reply;
    ASSERT_EQ(world.session().call_with_bulk(world.lane(), site, {&part, 1}, image, &reply), 0);
    std::uint64_t facts[2] = {};
    ASSERT_EQ(reply.payload.size(), sizeof facts);
    std::copy_n(reply.payload.data(), sizeof facts, reinterpret_cast<std::byte*>(facts));
    std::uint64_t sum = name.size();
    for (const std::byte each : image) sum += static_cast<std::uint64_t>(each);
    EXPECT_EQ(facts[0], size);
    EXPECT_EQ(facts[1], sum);
  }
}

// What the ordered-host thread fetched of an offer: the byte count and the sum, or the CUresult.
constexpr std::uint16_t kOfferOpcode = 4001;
std::atomic<std::uint64_t> fetched_bytes, fetched_sum;
std::atomic<int> fetch_result{-1};
std::atomic<bool> fetch_begun{false};
server::CallOutcome fetch_if_told(server::Call& call) {
  EXPECT_TRUE(call.bulk_payload().empty());  // Not fetched yet.
  if (call.payload().front() == std::byte{0}) return server::CallOutcome::done(0);
  fetch_result = call.fetch_bulk();
  std::uint64_t sum = 0;
  for (const std::byte each : call.bulk_payload()) sum += static_cast<std::uint64_t>(each);
  fetched_bytes = call.bulk_payload().size();
  fetched_sum = sum;
  return server::CallOutcome::done(0);
}

TEST(CallPathBulk, OfferIsSentOnDemandAndFreed) {
  WorldOptions options;
  options.bulk_connections = 2;
  options.prepare = [](server::WorkerOptions& of) {
    of.handlers.by_opcode[kOfferOpcode] = fetch_if_told;
  };
  World world(options);
  const auto image = std::make_shared<const Bytes>(pattern(4'000'001, 5));
  std::uint64_t sum = 0;
  for (const std::byte each : *image) sum += static_cast<std::uint64_t>(each);
  client::CallSite site;
  site.opcode = kOfferOpcode;
  site.order = protocol::Order::kOrderedHost;
  site.form = protocol::Form::kRaw;
  site.context = world.context();
  const std::uint64_t device = world.allocate(std::size_t{96} << 20);
  bool offered = true;
  ASSERT_EQ(world.session().post_with_offer(
                world.lane(), site, ByteView(),
                std::make_shared<const Bytes>(client::Bulk::kOfferedBytesMax + 1), &offered),
            0);
  EXPECT_FALSE(offered);                                 // Over the bound: not offered.
  const Bytes more = pattern(std::size_t{96} << 20, 9);  // More than the window, after the offer.
  for (const std::byte wanted : {std::byte{0}, std::byte{1}}) {
    fetched_bytes = fetched_sum = 0;
    offered = false;
    ASSERT_EQ(
        world.session().post_with_offer(world.lane(), site, ByteView(&wanted, 1), image, &offered),
        0);
    ASSERT_TRUE(offered);
    const client::CallSite copy = world.site("cuMemcpyHtoDAsync_v2");
    ASSERT_EQ(world.session().copy_in(world.lane(), copy, device, more, Session::Reading::kNow), 0);
    ASSERT_EQ(world.synchronize(), 0);  // After the offer's call.
    if (wanted == std::byte{1}) {
      EXPECT_EQ(fetch_result, 0);
      EXPECT_EQ(fetched_bytes, image->size());
      EXPECT_EQ(fetched_sum, sum);
    }
    // No one keeps it, because the worker has reported that it no longer needs it.
    while (image.use_count() != 1) std::this_thread::yield();
  }
}

TEST(CallPathBulk, WorkerWaitingForOfferEndsWithClient) {
  WorldOptions options;
  options.prepare = [](server::WorkerOptions& of) {
    of.handlers.by_opcode[kOfferOpcode] = [](server::Call& call) {
      // A transfer that was not offered never arrives.
      std::shared_ptr<server::WholePayload> none;
      fetch_begun = true;
      fetch_result =
          call.executor().bulk()->in().fetch_whole(1'000'000, call.header().sequence, &none);
      return server::CallOutcome::done(0);
    };
  };
  World world(options);
  client::CallSite site;
  site.opcode = kOfferOpcode;
  site.order = protocol::Order::kOrderedHost;
  site.form = protocol::Form::kRaw;
  site.context = world.context();
  fetch_result = 0;
  const std::byte payload{1};
  bool offered = false;
  ASSERT_EQ(world.session().post_with_offer(world.lane(), site, ByteView(&payload, 1),
                                            std::make_shared<const Bytes>(100), &offered),
            0);
  while (!fetch_begun) std::this_thread::yield();  // Else the call may never reach the worker.
  world.end_session();
  EXPECT_FALSE(world.worker_end().ok());
  EXPECT_EQ(fetch_result, 999);  // CUDA_ERROR_UNKNOWN: the wait has ended with the session.
}

TEST(WorkerLifetime, WorkerEndsWithClient) {
  World world;
  world.end_session();
  EXPECT_EQ(world.worker_end().code(), Code::kPeerGone);
}

}  // namespace
}  // namespace gpurun::callpath
