// Window state: the window of each device that this process holds, and the lock of its parts
// (device_windows.h). Other files of this folder share it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "client/interpose/memory/memory_ranges.h"
#include "client/process/shared_memory_pressure.h"
#include "client/process/thread.h"
#include "client/session/credit_book.h"
#include "client/session/free_tickets.h"

namespace gpurun::client::interpose {

enum class WindowState : std::uint8_t { kUnknown, kWished, kOpen, kNone };

struct Window {
  std::mutex mutex;  // Guards all members below.
  WindowState state = WindowState::kUnknown;
  std::uint64_t base = 0;  // From kWished on.
  std::uint64_t bytes = 0;
  CreditBook book;
  FreeTickets tickets;
  std::condition_variable released;  // A ticket has come back.
  // Freed during a capture, when the worker must not wait for the device. Reported later.
  std::vector<std::pair<Handle, std::uint64_t>> untold;  // Context, ticket.
};

struct Windows {
  Window by_device[kWindowedDevicesMax];
  std::atomic<std::uint64_t> last_ticket{0};
  std::once_flag joining;
  Thread giver;  // Answers on the SharedMemoryPressure for the life of the process.
};

// Immortal. A forked child makes its own, because a thread of the parent may hold a mutex.
Windows& windows();
// nullptr: the device has no window.
Window* window_of(int server_ordinal);
// Tickets are unique in the process.
std::uint64_t next_ticket();
// The worker has reported the ticket. Session::set_work_done() gets this function.
void work_done(std::uint64_t ticket);

// Locks a window. Publishes the window's idle bytes to the other processes when it unlocks.
class WindowLock {
 public:
  explicit WindowLock(Window& window) : window_(window), lock_(window.mutex) {}
  WindowLock(const WindowLock&) = delete;
  WindowLock& operator=(const WindowLock&) = delete;
  ~WindowLock() { publish(); }
  // Releases the lock until a ticket has come back. False: the time is over.
  bool wait_for_ticket(std::chrono::steady_clock::time_point deadline) {
    publish();
    return window_.released.wait_until(lock_, deadline) == std::cv_status::no_timeout;
  }

 private:
  void publish() const {
    const int place = shared_memory_place.load(std::memory_order_acquire);
    if (place < 0) return;
    shared_memory_board.load(std::memory_order_acquire)
        ->say_idle(place, static_cast<int>(&window_ - windows().by_device),
                   window_.book.idle_bytes());
  }

  Window& window_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace gpurun::client::interpose
