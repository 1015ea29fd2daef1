// Changing worlds in shared memory: ends that ask for changes, and a carrier that fails.
#include "tests/conformance/changing_worlds.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <utility>

#include "tests/conformance/changing_end.h"
#include "tests/support/failing_carrier.h"
#include "transport/carrier/connection.h"

namespace gpurun::transport {
namespace {

carrier::CarrierOptions changes() {
  carrier::CarrierOptions options;
  options.may_change = true;
  return options;
}

class ChangingShmWorld : public SharedMemoryWorld {
 private:
  Result<std::unique_ptr<Connection>> carry(std::unique_ptr<Connection> socket,
                                            shm::SharedMemory memory, shm::Side side) override {
    auto shared = shm::share(std::move(socket), std::move(memory), side, changes());
    if (!shared.ok()) return shared;
    return make_changing_end(*std::move(shared), true, test_seed() + ++made_);
  }

  std::atomic<std::uint64_t> made_{0};
};

class FailingShmWorld : public SharedMemoryWorld {
 private:
  Result<std::unique_ptr<Connection>> carry(std::unique_ptr<Connection> socket,
                                            shm::SharedMemory memory, shm::Side side) override {
    auto* const concrete = dynamic_cast<sockets::SocketConnection*>(socket.get());
    if (concrete == nullptr) return Status(Code::kInternal, "no local socket");
    static_cast<void>(socket.release());
    std::minstd_rand random(
        static_cast<std::minstd_rand::result_type>(test_seed() + 977 * ++made_));
    const auto some = [&random] { return std::size_t{random()} % (1U << (random() % 24)); };
    // A test with a watch does not attend, so its few bytes must go.
    const std::size_t puts = 64 + some();
    auto failing = std::make_unique<test::FailingCarrier>(
        std::make_unique<shm::RingCarrier>(std::move(memory), side), puts, some());
    Capabilities capabilities;
    capabilities.same_host = true;
    capabilities.shares_memory = true;
    auto carried =
        carrier::carry(carrier::plain_socket(std::unique_ptr<sockets::SocketConnection>(concrete)),
                       std::move(failing), capabilities, changes());
    return make_changing_end(std::move(carried), false, 0);
  }

  std::atomic<std::uint64_t> made_{0};
};

}  // namespace

SharedMemoryWorld::SharedMemoryWorld() {
  static std::atomic<unsigned> made{0};
  name_ = "gpurun-test-" + std::to_string(getpid()) + "-" + std::to_string(made++);
  Result<std::unique_ptr<Listener>> listener = listen("unix:" + name_);
  EXPECT_TRUE(listener.ok()) << listener.status().to_string();
  if (listener.ok()) listener_ = std::move(*listener);
}

Result<std::unique_ptr<Connection>> SharedMemoryWorld::connect() {
  auto socket = transport::connect("unix:" + name_, Deadline::in(kTestTimeout));
  if (!socket.ok()) return socket;
  std::string why_none;
  auto memory = shm::offer(**socket, shm::kRingBytes, Deadline::in(kTestTimeout), &why_none);
  if (!memory.ok()) return memory.status();
  EXPECT_TRUE(memory->is_there()) << why_none;
  return carry(*std::move(socket), *std::move(memory), shm::Side::kOffered);
}

Result<std::unique_ptr<Connection>> SharedMemoryWorld::accept() {
  auto socket = listener_->accept(Deadline::in(kTestTimeout));
  if (!socket.ok()) return socket;
  auto memory = shm::take_offer(**socket, Deadline::in(kTestTimeout));
  if (!memory.ok()) return memory.status();
  return carry(*std::move(socket), *std::move(memory), shm::Side::kTook);
}

std::unique_ptr<World> make_changing_shm() { return std::make_unique<ChangingShmWorld>(); }
std::unique_ptr<World> make_failing_shm() { return std::make_unique<FailingShmWorld>(); }

}  // namespace gpurun::transport
