// Host functions at the worker, over the real path: a stream pauses until the program's function
// has run. Queries and copies wait for nothing else. The calls queued behind a function are
// bounded.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "protocol/calls/call.h"
#include "protocol/calls/host_function.h"
#include "tests/callpath/world.h"

namespace gpurun::callpath {
namespace {

using client::CallSite;
using client::Handle;
using client::Reply;
using protocol::HostFunctionPayload;
using protocol::HostFunctionStep;

constexpr int kInvalidValue = 1;
constexpr int kInvalidHandle = 400;

// A call that puts a function into a stream.
CallSite gate_site(World& world, Handle stream) {
  CallSite site = world.site("cuLaunchHostFunc", stream);
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kStream;
  return site;
}

// The later steps of the function, which belong to no stream.
CallSite step_site() {
  CallSite site;
  site.opcode = driver_abi::find_row("cuLaunchHostFunc")->opcode;
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kImmediate;
  return site;
}

CallSite fill_site(World& world, Handle stream) {
  CallSite site = world.site("cuMemsetD8Async", stream);
  site.form = protocol::Form::kMemset;
  site.order = protocol::Order::kStream;
  return site;
}

class HostFunctions : public ::testing::Test {
 protected:
  World world_;
};

TEST_F(HostFunctions, StreamPausesUntilFunctionHasRun) {
  const Handle stream = world_.make_stream();
  HostFunctionPayload payload;
  payload.ticket = 7;
  const CallSite gate = gate_site(world_, stream);
  ASSERT_EQ(world_.session().post(world_.lane(), gate, bytes_of(payload)), 0);

  std::atomic<bool> released{false};
  std::thread waiter([this, &released] {
    EXPECT_EQ(world_.synchronize(), 0);
    EXPECT_TRUE(released);
  });
  const CallSite anywhere = step_site();
  payload.step = HostFunctionStep::kWait;
  Reply reply;
  EXPECT_EQ(world_.session().call(world_.lane(), anywhere, bytes_of(payload), &reply), 0);
  // Time in which a stream that did not pause would be noticed.
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(world_.session().call(world_.lane(), anywhere, bytes_of(payload), &reply), 0);
  }
  released = true;
  payload.step = HostFunctionStep::kRelease;
  EXPECT_EQ(world_.session().post(world_.lane(), anywhere, bytes_of(payload)), 0);
  waiter.join();
}

// The copy in is called before its source is complete. A copy out and then the function, at which
// the stream pauses, write the source.
TEST_F(HostFunctions, CopyInTurnReadsSourceInStreamOrder) {
  constexpr std::size_t kSize = 700'001;
  const Handle stream = world_.make_stream();
  const std::uint64_t first = world_.allocate(kSize), second = world_.allocate(kSize);
  const auto copy_in = [&](std::uint64_t to, ByteView from, client::Session::Reading reading) {
    return world_.session().copy_in(world_.lane(), world_.site("cuMemcpyHtoDAsync_v2", stream), to,
                                    from, reading);
  };
  HostFunctionPayload payload;
  payload.ticket = 1000;
  for (unsigned round = 1; round <= 20; ++round) {
    const Bytes sent(kSize, static_cast<std::byte>(round));
    Bytes between(kSize), back(kSize);
    ASSERT_EQ(copy_in(first, sent, client::Session::Reading::kNow), 0);
    ASSERT_EQ(world_.session().copy_out(world_.lane(), world_.site("cuMemcpyDtoHAsync_v2", stream),
                                        between, first, false),
              0);
    ++payload.ticket;
    payload.step = HostFunctionStep::kGate;
    const CallSite gate = gate_site(world_, stream);
    ASSERT_EQ(world_.session().post(world_.lane(), gate, bytes_of(payload)), 0);
    ASSERT_EQ(copy_in(second, between, client::Session::Reading::kInTurn), 0);
    const CallSite anywhere = step_site();
    payload.step = HostFunctionStep::kWait;
    Reply reply;
    ASSERT_EQ(world_.session().call(world_.lane(), anywhere, bytes_of(payload), &reply), 0);
    ASSERT_TRUE(between == sent);
    between[kSize - 1] = std::byte{0xEE};  // Done by the function.
    payload.step = HostFunctionStep::kRelease;
    ASSERT_EQ(world_.session().post(world_.lane(), anywhere, bytes_of(payload)), 0);
    ASSERT_EQ(world_.session().copy_out(world_.lane(), world_.site("cuMemcpyDtoHAsync_v2", stream),
                                        back, second, true),
              0);
    EXPECT_TRUE(back == between) << round;
    // As in cuMemFreeHost(): to a sanitizer the send may return after the answer.
    world_.session().await_read(between);
  }
}

// The driver's events complete when a test allows it. Until then the stream has not reached the
// gate.
std::atomic<bool> g_events_end{false};

// The worker has requested nothing from the client while the stream has not reached the function.
// Calls behind it wait for room, as behind any work, and the session lives.
TEST(QueueBounds, CallsBehindUnreachedFunctionWaitForRoom) {
  g_events_end = false;
  WorldOptions options;
  options.prepare = [](server::WorkerOptions& of) {
    of.queued_bytes_max = std::size_t{256} << 10;
    of.driver.cuEventQuery = [](void*) { return g_events_end ? 0 : 600; };
    of.driver.cuEventSynchronize = [](void*) {
      g_events_end.wait(false);
      return 0;
    };
  };
  World world(options);
  const Handle stream = world.make_stream();
  const std::uint64_t device = world.allocate(64);
  client::Lane& lane = *client::Lane::current();
  const CallSite gate = gate_site(world, stream);
  HostFunctionPayload payload;
  payload.ticket = 1;
  ASSERT_EQ(world.session().post(lane, gate, bytes_of(payload)), 0);
  const CallSite fill = fill_site(world, stream);
  const protocol::MemsetPayload set{device, 0, 64, 1, 3, 1};
  for (int i = 0; i < 1'000; ++i) {  // Each counts as more than 1 KiB.
    ASSERT_EQ(world.session().post(lane, fill, bytes_of(set)), 0);
  }
  const CallSite anywhere = step_site();
  auto heard = std::async(std::launch::async, [&world, anywhere] {
    Reply reply;
    return world.session().call(*client::Lane::current(), anywhere, ByteView(), &reply);
  });
  EXPECT_EQ(heard.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  g_events_end = true;
  g_events_end.notify_all();
  EXPECT_EQ(heard.get(), kInvalidValue) << "now it is the client's turn, and all is read";
  payload.step = HostFunctionStep::kRelease;
  ASSERT_EQ(world.session().post(lane, anywhere, bytes_of(payload)), 0);
  EXPECT_EQ(world.synchronize(), 0);
}

// The function waits for a thread that makes more calls than other queues hold. The end of the
// function comes behind these calls.
TEST(QueueBounds, CallsBehindRunningFunctionPassUntilBoundEndsSession) {
  WorldOptions options;
  options.prepare = [](server::WorkerOptions& of) {
    of.queued_bytes_max = std::size_t{256} << 10;
    of.queued_behind_client_bytes_max = std::size_t{4} << 20;
  };
  options.session.log_bytes = std::size_t{1} << 20;
  World world(options);
  const Handle stream = world.make_stream();
  const std::uint64_t device = world.allocate(64);
  client::Lane& lane = *client::Lane::current();
  const CallSite gate = gate_site(world, stream);
  HostFunctionPayload payload;
  payload.ticket = 1;
  ASSERT_EQ(world.session().post(lane, gate, bytes_of(payload)), 0);
  const CallSite fill = fill_site(world, stream);
  const protocol::MemsetPayload set{device, 0, 64, 1, 3, 1};
  // Over the log's size and the first bound, below the second bound.
  for (int i = 0; i < 3'000; ++i) {
    ASSERT_EQ(world.session().post(lane, fill, bytes_of(set)), 0);
  }
  const CallSite anywhere = step_site();
  payload.step = HostFunctionStep::kRelease;
  ASSERT_EQ(world.session().post(lane, anywhere, bytes_of(payload)), 0);
  ASSERT_EQ(world.synchronize(), 0);

  payload = {};
  payload.ticket = 2;
  ASSERT_EQ(world.session().post(lane, gate, bytes_of(payload)), 0);
  int result = 0;
  for (int i = 0; i < 100'000 && result == 0; ++i) {
    result = world.session().post(lane, fill, bytes_of(set));
  }
  EXPECT_EQ(result, client::kResultPeerGone);
  EXPECT_NE(world.session().death().message().find("behind a host function"), std::string::npos)
      << world.session().death().to_string();
  world.end_session();
}

TEST_F(HostFunctions, WaitReturnsErrorOfGateWithoutStream) {
  HostFunctionPayload payload;
  payload.ticket = 8;
  Reply reply;
  CallSite in_no_stream = gate_site(world_, 0);
  in_no_stream.order = protocol::Order::kContext;
  EXPECT_EQ(world_.session().call(world_.lane(), in_no_stream, bytes_of(payload), &reply),
            kInvalidValue);
  const CallSite anywhere = step_site();
  payload.step = HostFunctionStep::kWait;
  EXPECT_EQ(world_.session().call(world_.lane(), anywhere, bytes_of(payload), &reply),
            kInvalidValue);
}

TEST_F(HostFunctions, WaitReturnsErrorOfGateInUnknownStream) {
  HostFunctionPayload payload;
  payload.ticket = 9;
  const Handle never_created =
      world_.session().handles().mint(client::HandleKind::kStream, world_.context(), nullptr);
  const CallSite gate = gate_site(world_, never_created);
  ASSERT_EQ(world_.session().post(world_.lane(), gate, bytes_of(payload)), 0);
  const CallSite anywhere = step_site();
  payload.step = HostFunctionStep::kWait;
  Reply reply;
  (void)world_.session().call(world_.lane(), anywhere, bytes_of(payload), &reply);
  EXPECT_EQ(reply.result, kInvalidHandle);
}

TEST_F(HostFunctions, QueriesReturnWhileStreamIsPaused) {
  constexpr int kNotReady = 600;
  const Handle stream = world_.make_stream();
  const Handle other = world_.make_stream();
  const auto query = [this](Handle of) {
    const driver_abi::Row& row = *driver_abi::find_row("cuStreamQuery");
    std::uint64_t value = of;
    void* arguments[] = {&value};
    protocol::PackedCall packed;
    EXPECT_TRUE(packed.pack(row, arguments, {}).ok());
    CallSite site = world_.site("cuStreamQuery", of);
    site.order = protocol::Order::kStream;
    Reply reply;
    return world_.session().call(*client::Lane::current(), site, packed.bytes(), &reply);
  };
  HostFunctionPayload payload;
  payload.ticket = 10;
  const CallSite gate = gate_site(world_, stream);
  ASSERT_EQ(world_.session().post(world_.lane(), gate, bytes_of(payload)), 0);
  std::future<std::vector<int>> answers = std::async(std::launch::async, [&] {
    return std::vector<int>{query(stream), query(other), query(stream)};
  });
  EXPECT_EQ(answers.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  const CallSite anywhere = step_site();
  payload.step = HostFunctionStep::kRelease;
  EXPECT_EQ(world_.session().post(world_.lane(), anywhere, bytes_of(payload)), 0);
  EXPECT_EQ(answers.get(), (std::vector<int>{kNotReady, 0, kNotReady}));
  EXPECT_EQ(world_.synchronize(), 0);
  EXPECT_EQ(query(stream), 0);
}

}  // namespace
}  // namespace gpurun::callpath
