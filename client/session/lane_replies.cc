// LaneReplies: what is noted in the lanes, and the wake-ups.
#include "client/session/lane_replies.h"

#include <string>

#include "client/log/lane_registry.h"

namespace gpurun::client {

void LaneReplies::expect(Lane& lane, std::uint64_t sequence, std::uint64_t came) {
  const std::lock_guard<std::mutex> lock(lane.mutex_);
  if (lane.awaited_in_ != serial_) {
    lane.abandoned_ = 0;
  } else if (lane.awaited_ != 0 && !lane.answered_) {
    ++lane.abandoned_;
  }
  lane.awaited_ = sequence;
  lane.awaited_in_ = serial_;
  lane.answered_ = false;
  lane.watermark_ = 0;
  lane.came_ = came;
}

LaneReplies::WaitState LaneReplies::lacks_reply(Lane& lane, bool peer_lives,
                                                bool* answered) noexcept {
  *answered = lane.answered_ && completions() >= lane.watermark_;
  if (*answered || !peer_lives) {
    lane.awaited_ = 0;
    return WaitState::kNothing;
  }
  return lane.answered_ ? WaitState::kBytes : WaitState::kNews;
}

Status LaneReplies::answer(const protocol::ReplyView& item) {
  Lane* lane = lane_of_id(item.header.lane);
  if (lane == nullptr) {
    return Status(Code::kProtocol, "a reply to lane " + std::to_string(item.header.lane) +
                                       ", which there never was");
  }
  const std::lock_guard<std::mutex> lock(lane->mutex_);
  if (lane->awaited_ != item.header.call_sequence || lane->answered_) {
    if (lane->abandoned_ > 0) {
      --lane->abandoned_;
      return {};
    }
    return Status(Code::kProtocol, "a reply to call " + std::to_string(item.header.call_sequence) +
                                       ", for which no thread waits; it was altered on the way, or "
                                       "the server is faulty");
  }
  lane->result_ = item.header.result;
  lane->watermark_ = item.header.watermark;
  lane->reply_.assign(item.payload.begin(), item.payload.end());
  lane->answered_ = true;
  lane->arrived_.notify_one();
  return {};
}

std::uint64_t LaneReplies::count_awaited(std::uint64_t taken) const {
  struct Waiting {
    std::uint64_t session, taken, calls;
  } waiting{serial_, taken, 0};
  const auto count = [](Lane& lane, void* user) {
    auto* const of = static_cast<Waiting*>(user);
    const std::lock_guard<std::mutex> lock(lane.mutex_);
    const bool waits = lane.awaited_ != 0 && !lane.answered_ && lane.awaited_in_ == of->session;
    if (waits && lane.awaited_ <= of->taken) ++of->calls;
  };
  for_each_lane(count, &waiting);
  return waiting.calls;
}

void LaneReplies::wake_all() {
  const auto wake = [](Lane& lane, void*) {
    // Under its mutex: the lane either sees the change or is already asleep.
    const std::lock_guard<std::mutex> lock(lane.mutex_);
    lane.arrived_.notify_all();
  };
  for_each_lane(wake, nullptr);
}

void LaneReplies::completed_through(std::uint64_t number) {
  std::uint64_t before = completions_.load(std::memory_order_relaxed);
  while (before < number &&
         !completions_.compare_exchange_weak(before, number, std::memory_order_release)) {
  }
  wake_all();
}

}  // namespace gpurun::client
