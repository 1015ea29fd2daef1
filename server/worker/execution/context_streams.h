// ContextStreams: the streams of each context that may have work.
//
// The driver cannot be asked whether a context is done without waiting for it. This list makes that
// possible: it asks for each stream. On the device a free waits for all of these streams
// (DeviceBarrier).
//
// The state is unknown for a context that uses many streams or has destroyed a busy stream. It is
// known again once a thread has waited for all of the work. The caller holds the executor's role,
// except where a comment names other threads.
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
  // The driver's `stream` is about to be given work, with `context` current. Contexts are those of
  // the client. `home_of()` returns the stream's own context, which alone waits for it. It is
  // rarely called.
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
  // The stream is about to be destroyed and cannot be queried any more. True: it may have work.
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
  // The streams that have work. `state_of(stream)` asks the driver. A stream that is done is not
  // queried again before it is given work.
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
  // Whether done() can give an answer.
  bool is_known(std::uint64_t context) {
    if (given_up_.load(std::memory_order_acquire)) return false;
    Streams& streams = streams_[context];
    if (waits_.load(std::memory_order_acquire) == 0) streams.waited_for = false;
    return streams.count <= kMost && !streams.waited_for;
  }
  // Whether all work of the context is done, by `is_done(stream)`. Also false where that is
  // unknown. A stream that is done is not queried again before it is given work. The null stream is
  // always queried, because calls that wait use it implicitly.
  template <typename IsDone>
  bool done(std::uint64_t context, IsDone is_done) {
    if (!is_known(context)) return false;
    Streams& streams = streams_[context];
    bool null_done = false;
    while (streams.count != 0) {
      void* const stream = streams.each[0];
      if (!is_done(stream)) return false;
      null_done = null_done || stream == nullptr;
      std::copy(streams.each.begin() + 1, streams.end(), streams.each.begin());
      --streams.count;
      streams.all.erase(stream);
      forget_last();
    }
    if (!null_done && !is_done(nullptr)) return false;
    streams.all.clear();
    forget_last();
    return true;
  }

  // Another thread waits for all that the context has been given so far. After end_wait() only what
  // came since counts. end_wait() may come from any thread. It never comes after a failed wait.
  void begin_wait(std::uint64_t context) {
    Streams& streams = streams_[context];
    streams.count = 0;
    streams.waited_for = true;
    waits_.fetch_add(1, std::memory_order_acq_rel);
    forget_last();
  }
  void end_wait() { waits_.fetch_sub(1, std::memory_order_acq_rel); }
  // From now on contexts wait for more than their own streams. Any thread.
  void give_up() { given_up_.store(true, std::memory_order_release); }

 private:
  static constexpr unsigned kMost = 4;
  struct Streams {
    std::array<void*, kMost> each{};
    unsigned count = 0;       // kMost + 1: unknown, and `each` means nothing.
    std::set<void*> all;      // Includes streams of an unknown state, and `each` while that is
                              // valid.
    bool waited_for = false;  // Valid while waits_ is not 0: the state of earlier work is unknown.

    void** end() { return each.begin() + std::min(count, kMost); }
    void** find(void* stream) { return std::find(each.begin(), end(), stream); }
    void drop(void* stream) {
      void** const at = find(stream);
      if (count <= kMost && at != end()) *at = each[--count];
    }
  };

  void forget_last() { last_context_ = ~std::uint64_t{0}; }

  std::unordered_map<std::uint64_t, Streams> streams_;  // By context.
  std::uint64_t last_context_ = ~std::uint64_t{0};      // Already noted.
  void* last_stream_ = nullptr;
  std::atomic<unsigned> waits_{0};  // For any context.
  std::atomic<bool> given_up_{false};
};

}  // namespace gpurun::server
