// Staging memory at the worker: each part is registered with the driver once per session, before
// the driver gets any of it, by a thread that delays no call. A driver that refuses is asked once,
// reported once, and still copies. A session without copies registers nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "server/bulk/bulk_lanes.h"
#include "tests/callpath/world.h"

namespace gpurun::callpath {
namespace {

using namespace std::chrono_literals;
using client::Session;
using server::Staging;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kPartsMax =
    (limits::kBulkWindowBytes + server::kStagingOutBytes) / Staging::kPartBytes;
constexpr int kNotReady = 600;   // CUDA_ERROR_NOT_READY.
constexpr auto kPatience = 20s;  // The test's limit, for a busy machine.

// The null device, and the registrations and copies that it received.
struct Device {
  server::DriverFunctions functions;
  int answer = 0;                 // The result of a registration.
  std::shared_future<void> gate;  // A registration waits for it if it is valid.

  std::mutex mutex;                             // Guards all below.
  std::map<std::uintptr_t, std::size_t> parts;  // Registered memory: start and bytes.
  std::size_t asked = 0;
  std::size_t twice = 0;         // Registrations of memory that was registered already.
  std::size_t copies = 0;        // Copies through staging memory.
  std::size_t unregistered = 0;  // Copies through memory that was not registered.
  bool gave_up = false;          // The gate stayed closed.

  bool holds(std::uintptr_t start, std::size_t bytes) const {
    auto part = parts.upper_bound(start);
    if (part == parts.begin()) return false;
    --part;
    return start + bytes <= part->first + part->second;
  }
  void copy(const void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex);
    ++copies;
    if (!holds(reinterpret_cast<std::uintptr_t>(memory), bytes)) ++unregistered;
  }
};
Device* device = nullptr;

int register_memory(void* memory, std::size_t bytes, unsigned flags) {
  if (device->gate.valid() && device->gate.wait_for(kPatience) != std::future_status::ready) {
    device->gave_up = true;
  }
  const std::lock_guard lock(device->mutex);
  ++device->asked;
  if (device->answer != 0) return device->answer;
  const auto start = reinterpret_cast<std::uintptr_t>(memory);
  if (device->holds(start, 1)) ++device->twice;
  EXPECT_EQ(flags, 1u);  // CU_MEMHOSTREGISTER_PORTABLE: for all contexts.
  device->parts[start] = bytes;
  return device->functions.cuMemHostRegister(memory, bytes, flags);
}

// Bytes in a copy's record are at most 64 KiB, and do not pass through staging memory.
int copy_in(std::uint64_t to, const void* from, std::size_t bytes, void* stream) {
  if (bytes > 64 * 1024) device->copy(from, bytes);
  return device->functions.cuMemcpyHtoDAsync(to, from, bytes, stream);
}
int copy_out(void* to, std::uint64_t from, std::size_t bytes, void* stream) {
  device->copy(to, bytes);
  return device->functions.cuMemcpyDtoHAsync(to, from, bytes, stream);
}

WorldOptions watched() {
  WorldOptions options;
  options.prepare = [](server::WorkerOptions& worker) {
    device->functions = worker.driver;
    worker.driver.cuMemHostRegister = &register_memory;
    worker.driver.cuMemcpyHtoDAsync = &copy_in;
    worker.driver.cuMemcpyDtoHAsync = &copy_out;
  };
  return options;
}

Bytes pattern(std::size_t byte_count, std::uint64_t seed) {
  Bytes bytes(byte_count);
  std::uint64_t value = seed + 1;
  for (std::size_t at = 0; at < byte_count; at += sizeof value) {
    value = value * 6'364'136'223'846'793'005 + 1'442'695'040'888'963'407;
    std::memcpy(bytes.data() + at, &value, std::min(sizeof value, byte_count - at));
  }
  return bytes;
}

class StagingMemory : public ::testing::Test {
 protected:
  void SetUp() override { device = &device_; }
  void open_world() { world_.emplace(watched()); }

  int copy_in(std::uint64_t to, ByteView bytes, Session::Reading reading = Session::Reading::kNow,
              std::uint64_t stream = 0) {
    const client::CallSite site = world_->site("cuMemcpyHtoDAsync_v2", stream);
    return world_->session().copy_in(world_->lane(), site, to, bytes, reading);
  }
  int copy_out(MutableBytes to, std::uint64_t from, bool wait, std::uint64_t stream = 0) {
    const client::CallSite site = world_->site("cuMemcpyDtoHAsync_v2", stream);
    return world_->session().copy_out(world_->lane(), site, to, from, wait);
  }
  int query(client::Handle stream) {
    client::CallSite site = world_->site("cuStreamQuery", stream);
    site.order = protocol::Order::kStream;
    return world_->call_at(site, {&stream});
  }
  // Copies to the device and back. Returns whether the bytes are unchanged.
  bool bytes_come_back(std::size_t size, std::uint64_t seed) {
    const std::uint64_t memory = world_->allocate(size);
    const Bytes sent = pattern(size, seed);
    EXPECT_EQ(copy_in(memory, sent), 0);
    Bytes back(size);
    EXPECT_EQ(copy_out(back, memory, true), 0);
    return back == sent;
  }

  Device device_;
  std::optional<World> world_;
};

TEST_F(StagingMemory, EachPartIsRegisteredOnceBeforeCopies) {
  open_world();
  for (std::uint64_t round = 0; round < 3; ++round) {
    EXPECT_TRUE(bytes_come_back(20 * kMiB, round));
    EXPECT_TRUE(bytes_come_back(100, round));
  }
  // Several streams in parallel, which use much of the window.
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([this, seed] {
      const client::Handle stream = world_->make_stream();
      const std::uint64_t memory = world_->allocate(24 * kMiB);
      const Bytes sent = pattern(24 * kMiB, seed);
      EXPECT_EQ(copy_in(memory, sent, Session::Reading::kSoon, stream), 0);
      Bytes back(sent.size());
      EXPECT_EQ(copy_out(back, memory, true, stream), 0);
      EXPECT_TRUE(back == sent);
      world_->session().await_read(sent);
    });
  }
  for (std::thread& thread : threads) thread.join();
  world_.reset();
  EXPECT_GT(device_.copies, 2u * 20 * 4);
  EXPECT_EQ(device_.unregistered, 0u);
  EXPECT_EQ(device_.twice, 0u);
  EXPECT_EQ(device_.asked, device_.parts.size());
  EXPECT_GE(device_.asked, 2u);
  EXPECT_LE(device_.asked, kPartsMax);
}

TEST_F(StagingMemory, OnlyUsedPartsAreRegistered) {
  open_world();
  world_->allocate(kMiB);
  ASSERT_EQ(world_->synchronize(), 0);
  EXPECT_EQ(device_.asked, 0u);
  // In the record, and back in a reply.
  for (std::uint64_t round = 0; round < 100; ++round) {
    ASSERT_TRUE(bytes_come_back(1000, round));
  }
  world_.reset();
  EXPECT_EQ(device_.asked, 1u);
}

// Registration takes a driver a millisecond and may block. Only the copy waits for it.
TEST_F(StagingMemory, OnlyCopiesWaitForRegistration) {
  std::promise<void> opened;
  device_.gate = opened.get_future().share();
  open_world();
  const std::uint64_t memory = world_->allocate(8 * kMiB);
  const client::Handle in = world_->make_stream();
  const client::Handle out = world_->make_stream();
  const client::Handle other = world_->make_stream();
  const Bytes sent = pattern(8 * kMiB, 3);
  Bytes back(kMiB);
  ASSERT_EQ(copy_in(memory, sent, Session::Reading::kSoon, in), 0);
  ASSERT_EQ(copy_out(back, memory, false, out), 0);
  world_->session().await_read(sent);  // The window has room for all of it.
  // Behind both in the log.
  EXPECT_EQ(query(other), 0);
  EXPECT_EQ(query(in), kNotReady);
  EXPECT_EQ(query(out), kNotReady);
  {
    const std::lock_guard lock(device_.mutex);
    EXPECT_EQ(device_.copies, 0u);
    EXPECT_FALSE(device_.gave_up);
  }
  opened.set_value();
  ASSERT_EQ(world_->synchronize(), 0);
  Bytes all(sent.size());
  EXPECT_EQ(copy_out(all, memory, true), 0);
  EXPECT_TRUE(all == sent);
  world_.reset();
  EXPECT_FALSE(device_.gave_up);
  EXPECT_EQ(device_.unregistered, 0u);
}

TEST_F(StagingMemory, RefusedRegistrationIsNotRetriedAndIsReportedOnce) {
  device_.answer = 801;  // CUDA_ERROR_NOT_SUPPORTED.
  testing::internal::CaptureStderr();
  open_world();
  for (std::uint64_t round = 0; round < 3; ++round) {
    EXPECT_TRUE(bytes_come_back(20 * kMiB, round));
    EXPECT_TRUE(bytes_come_back(100, round));
  }
  world_.reset();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(device_.asked, 2u);  // Once for each direction.
  const std::size_t told = said.find("does not register memory");
  ASSERT_NE(told, std::string::npos) << said;
  EXPECT_NE(said.find("801"), std::string::npos) << said;
  EXPECT_EQ(said.find("does not register memory", told + 1), std::string::npos) << said;
}

}  // namespace
}  // namespace gpurun::callpath
