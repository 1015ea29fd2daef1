// Faulty connection: draws each fault from the seed at the call that it affects.
#include "transport/faulty/connection.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

namespace gpurun::transport::faulty {
namespace {

// One direction's source of faults; used by one thread at a time.
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t direction) : engine_(seed * 2 + direction) {}
  bool one_in(std::uint32_t count) { return count != 0 && engine_() % count == 0; }
  std::uint64_t below(std::uint64_t bound) { return bound == 0 ? 0 : engine_() % bound; }

 private:
  std::mt19937_64 engine_;
};

class FaultyConnection final : public Connection {
 public:
  FaultyConnection(std::unique_ptr<Connection> inner, const Plan& plan)
      : inner_(std::move(inner)),
        plan_(plan),
        send_dice_(plan.seed, 0),
        receive_dice_(plan.seed, 1),
        description_("faulty (seed " + std::to_string(plan.seed) + ") " + inner_->description()) {
    plan_next_corruption();
  }

  const Capabilities& capabilities() const override { return inner_->capabilities(); }
  const std::string& description() const override { return description_; }
  void bound_unsent(std::size_t bytes) noexcept override { inner_->bound_unsent(bytes); }
  void shut_down() noexcept override { inner_->shut_down(); }
  Result<std::unique_ptr<Watch>> watch() override { return inner_->watch(); }
  bool holds_received() const noexcept override { return inner_->holds_received(); }
  // Exposes no descriptor, because its users would bypass the faults.

  Status send(std::span<const ByteView> parts, Deadline deadline) override {
    delay(send_dice_);
    Bytes whole;
    for (const ByteView part : parts) whole.insert(whole.end(), part.begin(), part.end());
    corrupt(whole);
    const bool cut = plan_.cut_after_bytes - std::min(plan_.cut_after_bytes, sent_) < whole.size();
    if (cut) whole.resize(static_cast<std::size_t>(plan_.cut_after_bytes - sent_));
    const Status status = send_pieces(whole, deadline);
    if (!status.ok()) return status;
    sent_ += whole.size();
    if (cut) {
      inner_->shut_down();
      return Status(Code::kPeerGone, description_ + ": cut as planned");
    }
    return {};
  }

  Result<std::size_t> receive(MutableBytes into, std::size_t bytes_min,
                              Deadline deadline) override {
    delay(receive_dice_);
    if (receive_dice_.one_in(plan_.short_read_one_in) && bytes_min <= into.size()) {
      into = into.first(bytes_min);
    }
    return inner_->receive(into, bytes_min, deadline);
  }

 private:
  void delay(Dice& dice) {
    if (!dice.one_in(plan_.delay_one_in)) return;
    std::this_thread::sleep_for(std::chrono::microseconds(dice.below(plan_.delay_us_max)));
  }

  void plan_next_corruption() {
    next_corruption_ = plan_.corrupt_one_in_bytes == 0
                           ? Plan::kNever
                           : sent_ + 1 + send_dice_.below(2ull * plan_.corrupt_one_in_bytes);
  }

  void corrupt(Bytes& whole) {
    const std::uint64_t end = sent_ + whole.size();
    while (next_corruption_ < end) {
      if (next_corruption_ >= sent_) {
        const auto flip = static_cast<std::byte>(1 + send_dice_.below(255));
        whole[static_cast<std::size_t>(next_corruption_ - sent_)] ^= flip;
      }
      next_corruption_ += 1 + send_dice_.below(2ull * plan_.corrupt_one_in_bytes);
    }
  }

  // A piece after the first that meets the deadline has cut the message.
  Status send_pieces(ByteView bytes, Deadline deadline) {
    const bool split = bytes.size() > 1 && send_dice_.one_in(plan_.split_one_in);
    const std::size_t first = split ? 1 + send_dice_.below(bytes.size() - 1) : bytes.size();
    const ByteView head = bytes.first(first);
    GPURUN_RETURN_IF_ERROR(inner_->send({&head, 1}, deadline));
    if (!split) return {};
    const ByteView tail = bytes.subspan(first);
    const Status status = inner_->send({&tail, 1}, deadline);
    if (status.ok() || status.code() == Code::kPeerGone) return status;
    inner_->shut_down();
    return Status(Code::kPeerGone, description_ + ": the deadline cut a message in half");
  }

  std::unique_ptr<Connection> inner_;
  const Plan plan_;
  Dice send_dice_;
  Dice receive_dice_;
  std::string description_;
  std::uint64_t sent_ = 0;
  std::uint64_t next_corruption_ = Plan::kNever;
};

}  // namespace

Plan Plan::harmless(std::uint64_t seed) {
  Plan plan;
  plan.seed = seed;
  plan.delay_one_in = 16;
  plan.short_read_one_in = 2;
  plan.split_one_in = 2;
  return plan;
}

std::unique_ptr<Connection> wrap(std::unique_ptr<Connection> inner, const Plan& plan) {
  return std::make_unique<FaultyConnection>(std::move(inner), plan);
}

}  // namespace gpurun::transport::faulty
