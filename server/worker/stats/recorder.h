// Recorder: the recording of calls and of the device's kernels, for a client that traces
// (protocol/statistics/recording.h). The newest protocol::kRecordedEventsMax events are kept.
//
// Any thread. A worker for a client that does not trace has no recorder.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "driver_abi/emulated_view.h"
#include "protocol/statistics/recording.h"

namespace gpurun::server {

class Recorder {
 public:
  // An event that finds no memory is dropped and counted.
  void add(const protocol::RecordedEvent& event) noexcept;
  // A kernel that the device has run. Called on a thread of the driver.
  void add_kernel(const driver_abi::KernelRun& run) noexcept;

  // The bytes of the recording from `offset` on, at most `bytes_max`. `*size` is the number of all
  // bytes. With offset 0 the recording is encoded anew from the events present.
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
