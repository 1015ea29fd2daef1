// EventRegistry: the call that recorded each of the client's events last.
//
// Any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace gpurun::server {

class EventRegistry {
 public:
  // The call `sequence` has recorded `event`.
  void recorded(std::uint64_t event, std::uint64_t sequence);
  // The number of the call that last recorded the event. 0: never recorded, or by a capture.
  std::uint64_t last_record(std::uint64_t event) const;
  void forget(std::uint64_t event);

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::uint64_t> records_;  // Bounded by live handles.
};

}  // namespace gpurun::server
