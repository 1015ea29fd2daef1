// Window state: the process's windows, and what a ticket of the worker changes in them.
#include "client/interpose/memory/window_state.h"

#include <memory>

#include "client/process/fork_guard.h"

namespace gpurun::client::interpose {
namespace {

std::atomic<Windows*> g_windows{nullptr};
void forget_parents_windows() { g_windows.store(nullptr, std::memory_order_release); }

}  // namespace

Windows& windows() {
  Windows* found = g_windows.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  fork_guard::in_each_child(&forget_parents_windows);
  auto made = std::make_unique<Windows>();
  if (!g_windows.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) {
    return *found;
  }
  return *made.release();
}

std::uint64_t next_ticket() {
  return windows().last_ticket.fetch_add(1, std::memory_order_relaxed) + 1;
}

Window* window_of(int server_ordinal) {
  return server_ordinal >= 0 && server_ordinal < kWindowedDevicesMax
             ? &windows().by_device[server_ordinal]
             : nullptr;
}

// Runs on the receiver's thread.
void work_done(std::uint64_t ticket) {
  // Tickets are unique in the process, so each device is tried.
  Windows& all = windows();
  for (int device = 0; device < kWindowedDevicesMax; ++device) {
    if (!has_device_window(device)) continue;
    Window& window = all.by_device[device];
    const WindowLock lock(window);
    window.book.release(ticket);
    window.tickets.done(ticket);
    window.released.notify_all();
  }
}

}  // namespace gpurun::client::interpose
