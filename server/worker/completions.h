// Completions: tells when work that was handed to the driver's streams is done on the device.
//
// An event of ours is recorded behind the work; a helper thread (parking.h) waits for the events of
// one stream, so that a stream which waits for hours delays the news of no other. What somebody
// mostly asks for at once, who then finds it done (settle()), gets its helper a moment later, from
// attend(): to wake one takes longer than a short copy. A stream that capture has taken must not
// come here: an event of ours would enter the program's graph.
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
#include "server/worker/parking.h"

namespace gpurun::server {

class Completions {
 public:
  // `result`: 0, or the CUresult with which the work ended. Must not call after() or settle().
  using Ended = std::function<void(int result)>;

  // `owner` as for enter_context(). Borrows both.
  Completions(const DriverFunctions& driver, Parking& parking, std::uint64_t owner)
      : driver_(driver), parking_(parking), owner_(owner) {}
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  enum class Heard {
    kUnasked,  // By a helper, as soon as it is done.
    kAwaited,  // Somebody waits for this alone: it is looked for a moment before a helper is
               // (set_soon()).
    kAsked,    // Mostly by who settles soon; by a helper from the next attend() on.
  };
  // Behind what `stream` of `context`, which is current, has been given. `ended` is called once, on
  // a helper thread, on one that settles, or here at once; in the order of calls of one stream, and
  // behind those of other streams whose work this one's may count on (by an event, say): what was
  // issued before and is complete. One at a time.
  // Never when this returns a CUresult other than 0. One thread at a time. Who says kAsked sees to
  // it that attend() is called soon.
  int after(void* context, void* stream, Ended ended, Heard heard = Heard::kUnasked);
  // What nobody has settled yet gets its helper. Any thread; next to nothing where there is none.
  void attend();

  // `soon(ready)` asks `ready` for a moment, and tells whether it said yes. Before the first
  // after().
  using Soon = std::function<bool(const std::function<bool()>& ready)>;
  void set_soon(Soon soon) { soon_ = std::move(soon); }

  // `told` is called without a lock after a helper, or an after(), has called `ended`s that are not
  // its caller's: what those may not do, it may. Who settles sees to that himself. Before the first
  // after().
  enum class Teller { kHelper, kAfter };
  void set_told(std::function<void(Teller)> told) { told_elsewhere_ = std::move(told); }

  // Calls every `ended` that is due now, without waiting for the device. Any thread.
  void settle();

  // The driver's `context` has ended, with its events.
  void forget(void* context);

  // Helpers return as soon as the driver lets them; no `ended` is called any more.
  void stop();

 private:
  using Key = std::pair<void*, void*>;  // Context and stream.
  struct Entry {
    void* event;
    Ended ended;
    std::uint64_t number;  // In the order of after().
  };
  struct Line {
    std::deque<Entry> entries;
    std::size_t told = 0;   // So many of the first have had their `ended`.
    bool attended = false;  // It has a helper, which takes out what was told.
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
  Parking& parking_;
  const std::uint64_t owner_;
  std::function<void(Teller)> told_elsewhere_;
  Soon soon_;

  std::mutex mutex_;  // Guards all below.
  std::condition_variable told_;
  std::map<Key, std::shared_ptr<Line>> lines_;  // Those with entries.
  std::map<void*, std::vector<void*>> events_;  // Free ones, by context.
  std::uint64_t last_number_ = 0;
  bool telling_ = false;
  bool stopping_ = false;
  std::atomic<bool> unattended_{false};  // There are lines without a helper.
};

}  // namespace gpurun::server
