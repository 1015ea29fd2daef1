// Loopback connection: one bounded queue of bytes each way. Each end wakes a thread that waits at
// the other end.
#include "transport/loopback/connection.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>

namespace gpurun::transport::loopback {
namespace {

// Waits for `ready` until `deadline`; false when it passed first.
template <typename Predicate>
bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Deadline deadline,
          Predicate ready) {
  if (deadline.is_never()) {
    changed.wait(lock, ready);
    return true;
  }
  return changed.wait_until(lock, deadline.when(), ready);
}

// One direction. Any thread.
class ByteQueue {
 public:
  enum class Outcome { kDone, kDeadline, kClosed };

  // Appends all of `bytes`. `*taken` says how many went in when it ends early.
  Outcome put(ByteView bytes, Deadline deadline, std::size_t* taken) {
    std::unique_lock lock(mutex_);
    while (!bytes.empty()) {
      if (!wait(changed_, lock, deadline,
                [this] { return closed_ || bytes_.size() < kQueueBytes; })) {
        return Outcome::kDeadline;
      }
      if (closed_) return Outcome::kClosed;
      const std::size_t count = std::min(bytes.size(), kQueueBytes - bytes_.size());
      bytes_.insert(bytes_.end(), bytes.begin(),
                    bytes.begin() + static_cast<std::ptrdiff_t>(count));
      bytes = bytes.subspan(count);
      *taken += count;
      changed_.notify_all();
    }
    return closed_ ? Outcome::kClosed : Outcome::kDone;
  }

  // Takes up to into.size() bytes once bytes_min are there, and nothing before. Bytes that were
  // queued before the other end closed can still be read.
  Outcome take(MutableBytes into, std::size_t bytes_min, Deadline deadline, std::size_t* taken) {
    std::unique_lock lock(mutex_);
    // A request above the queue's bound is met piece by piece, because the rest cannot come before
    // there is room.
    const std::size_t wanted = std::min(bytes_min, kQueueBytes);
    if (!wait(changed_, lock, deadline,
              [this, wanted] { return closed_ || bytes_.size() >= wanted; })) {
      return Outcome::kDeadline;
    }
    if (abandoned_ || bytes_.size() < wanted) return Outcome::kClosed;
    const std::size_t count = std::min(into.size(), bytes_.size());
    const auto end = bytes_.begin() + static_cast<std::ptrdiff_t>(count);
    std::copy(bytes_.begin(), end, into.begin());
    bytes_.erase(bytes_.begin(), end);
    *taken = count;
    changed_.notify_all();
    return Outcome::kDone;
  }

  // Waits for something to take, but not while it is paused.
  Outcome watch(Deadline deadline) {
    std::unique_lock lock(mutex_);
    const bool ready = wait(changed_, lock, deadline,
                            [this] { return pauses_ == 0 && (closed_ || !bytes_.empty()); });
    return ready ? Outcome::kDone : Outcome::kDeadline;
  }

  void pause(int more) {
    const std::lock_guard lock(mutex_);
    pauses_ += more;
    changed_.notify_all();
  }

  // No more bytes come in. `abandon`: the rest is not read either.
  void close(bool abandon) {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    abandoned_ = abandoned_ || abandon;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::byte> bytes_;
  bool closed_ = false;
  bool abandoned_ = false;
  int pauses_ = 0;
};

class LoopbackWatch final : public Watch {
 public:
  explicit LoopbackWatch(std::shared_ptr<ByteQueue> in) : in_(std::move(in)) {}
  Status wait(Deadline deadline) override {
    if (in_->watch(deadline) == ByteQueue::Outcome::kDone) return {};
    return Status(Code::kDeadline, "loopback: watching");
  }
  void pause() noexcept override { in_->pause(1); }
  void resume() noexcept override { in_->pause(-1); }

 private:
  std::shared_ptr<ByteQueue> in_;
};

class LoopbackConnection final : public Connection {
 public:
  LoopbackConnection(std::shared_ptr<ByteQueue> out, std::shared_ptr<ByteQueue> in)
      : out_(std::move(out)), in_(std::move(in)) {
    capabilities_.same_host = true;
  }
  ~LoopbackConnection() override { shut_down(); }

  const Capabilities& capabilities() const override { return capabilities_; }
  const std::string& description() const override { return description_; }

  Status send(std::span<const ByteView> parts, Deadline deadline) override {
    std::size_t taken = 0;
    for (const ByteView part : parts) {
      switch (out_->put(part, deadline, &taken)) {
        case ByteQueue::Outcome::kDone:
          continue;
        case ByteQueue::Outcome::kClosed:
          return Status(Code::kPeerGone, "loopback: closed while sending");
        case ByteQueue::Outcome::kDeadline:
          if (taken == 0) return Status(Code::kDeadline, "loopback: sending");
          shut_down();
          return Status(Code::kPeerGone, "loopback: the deadline cut a message in half");
      }
    }
    return {};
  }

  Result<std::size_t> receive(MutableBytes into, std::size_t bytes_min,
                              Deadline deadline) override {
    if (bytes_min == 0 || bytes_min > into.size()) {
      return Status(Code::kInvalidArgument, "loopback: receive of no bytes");
    }
    std::size_t got = std::min(kept_.size(), into.size());
    std::copy_n(kept_.begin(), got, into.begin());
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(got));
    while (got < bytes_min) {
      std::size_t taken = 0;
      switch (in_->take(into.subspan(got), bytes_min - got, deadline, &taken)) {
        case ByteQueue::Outcome::kDone:
          got += taken;
          continue;
        case ByteQueue::Outcome::kClosed:
          return Status(Code::kPeerGone, "loopback: closed while receiving");
        case ByteQueue::Outcome::kDeadline:
          kept_.assign(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(got));
          return Status(Code::kDeadline, "loopback: receiving");
      }
    }
    return got;
  }

  Result<std::unique_ptr<Watch>> watch() override {
    return std::unique_ptr<Watch>(std::make_unique<LoopbackWatch>(in_));
  }
  bool holds_received() const noexcept override { return !kept_.empty(); }

  void shut_down() noexcept override {
    out_->close(false);
    in_->close(true);
  }

 private:
  std::shared_ptr<ByteQueue> out_;
  std::shared_ptr<ByteQueue> in_;
  Capabilities capabilities_;
  std::string description_ = "loopback";
  Bytes kept_;  // Receiving thread only.
};

}  // namespace

Pair connect_pair() {
  auto forth = std::make_shared<ByteQueue>();
  auto back = std::make_shared<ByteQueue>();
  return {std::make_unique<LoopbackConnection>(forth, back),
          std::make_unique<LoopbackConnection>(back, forth)};
}

}  // namespace gpurun::transport::loopback
