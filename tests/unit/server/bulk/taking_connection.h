// TakingConnection: a connection that only accepts sent bytes, for tests of the time and the thread
// of each send.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "transport/transport.h"

namespace gpurun::server {

// Also counts the bytes that each thread has sent.
class TakingConnection : public transport::Connection {
 public:
  // `at_once`: the most bytes that send_some() accepts.
  explicit TakingConnection(std::size_t at_once) : at_once_(at_once) {}

  const transport::Capabilities& capabilities() const override { return capabilities_; }
  const std::string& description() const override { return description_; }
  Status send(std::span<const ByteView> parts, Deadline /*deadline*/) override {
    take(parts, std::size_t{1} << 30);
    return {};
  }
  Result<std::size_t> send_some(std::span<const ByteView> parts) override {
    return take(parts, at_once_);
  }
  Result<std::size_t> receive(MutableBytes, std::size_t, Deadline) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_; });
    return Status(Code::kPeerGone, "over");
  }
  void shut_down() noexcept override {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

  // Waits until that many bytes have been sent, and returns them.
  Bytes sent(std::size_t bytes) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(30), [&] { return sent_.size() >= bytes; }));
    return sent_;
  }
  // Without waiting: the bytes sent so far, and the number of sends.
  Bytes sent_so_far() {
    const std::lock_guard lock(mutex_);
    return sent_;
  }
  std::size_t sends() {
    const std::lock_guard lock(mutex_);
    return sends_;
  }
  std::size_t sent_by(std::thread::id thread) {
    const std::lock_guard lock(mutex_);
    return sent_by_[thread];
  }

 private:
  std::size_t take(std::span<const ByteView> parts, std::size_t most) {
    const std::lock_guard lock(mutex_);
    ++sends_;
    std::size_t taken = 0;
    for (const ByteView part : parts) {
      const ByteView some = part.first(std::min(part.size(), most - taken));
      sent_.insert(sent_.end(), some.begin(), some.end());
      taken += some.size();
    }
    sent_by_[std::this_thread::get_id()] += taken;
    changed_.notify_all();
    return taken;
  }

  const std::size_t at_once_;
  transport::Capabilities capabilities_;
  std::string description_ = "taking";
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  Bytes sent_;
  std::size_t sends_ = 0;
  std::map<std::thread::id, std::size_t> sent_by_;
};

// Blocks each send until the test allows it.
class StandingConnection final : public TakingConnection {
 public:
  StandingConnection() : TakingConnection(0) {}
  Status send(std::span<const ByteView> parts, Deadline deadline) override {
    {
      std::unique_lock lock(gate_);
      stands_ = true;
      change_.notify_all();
      change_.wait(lock, [this] { return may_ > 0; });
      --may_;
    }
    return TakingConnection::send(parts, deadline);
  }
  void await() {
    std::unique_lock lock(gate_);
    EXPECT_TRUE(change_.wait_for(lock, std::chrono::seconds(30), [this] { return stands_; }));
  }
  void let_go(int sends) {
    const std::lock_guard lock(gate_);
    may_ += sends;
    change_.notify_all();
  }

 private:
  std::mutex gate_;
  std::condition_variable change_;
  bool stands_ = false;
  int may_ = 0;
};

}  // namespace gpurun::server
