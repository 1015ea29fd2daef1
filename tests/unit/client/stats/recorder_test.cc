// Recorder: each thread's newest events are kept in order, dropped events are counted, and a
// recording that is taken while threads call contains only whole events.
#include "client/stats/recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace gpurun::client {
namespace {

using protocol::RecordedEvent;

RecordedEvent event(std::uint32_t lane, std::uint64_t number) {
  RecordedEvent result;
  result.thread = lane;
  result.sequence = number;
  result.begin_ns = number;
  result.end_ns = number;
  result.value = ~number;
  return result;
}

TEST(Recorder, KeepsNewestEventsOfEachThreadInOrder) {
  Recorder recorder;
  constexpr std::uint64_t kMore = protocol::kRecordedEventsMax + 100;
  for (std::uint64_t i = 0; i < kMore; ++i) recorder.add(event(3, i));
  for (std::uint64_t i = 0; i < 5; ++i) recorder.add(event(1, i));
  const protocol::Recording recording = recorder.take();
  ASSERT_EQ(recording.events.size() + recording.dropped, kMore + 5);
  EXPECT_LE(recording.events.size(), protocol::kRecordedEventsMax + 5);
  EXPECT_GE(recording.dropped, 100u);
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(recording.events[i].thread, 1u);
  std::uint64_t next = recording.dropped;
  for (std::size_t i = 5; i < recording.events.size(); ++i) {
    ASSERT_EQ(recording.events[i].sequence, next++);
  }
  EXPECT_EQ(next, kMore);
}

TEST(Recorder, CountsDroppedEventsOfExcessThreads) {
  Recorder recorder;
  recorder.add(event(Recorder::kLanesMax - 1, 1));
  recorder.add(event(Recorder::kLanesMax, 2));
  recorder.add(event(~std::uint32_t{0}, 3));
  recorder.add_batch(event(0, 4));
  const protocol::Recording recording = recorder.take();
  ASSERT_EQ(recording.events.size(), 2u);
  EXPECT_EQ(recording.events[0].sequence, 1u);
  EXPECT_EQ(recording.events[1].sequence, 4u);
  EXPECT_EQ(recording.dropped, 2u);
}

TEST(Recorder, TakeReturnsWholeEventsWhileThreadsRecord) {
  Recorder recorder;
  constexpr std::uint32_t kThreads = 3;
  std::atomic<std::uint32_t> wrapped{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::uint32_t lane = 0; lane < kThreads; ++lane) {
    threads.emplace_back([&recorder, &wrapped, &stop, lane] {
      for (std::uint64_t i = 0; !stop.load(); ++i) {
        recorder.add(event(lane, i));
        if (i == protocol::kRecordedEventsMax + 1) ++wrapped;
      }
    });
  }
  while (wrapped.load() < kThreads) std::this_thread::yield();
  const protocol::Recording recording = recorder.take();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  const RecordedEvent* before = nullptr;
  for (const RecordedEvent& each : recording.events) {
    ASSERT_EQ(each.value, ~each.sequence);
    if (before != nullptr && before->thread == each.thread) {
      ASSERT_EQ(each.sequence, before->sequence + 1);
    }
    before = &each;
  }
  // Events that a thread overwrites meanwhile are left out. A thread that has seen the end no
  // longer writes.
  EXPECT_GE(recording.events.size(), kThreads * (protocol::kRecordedEventsMax / 2));
}

TEST(Recorder, BoundsKernelNames) {
  Recorder recorder;
  for (std::uint64_t i = 0; i < protocol::kRecordedNamesMax + 5; ++i) {
    recorder.name_kernel(i, i == 0 ? std::string(5000, 'x') : "k");
  }
  const protocol::Recording recording = recorder.take();
  EXPECT_EQ(recording.names.size(), protocol::kRecordedNamesMax);
  EXPECT_EQ(recording.names.at(0).size(), protocol::kRecordedNameBytesMax);
}

}  // namespace
}  // namespace gpurun::client
