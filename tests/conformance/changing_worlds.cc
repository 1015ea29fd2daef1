// Changing worlds: ends that ask for changes, and a carrier that fails.
#include "tests/conformance/changing_worlds.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "tests/support/failing_carrier.h"
#include "transport/carrier/connection.h"

namespace gpurun::transport {
namespace {

// An end that attends to changes while the test does not receive, as both ends of a session do. Its
// sender and its receiver may also ask for changes, each with numbers of its own.
class ChangingEnd final : public Connection {
 public:
  ChangingEnd(std::unique_ptr<Connection> inner, bool asks, std::uint64_t seed)
      : inner_(std::move(inner)),
        carried_(dynamic_cast<carrier::CarriedConnection&>(*inner_)),
        asks_(asks),
        in_send_(static_cast<std::minstd_rand::result_type>(seed * 2)),
        in_receive_(static_cast<std::minstd_rand::result_type>(seed * 2 + 1)),
        attendant_([this] { attend(); }) {}
  ~ChangingEnd() override { stop_attending(); }

  const Capabilities& capabilities() const override { return inner_->capabilities(); }
  const std::string& description() const override { return inner_->description(); }
  Status send(std::span<const ByteView> parts, Deadline deadline) override {
    perhaps_change(in_send_);
    return inner_->send(parts, deadline);
  }
  Result<std::size_t> receive(MutableBytes into, std::size_t bytes_min,
                              Deadline deadline) override {
    perhaps_change(in_receive_);
    const std::lock_guard<std::mutex> lock(receiving_);
    return inner_->receive(into, bytes_min, deadline);
  }
  Result<std::size_t> receive_some(MutableBytes into, bool again) override {
    perhaps_change(in_receive_);
    const std::lock_guard<std::mutex> lock(receiving_);
    return inner_->receive_some(into, again);
  }
  void shut_down() noexcept override { inner_->shut_down(); }
  // The owner of a watch receives when the watch reports something.
  Result<std::unique_ptr<Watch>> watch() override {
    stop_attending();
    return inner_->watch();
  }
  bool holds_received() const noexcept override {
    const std::lock_guard<std::mutex> lock(receiving_);
    return inner_->holds_received();
  }
  int fd() const noexcept override { return inner_->fd(); }

 private:
  void perhaps_change(std::minstd_rand& random) {
    if (!asks_) return;
    const auto drawn = random() % 4;
    if (drawn == 0) EXPECT_TRUE(carried_.leave().ok());
    if (drawn == 1) EXPECT_TRUE(carried_.enter().ok());
  }

  // Once for each arrival at the socket, and whenever it has room again.
  void attend() {
    const UniqueFd both(epoll_create1(EPOLL_CLOEXEC));
    epoll_event arrival = {};
    arrival.events = EPOLLIN | EPOLLOUT | EPOLLET;
    epoll_event stop = {};
    stop.events = EPOLLIN;
    ASSERT_EQ(epoll_ctl(both.get(), EPOLL_CTL_ADD, inner_->fd(), &arrival), 0);
    ASSERT_EQ(epoll_ctl(both.get(), EPOLL_CTL_ADD, stop_.get(), &stop), 0);
    epoll_event event = {};
    while (!stopped_.load()) {
      if (epoll_wait(both.get(), &event, 1, -1) <= 0) continue;
      // A thread that receives attends by itself, but may be done soon.
      const std::lock_guard<std::mutex> lock(receiving_);
      (void)carried_.attend();
    }
  }

  void stop_attending() {
    if (stopped_.exchange(true)) return;
    ASSERT_EQ(eventfd_write(stop_.get(), 1), 0);
    attendant_.join();
  }

  const std::unique_ptr<Connection> inner_;
  carrier::CarriedConnection& carried_;
  const bool asks_;
  std::minstd_rand in_send_;
  std::minstd_rand in_receive_;
  mutable std::mutex receiving_;
  const UniqueFd stop_{eventfd(0, EFD_CLOEXEC)};
  std::atomic<bool> stopped_{false};
  std::thread attendant_;
};

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
    return std::unique_ptr<Connection>(
        new ChangingEnd(*std::move(shared), true, test_seed() + ++made_));
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
    return std::unique_ptr<Connection>(new ChangingEnd(std::move(carried), false, 0));
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
