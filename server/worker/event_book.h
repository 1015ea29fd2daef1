// EventBook: which call recorded each of the client's events last, and for which events it pays to
// tell the client of their completion unasked: those that it has asked for in vain.
//
// Any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace gpurun::server {

class EventBook {
 public:
  // The call `sequence` has recorded `event`. True: its completion shall be told.
  bool recorded(std::uint64_t event, std::uint64_t sequence);
  // The number of its last record; 0: never recorded.
  std::uint64_t last_record(std::uint64_t event) const;
  // The client asked, and it was not complete.
  void asked_in_vain(std::uint64_t event);
  void forget(std::uint64_t event);

 private:
  // So many records of an event are told after one vain question.
  static constexpr int kTold = 32;
  struct Entry {
    std::uint64_t sequence = 0;
    int to_tell = 0;
  };
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Entry> entries_;  // Bounded by the handles that live.
};

}  // namespace gpurun::server
