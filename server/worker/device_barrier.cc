// One event for each lane and context, and which streams wait behind the last one recorded.
#include "server/worker/device_barrier.h"

#include "server/worker/call.h"
#include "server/worker/thread_context.h"

namespace gpurun::server {
namespace {

constexpr unsigned kEventDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING (cuda.h).
constexpr unsigned kSideStreamFlags = 1;     // CU_STREAM_NON_BLOCKING (cuda.h).

}  // namespace

DeviceBarrier::StreamKey DeviceBarrier::key_of(const protocol::RecordHeader& header) {
  if (header.stream > protocol::kStreamPerThread) return {header.stream, 0, 0};
  if (header.stream == protocol::kStreamPerThread) {
    return {header.stream, header.context, header.lane};
  }
  return {protocol::kStreamLegacy, header.context, 0};
}

int DeviceBarrier::before(const protocol::RecordHeader& header, void* stream) {
  if (pending_ == nullptr) return 0;
  const StreamKey key = key_of(header);
  if (behind_.count(key) != 0) return 0;
  if (is_capturing(driver_, stream)) return 0;
  // Complete, or gone with its context.
  if (driver_.cuEventQuery(pending_) != kErrorNotReady) {
    pending_ = nullptr;
    behind_.clear();
    return 0;
  }
  if (const int result = driver_.cuStreamWaitEvent(stream, pending_, 0); result != 0) {
    return result;
  }
  behind_.insert(key);
  return 0;
}

void DeviceBarrier::forget(std::uint64_t context) {
  sides_.erase(context);
  std::erase_if(marks_, [&](const auto& each) {
    if (std::get<1>(each.first) != context) return false;
    if (kept_ == each.second.event || kept_ == each.second.other) kept_ = nullptr;
    if (each.second.event == pending_) {
      pending_ = nullptr;
      behind_.clear();
    }
    return true;
  });
}

std::vector<DeviceBarrier::OwedEvent> DeviceBarrier::owed_to(std::uint32_t lane,
                                                             std::uint64_t context,
                                                             std::uint64_t sequence) {
  std::vector<OwedEvent> events;
  for (auto& [key, mark] : marks_) {
    const auto [of_lane, of_context, owed] = key;
    const bool to_others = owed == Owed::kToAll ||
                           (owed == Owed::kToContext && (context == 0 || of_context == context));
    if (!mark.owed || mark.since > sequence || (of_lane != lane && !to_others)) continue;
    mark.owed = driver_.cuEventQuery(mark.event) == kErrorNotReady;
    if (mark.owed) events.push_back({mark.event, of_context});
  }
  return events;
}

int DeviceBarrier::after(const protocol::RecordHeader& header, void* stream, Owed owed) {
  if (is_capturing(driver_, stream)) return 0;
  const int result = mark(header, stream, owed);
  if (result == 0) behind_.insert(key_of(header));
  return result;
}

int DeviceBarrier::after_event(const protocol::RecordHeader& header, void* event) {
  void*& side = sides_[header.context];
  int result = side == nullptr ? driver_.cuStreamCreate(&side, kSideStreamFlags) : 0;
  if (result == 0) result = driver_.cuStreamWaitEvent(side, event, 0);
  if (result == 0 && pending_ != nullptr) result = driver_.cuStreamWaitEvent(side, pending_, 0);
  return result == 0 ? mark(header, side, Owed::kToAll) : result;
}

int DeviceBarrier::mark(const protocol::RecordHeader& header, void* stream, Owed owed) {
  Mark& mark = marks_[{header.lane, header.context, owed}];
  if (kept_ != nullptr && mark.event == kept_) std::swap(mark.event, mark.other);
  void*& event = mark.event;
  int result = event == nullptr ? kErrorInvalidHandle : driver_.cuEventRecord(event, stream);
  if (result != 0) {  // None yet, or it went with a former life of the context.
    event = nullptr;
    result = driver_.cuEventCreate(&event, kEventDisableTiming);
    if (result == 0) result = driver_.cuEventRecord(event, stream);
  }
  if (!mark.owed) mark.since = header.sequence;
  mark.owed = result == 0;
  if (result != 0) return result;
  pending_ = event;
  behind_.clear();
  last_ = {header, event};
  return 0;
}

}  // namespace gpurun::server
