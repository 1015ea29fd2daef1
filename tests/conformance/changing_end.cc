// ChangingEnd: a thread attends whenever no test receives.
#include "tests/conformance/changing_end.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "base/unique_fd.h"
#include "transport/carrier/connection.h"

namespace gpurun::transport {
namespace {

constexpr int kPauseMs = 20;

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
    if (drawn > 1) return;
    EXPECT_TRUE((drawn == 0 ? carried_.leave() : carried_.enter()).ok());
  }

  // Once for each arrival at the socket, whenever it has room again, and now and then.
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
      static_cast<void>(epoll_wait(both.get(), &event, 1, kPauseMs));
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

}  // namespace

std::unique_ptr<Connection> make_changing_end(std::unique_ptr<Connection> carried, bool asks,
                                              std::uint64_t seed) {
  return std::make_unique<ChangingEnd>(std::move(carried), asks, seed);
}

}  // namespace gpurun::transport
