// Recorder: a ring of events, delivered in pieces.
#include "server/worker/stats/recorder.h"

#include <algorithm>
#include <string_view>

namespace gpurun::server {

void Recorder::add_locked(const protocol::RecordedEvent& event) {
  if (ring_.size() < protocol::kRecordedEventsMax) {
    ring_.push_back(event);
  } else {
    ring_[added_ % ring_.size()] = event;
  }
  ++added_;
}

void Recorder::add(const protocol::RecordedEvent& event) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    add_locked(event);
  } catch (...) {
    ++lost_;
  }
}

void Recorder::add_kernel(const driver_abi::KernelRun& run) noexcept {
  protocol::RecordedEvent event;
  event.kind = protocol::Recorded::kKernel;
  event.thread = static_cast<std::uint32_t>(run.device);
  event.sequence = run.number;
  event.begin_ns = run.begin_ns;
  event.end_ns = std::max(run.begin_ns, run.end_ns);
  event.stream = run.stream;
  event.value = run.level;
  const std::string_view name =
      std::string_view(run.name).substr(0, protocol::kRecordedNameBytesMax);
  const std::lock_guard lock(mutex_);
  try {
    auto known = names_.find(name);
    if (known == names_.end() && names_.size() < protocol::kRecordedNamesMax) {
      known = names_.emplace(std::string(name), names_.size() + 1).first;
    }
    event.subject = known == names_.end() ? 0 : known->second;
    add_locked(event);
  } catch (...) {
    ++lost_;
  }
}

Bytes Recorder::piece(std::uint64_t offset, std::size_t bytes_max, std::uint64_t* size) {
  const std::lock_guard lock(mutex_);
  if (offset == 0) {
    protocol::Recording recording;
    const std::uint64_t overwritten = added_ - ring_.size();
    recording.dropped = overwritten + lost_;
    const auto oldest = static_cast<std::ptrdiff_t>(ring_.empty() ? 0 : added_ % ring_.size());
    // Before the ring is full the first event is the oldest.
    const auto begin = ring_.begin() + (overwritten == 0 ? 0 : oldest);
    recording.events.assign(begin, ring_.end());
    recording.events.insert(recording.events.end(), ring_.begin(), begin);
    for (const auto& [name, number] : names_) recording.names[number] = name;
    encoded_ = protocol::encode(recording);
  }
  *size = encoded_.size();
  if (offset >= encoded_.size()) return {};
  const auto from = encoded_.begin() + static_cast<std::ptrdiff_t>(offset);
  const std::size_t count = std::min(bytes_max, encoded_.size() - static_cast<std::size_t>(offset));
  return Bytes(from, from + static_cast<std::ptrdiff_t>(count));
}

}  // namespace gpurun::server
