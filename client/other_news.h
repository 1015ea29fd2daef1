// OtherNews: how far the device is, as the program may know it by other ways than the log's items:
// bytes of a copy that nobody waited for, a function of its own that a stream has come to, a wait
// that was answered early. An event that such a thing stands behind must be asked for; of any other
// whose completion will be told we may say by ourselves that it is not complete (docs/adr/0009).
//
// Calls are their sequence numbers. Any thread, but for what says otherwise.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpurun::client {

class OtherNews {
 public:
  // The program is about to see something that happens in or behind the call `at_most` of some
  // stream, or an earlier one.
  void comes(std::uint64_t at_most) noexcept {
    raise(behind_, at_most);
    came_.fetch_add(1, std::memory_order_acq_rel);
  }
  // The wait `call` was answered early; and the worker has answered whether an event is complete
  // in the call `question`, which it does only behind all waits before it.
  void waited_early(std::uint64_t call) noexcept { raise(early_wait_, call); }
  void asked(std::uint64_t question) noexcept { raise(question_, question); }

  // How much has come: before a call that waits for its reply is committed, and when who reads the
  // log has read the reply. Before the reply stood the end of every event that what had come before
  // the call stands behind.
  std::uint64_t mark() const noexcept { return came_.load(std::memory_order_acquire); }
  void covered(std::uint64_t mark) noexcept {
    if (mark > covered_.load(std::memory_order_relaxed)) {
      covered_.store(mark, std::memory_order_release);
    }
  }

  // Nothing of the kind can stand behind the record `call` of an event.
  bool none_behind(std::uint64_t call) const noexcept {
    const std::uint64_t wait = early_wait_.load(std::memory_order_acquire);
    if (wait > call && question_.load(std::memory_order_acquire) < wait) return false;
    const std::uint64_t covered = covered_.load(std::memory_order_acquire);
    return came_.load(std::memory_order_acquire) == covered ||
           behind_.load(std::memory_order_acquire) < call;
  }

 private:
  static void raise(std::atomic<std::uint64_t>& to, std::uint64_t value) noexcept {
    std::uint64_t last = to.load(std::memory_order_relaxed);
    while (last < value && !to.compare_exchange_weak(last, value, std::memory_order_acq_rel)) {
    }
  }

  std::atomic<std::uint64_t> came_{0};
  std::atomic<std::uint64_t> covered_{0};
  std::atomic<std::uint64_t> behind_{0};
  std::atomic<std::uint64_t> early_wait_{0};
  std::atomic<std::uint64_t> question_{0};
};

}  // namespace gpurun::client
