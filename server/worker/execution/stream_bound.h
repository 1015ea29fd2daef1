// StreamBound: a limit that keeps the work of one stream in the driver below the depth of the
// driver's queue. A driver with a full queue blocks its caller, for as long as a kernel runs.
//
// The driver has no query for this. So an event is recorded after a number of operations, and the
// operations behind the last complete event count as queued. Streams share the hardware's channels:
// the more streams have work, the less each may queue.
//
// Any thread, but room() and added() one at a time.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

namespace gpurun::server {

class Completions;

class StreamBound {
 public:
  // `depth`: the operations that one stream alone may have queued, at least 16.
  StreamBound(unsigned depth, Completions& completions);
  StreamBound(const StreamBound&) = delete;
  StreamBound& operator=(const StreamBound&) = delete;

  // Whether `stream` may have one more operation. False: `wake` is called once there is room.
  bool room(void* context, void* stream);
  // `stream` was given an operation. Its context is current. Capturing streams queue nothing.
  template <typename IsCapturing>
  void added(void* context, void* stream, IsCapturing is_capturing) {
    if (count(context, stream)) mark(context, stream, is_capturing());
  }
  void set_wake(void (*wake)(void* user), void* user) {
    wake_ = wake;
    user_ = user;
  }
  // The operations in the driver as far as is known, for tests.
  std::size_t queued(void* context, void* stream) const;

 private:
  using Key = std::pair<void*, void*>;
  struct Stream {
    unsigned queued = 0;
    unsigned unmarked = 0;  // The last of them that have no event yet.
    unsigned marks = 0;     // Events that are not complete.
  };

  bool count(void* context, void* stream);
  void mark(void* context, void* stream, bool capturing);
  void marked(Key key, unsigned operations);
  unsigned share() const;

  const unsigned depth_;
  const unsigned batch_;
  Completions& completions_;
  void (*wake_)(void* user) = nullptr;
  void* user_ = nullptr;

  mutable std::mutex mutex_;
  std::map<Key, Stream> streams_;
  std::size_t busy_ = 0;  // Streams with marks.
  bool waiting_ = false;
};

}  // namespace gpurun::server
