// Pulling: a session over RDMA on the verbs double, with pinned memory of the test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "client/stats/stats.h"
#include "server/driver/direct_memory.h"
#include "tests/callpath/world.h"
#include "tests/support/rdma_parts.h"

namespace gpurun::callpath {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GPURUN_SLOW_PULLING 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GPURUN_SLOW_PULLING 1
#endif
#endif
#ifdef GPURUN_SLOW_PULLING
inline constexpr std::chrono::seconds kLostFabricEnds{20};
#else
// A session with a lost fabric goes on within this time.
inline constexpr std::chrono::seconds kLostFabricEnds{2};
#endif

// The shortest time of `copy`, which loses its queue pair. A machine that is busy elsewhere may
// spoil an attempt, but not each of them.
template <typename Copy>
std::chrono::steady_clock::duration shortest_time(Copy copy) {
  constexpr int kAttempts = 6;
  auto shortest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < kAttempts && shortest >= kLostFabricEnds; ++i) {
    shortest = std::min(shortest, copy());
  }
  return shortest;
}

inline Bytes random_bytes(std::size_t count, unsigned seed) {
  std::minstd_rand random(seed);
  Bytes bytes(count);
  for (std::byte& one : bytes) one = static_cast<std::byte>(random() >> 8);
  return bytes;
}

struct Pulling {
  using Carrier = std::unique_ptr<transport::carrier::Carrier>;
  struct Options {
    bool knows = true;                     // The session pulls.
    const char* driver = nullptr;          // As WorldOptions'.
    bool direct = false;                   // Also into memory of the device.
    std::function<Carrier(Carrier)> wrap;  // The client's carriers.
  };
  explicit Pulling(const std::string& devices = "rdma0") : Pulling(devices, Options()) {}
  Pulling(const std::string& devices, const Options& given) {
    transport::test::VerbsDouble::set(devices);
    WorldOptions options;
    options.driver = given.driver;
    if (given.direct) options.prepare = &let_read_directly;
    options.session.pulled_copies = options.session.written_results = given.knows;
    options.session.spread_copies = true;
    options.session.statistics = true;
    options.session.packing = false;
    options.connect = [&](int) {
      auto listener = transport::listen("tcp://127.0.0.1:0");
      EXPECT_TRUE(listener.ok());
      Ends made;
      std::thread accepting(
          [&] { made.worker = end(false, given, [&] { return (*listener)->accept(soon()); }); });
      made.client = end(true, given, [&] {
        return transport::connect("tcp://" + (*listener)->address(), soon());
      });
      accepting.join();
      return made;
    };
    world = std::make_unique<World>(options);
  }

  static void let_read_directly(server::WorkerOptions& options) {
    auto& state = *static_cast<server::HandlerState*>(options.user);
    state.direct_memory().allow();
    options.direct = &state.direct_memory();
  }
  server::DirectMemory& direct() { return world->state().direct_memory(); }
  static Deadline soon() { return Deadline::in(std::chrono::seconds(20)); }
  template <typename Open>
  std::unique_ptr<transport::Connection> end(bool connects, const Options& given, Open open) {
    Result<std::unique_ptr<transport::Connection>> socket = open();
    EXPECT_TRUE(socket.ok());
    auto made = transport::test::exchange(**socket, connects);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    Carrier carrier = std::move(made->carrier);
    if (given.wrap && connects) carrier = given.wrap(std::move(carrier));
    return transport::test::carry_on(*std::move(socket), std::move(carrier));
  }

  client::Session& session() { return world->session(); }
  bool may_pull(ByteView source) { return session().may_pull(source, source); }
  int copy(std::uint64_t device, ByteView source,
           client::Session::Reading reading = client::Session::Reading::kPulledSoon) {
    return session().copy_in(world->lane(), world->site("cuMemcpyHtoDAsync_v2"), device, source,
                             reading);
  }
  Bytes back(std::uint64_t device, std::size_t bytes) {
    Bytes got(bytes);
    EXPECT_EQ(session().copy_out(world->lane(), world->site("cuMemcpyDtoH_v2"), got, device, true),
              0);
    return got;
  }
  bool may_be_written(ByteView destination) {
    return session().may_be_written(destination, destination);
  }
  int copy_back(MutableBytes destination, std::uint64_t device, bool wait) {
    return session().copy_out(world->lane(), world->site("cuMemcpyDtoHAsync_v2"), destination,
                              device, wait, client::Session::Arrival::kWritten);
  }
  std::uint64_t written_bytes() {
    std::uint64_t sum = 0;
    for (const auto& row : session().stats().rows()) sum += row.written_bytes;
    return sum;
  }
  std::uint64_t pulled_bytes() {
    std::uint64_t sum = 0;
    for (const auto& row : session().stats().rows()) sum += row.pulled_bytes;
    return sum;
  }

  std::unique_ptr<World> world;
};

}  // namespace gpurun::callpath
