// Completions: the notice that work handed to the driver's streams is complete on the device.
//
// An event of the worker is recorded behind the work. A helper thread (thread_pool.h) waits for the
// events of one stream, so that a stream that waits for hours delays no other notice. Waking a
// helper takes longer than a short copy. For work that is mostly asked about at once, and then
// found complete by settle(), attend() starts the helper a moment later. Streams that take part in
// a capture must not come here: the event would enter the program's graph.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "server/driver/driver_functions.h"
#include "server/worker/execution/skipped_waits.h"
#include "server/worker/execution/thread_pool.h"

namespace gpurun::server {

class Completions {
 public:
  // `result`: 0, or the CUresult with which the work ended. Must not call after() or settle().
  using Ended = std::function<void(int result)>;

  // `owner` is that of enter_context(). Borrows all. `skipped`: nullptr leaves out no wait.
  Completions(const DriverFunctions& driver, HelperThreadPool& pool, std::uint64_t owner,
              const SkippedWaits* skipped = nullptr)
      : driver_(driver), pool_(pool), owner_(owner), skipped_(skipped) {}
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  enum class NotifyMode {
    kUnasked,  // A helper thread reports the work as soon as it is complete.
    kAwaited,  // One waiter waits for this alone. The completion is polled for a moment before a
               // helper starts (set_soon()).
    kAsked,    // Mostly found by a thread that calls settle() soon. A helper waits from the next
               // attend() on.
  };
  // Calls `ended` when the work that `stream` of the current `context` has now is complete.
  //
  // `ended` is called once, on a helper thread, in settle(), or at once in this call. It is never
  // called when this returns a CUresult other than 0. The calls of all `ended` come one at a time.
  // For one stream they come in the order of after(). Work may depend on earlier work of other
  // streams, for example by an event. If that work is complete, its `ended` is called first.
  //
  // Only one thread at a time may call after(). A caller that passes kAsked must ensure that
  // attend() is called soon.
  int after(void* context, void* stream, Ended ended, NotifyMode mode = NotifyMode::kUnasked);
  // Starts a helper for each stream that is still unsettled. Any thread. It is cheap when there is
  // no such stream.
  void attend();

  // `soon(ready)` polls `ready` for a moment and returns whether it became true. Set before the
  // first after().
  using Soon = std::function<bool(const std::function<bool()>& ready)>;
  void set_soon(Soon soon) { soon_ = std::move(soon); }

  // `told` is called after a helper or an after() has called the `ended` of other calls. No lock is
  // held, so `told` may call after() and settle(). The public settle() does not call `told`,
  // because its caller continues by itself. Set before the first after().
  enum class Teller { kHelper, kAfter };
  void set_told(std::function<void(Teller)> told) { told_elsewhere_ = std::move(told); }

  // Calls every `ended` of work that is complete now, without waiting for the device. Any thread.
  void settle();

  // The driver's `context` has ended, with its events.
  void forget(void* context);

  // Helpers return as soon as the driver lets them. No `ended` is called any more.
  void stop();

 private:
  using Key = std::pair<void*, void*>;  // Context and stream.
  struct Entry {
    void* event;
    Ended ended;
    std::uint64_t number;  // The order of the after() calls.
  };
  struct Line {
    std::deque<Entry> entries;
    std::size_t told = 0;   // The number of first entries with an `ended` that has been called.
    bool attended = false;  // It has a helper, which removes the entries that were reported.
  };

  void* take_event(void* context, void* stream, int* result);
  bool complete(void* event) const;
  void tell(std::unique_lock<std::mutex>& lock, Line& line, int result);
  void wait_for(Key key, std::shared_ptr<Line> line);
  void help(Key key, const std::shared_ptr<Line>& line);
  void take_out_told();
  std::shared_ptr<Line> next_complete(std::uint64_t before) const;
  void await_teller(std::unique_lock<std::mutex>& lock);
  bool tell_first(std::unique_lock<std::mutex>& lock, Line& line, int result);
  bool settle(std::unique_lock<std::mutex>& lock);
  void say_told(std::unique_lock<std::mutex>& lock, Teller teller);

  const DriverFunctions& driver_;
  HelperThreadPool& pool_;
  const std::uint64_t owner_;
  const SkippedWaits* const skipped_;
  std::function<void(Teller)> told_elsewhere_;
  Soon soon_;

  std::mutex mutex_;  // Guards all below.
  std::condition_variable told_;
  std::map<Key, std::shared_ptr<Line>> lines_;  // Lines with entries.
  std::map<void*, std::vector<void*>> events_;  // Free events, by context.
  std::uint64_t last_number_ = 0;
  bool telling_ = false;
  bool stopping_ = false;
  std::atomic<bool> unattended_{false};  // Some lines have no helper.
};

}  // namespace gpurun::server
