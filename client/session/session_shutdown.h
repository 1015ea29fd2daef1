// SessionShutdown: the end of a session. Its owner ends it, its peer dies, or this process turns
// out to be a forked child.
//
// Every call first asks refusal(), which is made of loads only. die() does the rest, once. It
// writes one message with the reason and then stops all that waits or moves.
//
// Any thread. The lock is never held over a wait for the worker, and no other lock is taken under
// it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/status.h"
#include "client/early_answers/deferred_errors.h"
#include "client/log/command_log.h"
#include "client/process/fork_guard.h"
#include "client/session/session_types.h"

namespace gpurun::client {

class SessionShutdown {
 public:
  // Each is called once.
  struct Stop {
    void* user = nullptr;
    // Ends what the worker writes into the program's memory, before any call returns the end.
    void (*writes)(void* user) = nullptr;
    // Stops the connections and wakes all threads that wait, after alive() is false.
    void (*all)(void* user) = nullptr;
  };
  SessionShutdown(const SessionChannels& channels, const CommandLog& log,
                  const DeferredErrors& errors, Stop stop) noexcept
      : channels_(channels), log_(log), errors_(errors), stop_(stop) {}
  SessionShutdown(const SessionShutdown&) = delete;
  SessionShutdown& operator=(const SessionShutdown&) = delete;

  // True in a forked child: the session belongs to the parent.
  bool belongs_to_ancestor() const noexcept { return fork_guard::generation() != generation_; }
  // False once the peer is gone. death() then has the reason.
  bool alive() const noexcept { return !dead_.load(std::memory_order_acquire); }
  Status death() const;
  // Returns 0, or the result that every call on `context` (0: any) now returns.
  int refusal(Handle context) const noexcept {
    if (belongs_to_ancestor()) return kResultNotInitialized;
    if (!alive()) return kResultPeerGone;
    return errors_.sticky(context);
  }

  // The owner ends the session. Failures after this are its doing, and are not reported.
  void begin_ending() noexcept { ending_.store(true, std::memory_order_release); }
  bool ending() const noexcept { return ending_.load(std::memory_order_acquire); }

  // The peer is dead, or no longer to be trusted. Only the first cause counts.
  void die(Status cause);
  // For a bulk connection, or for sending. First waits for the log, which may bring the reason.
  void connection_failed(Status cause);

  // The worker has sent the reason of its end, so nothing else need be asked.
  void note_goodbye() noexcept { said_goodbye_.store(true, std::memory_order_release); }
  // A call was appended. The message names the last one.
  void note_call(std::uint16_t opcode) noexcept {
    last_opcode_.store(opcode, std::memory_order_relaxed);
  }

 private:
  const SessionChannels& channels_;
  const CommandLog& log_;
  const DeferredErrors& errors_;
  const Stop stop_;
  const std::uint32_t generation_ = fork_guard::generation();  // Of the process that started it.

  std::atomic<bool> dead_{false};
  std::atomic<bool> ending_{false};
  std::atomic<bool> said_goodbye_{false};
  mutable std::mutex mutex_;
  std::condition_variable died_;
  Status death_;  // Guarded by mutex_.

  // On a cache line of its own, because every call writes it.
  alignas(64) std::atomic<std::uint16_t> last_opcode_{0};
};

}  // namespace gpurun::client
