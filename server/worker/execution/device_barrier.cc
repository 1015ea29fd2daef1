// DeviceBarrier: one event for each lane and context, and the streams that wait behind the last
// one.
#include "server/worker/execution/device_barrier.h"

#include "server/worker/execution/call.h"
#include "server/worker/execution/thread_context.h"

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
  if (!stands()) return 0;
  if (const int result = driver_.cuStreamWaitEvent(stream, pending_, 0); result != 0) {
    return result;
  }
  behind_.insert(key);
  return 0;
}

bool DeviceBarrier::stands() {
  if (pending_ == nullptr) return false;
  if (driver_.cuEventQuery(pending_) == kErrorNotReady) return true;
  pending_ = nullptr;  // Complete, or ended with its context.
  behind_.clear();
  return false;
}

void DeviceBarrier::forget(std::uint64_t context) {
  sides_.erase(context);
  joins_.erase(context);
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
    const bool to_context = owed == Owed::kToContext || owed == Owed::kFreed;
    const bool to_others = lane == kAnyLane || owed == Owed::kToAll ||
                           (to_context && (context == 0 || of_context == context));
    if (!mark.owed || mark.since >= sequence || (of_lane != lane && !to_others)) continue;
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

int DeviceBarrier::make_side(std::uint64_t context, void** side) {
  void*& of = sides_[context];
  const int result = of == nullptr ? driver_.cuStreamCreate(&of, kSideStreamFlags) : 0;
  *side = of;
  return result;
}

int DeviceBarrier::join(std::uint64_t context, void* side, void* stream) {
  void*& event = joins_[context];
  int result = event == nullptr ? kErrorInvalidHandle : driver_.cuEventRecord(event, stream);
  if (result != 0) {  // As in mark().
    event = nullptr;
    result = driver_.cuEventCreate(&event, kEventDisableTiming);
    if (result == 0) result = driver_.cuEventRecord(event, stream);
  }
  return result == 0 ? driver_.cuStreamWaitEvent(side, event, 0) : result;
}

int DeviceBarrier::after_streams(const protocol::RecordHeader& header,
                                 std::span<void* const> streams) {
  const bool behind_another = stands();
  void* behind = streams.front();
  if (streams.size() > 1 || behind_another) {
    int result = make_side(header.context, &behind);
    for (void* const stream : streams) {
      if (result == 0 && stream != behind) result = join(header.context, behind, stream);
    }
    if (result == 0 && behind_another) result = driver_.cuStreamWaitEvent(behind, pending_, 0);
    if (result != 0) return result;
  }
  const int result = mark(header, behind, Owed::kFreed);
  if (result == 0) last_.streams.assign(streams.begin(), streams.end());
  return result;
}

int DeviceBarrier::outlive(std::uint64_t context, void* stream) {
  if (is_capturing(driver_, stream)) return 0;
  void* side = nullptr;
  const int result = make_side(context, &side);
  return result == 0 ? join(context, side, stream) : result;
}

int DeviceBarrier::after_event(const protocol::RecordHeader& header, void* event) {
  void* side = nullptr;
  int result = make_side(header.context, &side);
  if (result == 0) result = driver_.cuStreamWaitEvent(side, event, 0);
  if (result == 0 && pending_ != nullptr) result = driver_.cuStreamWaitEvent(side, pending_, 0);
  return result == 0 ? mark(header, side, Owed::kToAll) : result;
}

int DeviceBarrier::mark(const protocol::RecordHeader& header, void* stream, Owed owed) {
  Mark& mark = marks_[{header.lane, header.context, owed}];
  if (kept_ != nullptr && mark.event == kept_) std::swap(mark.event, mark.other);
  void*& event = mark.event;
  int result = event == nullptr ? kErrorInvalidHandle : driver_.cuEventRecord(event, stream);
  if (result != 0) {  // There is no event yet, or it ended with a former life of the context.
    event = nullptr;
    result = driver_.cuEventCreate(&event, kEventDisableTiming);
    if (result == 0) result = driver_.cuEventRecord(event, stream);
  }
  if (!mark.owed) mark.since = header.sequence;
  mark.owed = result == 0;
  if (result != 0) return result;
  pending_ = event;
  behind_.clear();
  last_ = {header, event, {}};
  return 0;
}

}  // namespace gpurun::server
