// EventBook: which call recorded each of the client's events last, and whether the client was told
// that this record is complete.
//
// Any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace gpurun::server {

class EventBook {
 public:
  // The call `sequence` has recorded `event`.
  void recorded(std::uint64_t event, std::uint64_t sequence);
  // The number of its last record; 0: never recorded, or by a capture.
  std::uint64_t last_record(std::uint64_t event) const;
  // The client learns that the record of `event` by the call `sequence` is complete.
  void told(std::uint64_t event, std::uint64_t sequence);
  // Of its last record.
  bool is_told(std::uint64_t event) const;
  void forget(std::uint64_t event);

 private:
  mutable std::mutex mutex_;
  struct Entry {
    std::uint64_t recorded = 0;
    std::uint64_t told = 0;
  };
  std::unordered_map<std::uint64_t, Entry> records_;  // Bounded by the handles that live.
};

}  // namespace gpurun::server
