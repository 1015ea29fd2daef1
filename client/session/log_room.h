// LogRoom: room for records in the command log, and the threads that wait for it.
//
// The command log never waits by itself. A thread that finds it full waits here, until the worker
// has acknowledged earlier calls or the peer is gone. Nothing here costs a call more than the log's
// own reserve() while the log has room.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "client/log/command_log.h"
#include "client/session/session_shutdown.h"
#include "client/stats/stats.h"

namespace gpurun::client {

class LogRoom {
 public:
  LogRoom(CommandLog& log, Stats& stats, const SessionShutdown& shutdown) noexcept
      : log_(log), stats_(stats), shutdown_(shutdown) {}
  LogRoom(const LogRoom&) = delete;
  LogRoom& operator=(const LogRoom&) = delete;

  // As CommandLog::reserve(), but waits while the log is full. Slot without a start: the peer is
  // gone. Any thread.
  CommandLog::Slot reserve(std::uint32_t bytes, const CommandLog::Marks& marks) {
    const CommandLog::Slot slot = log_.reserve(bytes, marks);
    return slot.start != nullptr ? slot : wait_and_reserve(bytes, marks);
  }

  // The log was released up to some call. For the thread that reads the log.
  void note_released() {
    // Adds 0, because only a read-modify-write is ordered after the release of the log.
    if (waiters_.fetch_add(0, std::memory_order_acq_rel) != 0) wake_all();
  }
  void wake_all();

 private:
  CommandLog::Slot wait_and_reserve(std::uint32_t bytes, const CommandLog::Marks& marks);

  CommandLog& log_;
  Stats& stats_;
  const SessionShutdown& shutdown_;
  std::mutex mutex_;
  std::condition_variable room_;
  std::atomic<std::uint32_t> waiters_{0};
};

}  // namespace gpurun::client
