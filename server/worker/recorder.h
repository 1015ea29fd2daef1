// Recorder: what a worker writes down of its calls and of the device's kernels, for a client that
// traces (protocol/recording.h). The newest protocol::kRecordedEventsMax events are kept.
//
// Any thread. A worker that nobody asked has none.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "driver_abi/emulated_view.h"
#include "protocol/recording.h"

namespace gpurun::server {

class Recorder {
 public:
  // What there is no memory for is missing, and counted.
  void add(const protocol::RecordedEvent& event) noexcept;
  // A kernel that the device has run. On a thread of the driver's.
  void add_kernel(const driver_abi::KernelRun& run) noexcept;

  // The recording as bytes, from `offset` on, at most `bytes_max`; `*size` is how many there are in
  // all. It is made anew, of what is there then, when the question is about its beginning.
  Bytes piece(std::uint64_t offset, std::size_t bytes_max, std::uint64_t* size);

 private:
  void add_locked(const protocol::RecordedEvent& event);

  std::mutex mutex_;  // Guards all.
  std::vector<protocol::RecordedEvent> ring_;
  std::uint64_t added_ = 0;
  std::uint64_t lost_ = 0;
  std::map<std::string, std::uint64_t, std::less<>> names_;
  Bytes encoded_;
};

}  // namespace gpurun::server
