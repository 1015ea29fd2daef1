// StreamBound: counts the operations that each stream was given and that its events report as done.
#include "server/worker/execution/stream_bound.h"

#include <algorithm>
#include <utility>

#include "server/worker/execution/completions.h"

namespace gpurun::server {
namespace {

// Channels of a process, unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise (CUDA Programming Guide,
// environment variables).
constexpr std::size_t kChannels = 8;
// Idle streams are forgotten beyond.
constexpr std::size_t kStreamsMax = 1024;

}  // namespace

StreamBound::StreamBound(unsigned depth, Completions& completions)
    : depth_(std::max(depth, 16u)), batch_(depth_ / 8), completions_(completions) {}

unsigned StreamBound::share() const {
  const auto sharing = static_cast<unsigned>(std::max<std::size_t>(1, busy_ / kChannels));
  return std::max(depth_ / sharing, 2 * batch_);
}

bool StreamBound::room(void* context, void* stream) {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find({context, stream});
  if (found == streams_.end() || found->second.queued < share()) return true;
  if (found->second.marks == 0) return true;  // No event would ever report room.
  waiting_ = true;
  return false;
}

// True: an event is needed behind the operation.
bool StreamBound::count(void* context, void* stream) {
  const std::lock_guard lock(mutex_);
  if (streams_.size() >= kStreamsMax) {
    std::erase_if(streams_, [](const auto& each) { return each.second.marks == 0; });
  }
  Stream& of = streams_[{context, stream}];
  ++of.queued;
  return ++of.unmarked >= batch_;
}

void StreamBound::mark(void* context, void* stream, bool capturing) {
  const Key key{context, stream};
  unsigned operations = 0;
  {
    const std::lock_guard lock(mutex_);
    Stream& of = streams_[key];
    operations = std::exchange(of.unmarked, 0);
    if (capturing) {
      of.queued -= std::min(of.queued, operations);
      return;
    }
    if (of.marks++ == 0) ++busy_;
  }
  const int result = completions_.after(context, stream,
                                        [this, key, operations](int) { marked(key, operations); });
  if (result != 0) marked(key, operations);
}

void StreamBound::marked(Key key, unsigned operations) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    Stream& of = streams_[key];
    of.queued -= std::min(of.queued, operations);
    if (--of.marks == 0) --busy_;
    wake = std::exchange(waiting_, false);
  }
  if (wake && wake_ != nullptr) wake_(user_);
}

std::size_t StreamBound::queued(void* context, void* stream) const {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find({context, stream});
  return found == streams_.end() ? 0 : found->second.queued;
}

}  // namespace gpurun::server
