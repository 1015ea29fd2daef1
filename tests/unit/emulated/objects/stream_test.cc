// Emulated streams: operations run in order. Each waiter wakes when its position is complete,
// whatever others wait for. A thread that finds an operation complete sees what it wrote. The
// operations here write plain variables, so that ThreadSanitizer reports an order that is only
// luck.
#include "emulated/objects/stream.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "emulated/objects/context.h"
#include "emulated/objects/device.h"

namespace gpurun::emulated {
namespace {

class StreamTest : public ::testing::Test {
 protected:
  static StreamPtr make_stream() {
    static const auto context = std::make_shared<Context>(*device_at(0), 0, false);
    return context->create_stream(CU_STREAM_NON_BLOCKING, 0);
  }
  static std::uint64_t enqueue(const StreamPtr& stream, std::function<void()> body,
                               std::vector<Stream::Dependency> dependencies = {}) {
    return stream->enqueue(std::make_shared<FunctionOperation>([body = std::move(body)] {
                             body();
                             return CUDA_SUCCESS;
                           }),
                           std::move(dependencies));
  }
};

// The first waiter's operation completes while the second one's is blocked. The waiters sleep in
// one order, then in the other, because a later waiter must not hide an earlier one.
TEST_F(StreamTest, WaiterWakesWhenItsPositionCompletes) {
  constexpr int kWaiters = 4;
  for (int round = 0; round < 40; ++round) {
    const StreamPtr stream = make_stream();
    std::atomic<bool> gates[kWaiters] = {};
    std::atomic<int> asked{0};
    std::atomic<bool> woken[kWaiters] = {};
    std::uint64_t positions[kWaiters];
    for (int i = 0; i < kWaiters; ++i) {
      positions[i] = enqueue(stream, [&gate = gates[i]] { gate.wait(false); });
    }
    std::thread waiters[kWaiters];
    for (int n = 0; n < kWaiters; ++n) {
      const int i = round % 2 == 0 ? n : kWaiters - 1 - n;
      waiters[i] = std::thread([&, i] {
        ++asked;
        stream->wait_for(positions[i]);
        woken[i] = true;
      });
      while (asked.load() <= n) std::this_thread::yield();
    }
    for (int i = 0; i < kWaiters; ++i) {
      for (int later = i; later < kWaiters; ++later) EXPECT_FALSE(woken[later]);
      gates[i] = true;
      gates[i].notify_all();
      waiters[i].join();
    }
  }
}

TEST_F(StreamTest, CompletionMakesWritesVisible) {
  constexpr int kOperations = 20'000;
  const StreamPtr stream = make_stream();
  int written = 0;
  int out_of_order = 0;
  for (int i = 0; i < kOperations; ++i) {
    const std::uint64_t position = enqueue(stream, [&, i] {
      if (written != i) ++out_of_order;
      written = i + 1;
    });
    if (i % 100 != 0) continue;
    if (i % 200 == 0) {
      stream->wait_for(position);
    } else {
      while (!stream->reached(position)) std::this_thread::yield();
    }
    ASSERT_EQ(written, i + 1);
  }
  stream->wait_for(stream->position());
  EXPECT_EQ(written, kOperations);
  EXPECT_EQ(out_of_order, 0);
}

TEST_F(StreamTest, DependencyMakesWritesVisible) {
  const StreamPtr first = make_stream(), second = make_stream();
  int value = 0;
  int out_of_order = 0;
  std::vector<Stream::Dependency> behind;
  for (int i = 0; i < 5000; ++i) {
    const StreamPtr& stream = i % 2 == 0 ? first : second;
    const std::uint64_t position = enqueue(
        stream,
        [&, i] {
          if (value != i) ++out_of_order;
          value = i + 1;
        },
        std::move(behind));
    behind = {{stream, position}};
  }
  second->wait_for(second->position());
  EXPECT_EQ(value, 5000);
  EXPECT_EQ(out_of_order, 0);
}

// A program may enqueue anything behind a blocked operation, which the enqueuing thread itself may
// have to release. It therefore waits for room only once and briefly. Repeated waits would take
// about 20 s here.
TEST_F(StreamTest, BlockedStreamAcceptsNewOperations) {
  const StreamPtr stream = make_stream();
  std::atomic<bool> gate{false};
  int ran = 0;
  enqueue(stream, [&gate] { gate.wait(false); });
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < 20 * Stream::kQueuedMax; ++i) enqueue(stream, [&ran] { ++ran; });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  gate = true;
  gate.notify_all();
  stream->wait_for(stream->position());
  EXPECT_EQ(ran, 20 * Stream::kQueuedMax);
}

}  // namespace
}  // namespace gpurun::emulated
