// ContextStreams: which streams of a context may have work, so that whether the context is done can
// be asked of the driver without waiting: it has no question for that. A free stands behind all of
// them on the device (DeviceBarrier).
//
// Of a context that uses many streams, or has destroyed one that had work, it is not known until
// somebody has waited for all of it. With the executor's role, but for what says otherwise.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

namespace gpurun::server {

class ContextStreams {
 public:
  // `stream`, the driver's, is about to be given something, with `context` current. Contexts are
  // the client's. `home_of()`: the stream's own, which alone waits for it; it is seldom asked.
  template <typename HomeOf>
  void given(std::uint64_t context, void* stream, HomeOf home_of) {
    if (context == last_context_ && stream == last_stream_) return;
    last_context_ = context;
    last_stream_ = stream;
    Streams& streams = streams_[home_of()];
    const bool known = streams.count <= kMost;
    if (known && streams.find(stream) != streams.end()) return;
    streams.all.insert(stream);
    if (!known) return;
    if (streams.count < kMost) streams.each[streams.count] = stream;
    ++streams.count;
  }
  // It is about to be destroyed, and may not be asked about any more. True: it may have work.
  template <typename IsDone>
  bool destroyed(std::uint64_t home, void* stream, IsDone is_done) {
    forget_last();
    const auto found = streams_.find(home);
    if (found == streams_.end() || found->second.all.erase(stream) == 0) return false;
    Streams& streams = found->second;
    const bool done = is_done(stream);
    if (done) {
      streams.drop(stream);
    } else if (streams.find(stream) != streams.end()) {
      streams.count = kMost + 1;
    }
    return !done;
  }
  // `stream` of `context` may have work.
  bool has_given(std::uint64_t context, void* stream) const {
    const auto found = streams_.find(context);
    return found != streams_.end() && found->second.all.count(stream) != 0;
  }
  bool may_have_work(std::uint64_t context) const {
    const auto found = streams_.find(context);
    return found != streams_.end() && !found->second.all.empty();
  }
  // Those that have work. `state_of(stream)` asks the driver; the streams that are done are not
  // asked about again before they are given something.
  enum class State : std::uint8_t { kDone, kBusy, kCapturing };
  template <typename StateOf>
  std::vector<void*> busy(std::uint64_t context, StateOf state_of) {
    const auto found = streams_.find(context);
    if (found == streams_.end() || found->second.all.empty()) return {};
    Streams& streams = found->second;
    std::vector<void*> busy;
    for (auto at = streams.all.begin(); at != streams.all.end();) {
      const State state = state_of(*at);
      if (state == State::kBusy) busy.push_back(*at);
      if (state == State::kDone) {
        streams.drop(*at);
        at = streams.all.erase(at);
      } else {
        ++at;
      }
    }
    forget_last();
    return busy;
  }
  // The context has ended.
  void forget(std::uint64_t context) {
    streams_.erase(context);
    forget_last();
  }
  // Whether done() may say so.
  bool is_known(std::uint64_t context) {
    if (given_up_.load(std::memory_order_acquire)) return false;
    Streams& streams = streams_[context];
    if (waits_.load(std::memory_order_acquire) == 0) streams.waited_for = false;
    return streams.count <= kMost && !streams.waited_for;
  }
  // Whether all that the context was given is done, by `is_done(stream)`; false also where that is
  // not known. The null stream is asked about in any case: calls that wait use it unsaid.
  template <typename IsDone>
  bool done(std::uint64_t context, IsDone is_done) {
    if (!is_known(context)) return false;
    Streams& streams = streams_[context];
    if (!std::all_of(streams.each.begin(), streams.end(), is_done)) return false;
    if (!is_done(nullptr)) return false;
    streams.count = 0;
    streams.all.clear();
    forget_last();
    return true;
  }

  // Another thread waits for all that the context has been given so far, and says when it has (any
  // thread; never, where the wait has failed): from then on what has come since is what is known.
  void begin_wait(std::uint64_t context) {
    Streams& streams = streams_[context];
    streams.count = 0;
    streams.waited_for = true;
    waits_.fetch_add(1, std::memory_order_acq_rel);
    forget_last();
  }
  void end_wait() { waits_.fetch_sub(1, std::memory_order_acq_rel); }
  // Contexts wait for more than their own streams from now on. Any thread.
  void give_up() { given_up_.store(true, std::memory_order_release); }

 private:
  static constexpr unsigned kMost = 4;
  struct Streams {
    std::array<void*, kMost> each{};
    unsigned count = 0;       // kMost + 1: not known, and `each` means nothing.
    std::set<void*> all;      // Also of what is not known. Has `each`, as far as those are.
    bool waited_for = false;  // As long as there are waits_: what was given before is not known.

    void** end() { return each.begin() + std::min(count, kMost); }
    void** find(void* stream) { return std::find(each.begin(), end(), stream); }
    void drop(void* stream) {
      void** const at = find(stream);
      if (count <= kMost && at != end()) *at = each[--count];
    }
  };

  void forget_last() { last_context_ = ~std::uint64_t{0}; }

  std::unordered_map<std::uint64_t, Streams> streams_;  // By context.
  std::uint64_t last_context_ = ~std::uint64_t{0};      // Noted already.
  void* last_stream_ = nullptr;
  std::atomic<unsigned> waits_{0};  // For any context.
  std::atomic<bool> given_up_{false};
};

}  // namespace gpurun::server
