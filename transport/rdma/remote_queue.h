// RemoteQueue: the reads, or the writes, of a queue pair that are under way, and those that have
// ended and that no thread has asked for.
//
// Requests of a queue pair complete in their order. So the report of a request also stands for the
// reads and writes before it. One that fails reports that itself.
//
// One thread at a time. RdmaCarrier locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "transport/remote_memory.h"

namespace gpurun::transport::rdma {

class RemoteQueue {
 public:
  // `number`: of the request, in the order of the posts.
  void begin(std::uint64_t number, std::uint64_t id) { under_way_.push_back({number, id}); }
  std::size_t under_way() const noexcept { return under_way_.size(); }
  // The request `number` has ended so. `right`: with all of its bytes.
  void end(std::uint64_t number, bool right) {
    while (!under_way_.empty() && under_way_.front().number <= number) {
      ended_.push_back({under_way_.front().id, right});
      under_way_.pop_front();
    }
  }
  bool has_ended() const noexcept { return !ended_.empty(); }
  std::size_t take(std::span<RemoteMemory::Ended> into) {
    std::size_t count = 0;
    for (; count < into.size() && !ended_.empty(); ++count) {
      into[count] = ended_.front();
      ended_.pop_front();
    }
    return count;
  }

 private:
  struct UnderWay {
    std::uint64_t number;
    std::uint64_t id;
  };
  std::deque<UnderWay> under_way_;
  std::deque<RemoteMemory::Ended> ended_;
};

}  // namespace gpurun::transport::rdma
