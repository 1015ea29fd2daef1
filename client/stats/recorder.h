// Recorder: this process's record of its calls, for `gpurun --trace`
// (protocol/statistics/recording.h).
//
// One ring for each lane, which only its thread writes, and one for the sending thread. There is no
// lock. Only a thread's first event allocates, for the ring. Each ring keeps the newest
// kRecordedEventsMax events. A process that does not trace has no recorder.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/statistics/recording.h"

namespace gpurun::client {

// GPURUN_TRACE names a folder. Checked when a session starts, and at a thread's calls.
bool recording_wanted() noexcept;

class Recorder {
 public:
  // Further lanes are not recorded, only counted as dropped.
  static constexpr std::size_t kLanesMax = 64;

  Recorder() = default;
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Steady clock, nanoseconds.
  static std::uint64_t now() noexcept;

  // For the lane's own thread, which event.thread names.
  void add(const protocol::RecordedEvent& event) noexcept;
  // For the holder of the sending role.
  void add_batch(const protocol::RecordedEvent& event) noexcept;
  // Call it before the program makes calls: the folder of the file, the two clocks at that time,
  // and why the worker does not record. Empty: it does.
  void begin(std::string folder, std::vector<protocol::ClockSample> clocks, std::string no_worker);
  const std::string& folder() const noexcept { return folder_; }
  const std::vector<protocol::ClockSample>& clocks() const noexcept { return clocks_; }
  const std::string& no_worker() const noexcept { return no_worker_; }

  // Any thread. Names the kernel with the handle that add()'s `subject` holds.
  void name_kernel(std::uint64_t handle, std::string_view name);

  // Returns what was recorded. Nothing is recorded from now on. Any thread, once, while others may
  // still add.
  protocol::Recording take();

 private:
  struct Ring;
  void add_to(std::atomic<Ring*>& place, const protocol::RecordedEvent& event) noexcept;

  std::atomic<bool> stopped_{false};
  std::atomic<std::uint64_t> dropped_{0};
  std::array<std::atomic<Ring*>, kLanesMax + 1> rings_{};  // The last is the sender's.
  std::string folder_, no_worker_;
  std::vector<protocol::ClockSample> clocks_;
  std::mutex names_mutex_;
  std::map<std::uint64_t, std::string> names_;  // Guarded by names_mutex_.
};

}  // namespace gpurun::client
