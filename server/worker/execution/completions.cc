// Completions: one queue of events for each stream, and a helper thread that waits at its head.
#include "server/worker/execution/completions.h"

#include <iterator>

#include "server/worker/execution/call.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {
namespace {

// CU_EVENT_BLOCKING_SYNC, so that waiting burns no processor, and CU_EVENT_DISABLE_TIMING (cuda.h).
constexpr unsigned kEventFlags = 1 | 2;

}  // namespace

// Returns an event that was recorded in `stream`. It reuses a free event of earlier calls if
// possible.
void* Completions::take_event(void* context, void* stream, int* result) {
  void* event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::vector<void*>& free = events_[context];
    if (!free.empty()) {
      event = free.back();
      free.pop_back();
    }
  }
  *result = event == nullptr ? kErrorInvalidHandle : driver_.cuEventRecord(event, stream);
  if (*result == 0) return event;
  if (event != nullptr) {  // The free events ended with an earlier context at the same address.
    const std::lock_guard lock(mutex_);
    events_[context].clear();
  }
  *result = driver_.cuEventCreate(&event, kEventFlags);
  if (*result == 0) *result = driver_.cuEventRecord(event, stream);
  return event;
}

bool Completions::complete(void* event) const {
  if (driver_.cuEventQuery(event) != 0) return false;
  if (skipped_ != nullptr && skipped_->allowed()) return true;
  return driver_.cuEventSynchronize(event) == 0;
}

int Completions::after(void* context, void* stream, Ended ended, NotifyMode mode) {
  int result = 0;
  void* event = take_event(context, stream, &result);
  if (result != 0) return result;
  const Key key{context, stream};
  const auto ready = [&] { return driver_.cuEventQuery(event) == 0; };
  const bool done = mode == NotifyMode::kAwaited && soon_ && (ready() || soon_(ready));
  std::unique_lock lock(mutex_);
  if (lines_.count(key) == 0 && complete(event)) {
    events_[context].push_back(event);
    if (settle(lock)) say_told(lock, Teller::kAfter);  // It may depend on the earlier work.
    lock.unlock();
    ended(0);
    return 0;
  }
  std::shared_ptr<Line>& line = lines_[key];
  if (line == nullptr) line = std::make_shared<Line>();
  line->entries.push_back({event, std::move(ended), ++last_number_});
  const std::shared_ptr<Line> mine = line;
  // Settles the earlier entries too, because a helper would sleep.
  if (done && settle(lock)) say_told(lock, Teller::kAfter);
  const bool lacks_helper = !mine->attended && !mine->entries.empty();
  if (lacks_helper && mode == NotifyMode::kAsked) {
    unattended_.store(true, std::memory_order_release);
  } else if (lacks_helper) {
    mine->attended = true;
    lock.unlock();
    help(key, mine);
  }
  return 0;
}

void Completions::help(Key key, const std::shared_ptr<Line>& line) {
  if (!pool_.run([this, key, line] { wait_for(key, line); }).ok()) wait_for(key, line);
}

void Completions::attend() {
  if (!unattended_.load(std::memory_order_acquire)) return;
  std::vector<std::pair<Key, std::shared_ptr<Line>>> lines;
  {
    const std::lock_guard lock(mutex_);
    unattended_.store(false, std::memory_order_relaxed);
    if (stopping_) return;
    for (const auto& [key, line] : lines_) {
      if (line->attended) continue;
      line->attended = true;
      lines.emplace_back(key, line);
    }
  }
  for (const auto& [key, line] : lines) help(key, line);
}

// Removes the entries that were reported, of lines without a helper. With the lock held, as the
// next function.
void Completions::take_out_told() {
  for (auto at = lines_.begin(); at != lines_.end();) {
    Line& line = *at->second;
    for (; !line.attended && line.told != 0; --line.told) {
      events_[at->first.first].push_back(line.entries.front().event);
      line.entries.pop_front();
    }
    at = !line.attended && line.entries.empty() ? lines_.erase(at) : std::next(at);
  }
}

// Returns a line with a next entry that has a number below `before` and is complete on the device.
// Work that it may depend on in another stream was issued earlier and is complete, too. So after
// each hit the entries before it are queried again, and the first one that is complete is the
// result.
std::shared_ptr<Completions::Line> Completions::next_complete(std::uint64_t before) const {
  std::shared_ptr<Line> found;
  for (bool more = true; more;) {
    more = false;
    for (const auto& [key, line] : lines_) {
      if (line->told == line->entries.size()) continue;
      const Entry& next = line->entries[line->told];
      if (next.number >= before || !complete(next.event)) continue;
      before = next.number;
      found = line;
      more = true;
    }
  }
  return found;
}

// Calls the first `ended` that was not called yet. Releases the lock meanwhile. One at a time.
void Completions::tell(std::unique_lock<std::mutex>& lock, Line& line, int result) {
  const Ended ended = std::move(line.entries[line.told++].ended);
  telling_ = true;
  lock.unlock();
  ended(result);
  lock.lock();
  telling_ = false;
  told_.notify_all();
}

void Completions::await_teller(std::unique_lock<std::mutex>& lock) {
  told_.wait(lock, [this] { return !telling_; });
}

// For a helper: calls the first `ended` of the line, after those that its work may depend on,
// unless another thread calls it. Returns whether it called any.
bool Completions::tell_first(std::unique_lock<std::mutex>& lock, Line& line, int result) {
  bool told = false;
  for (await_teller(lock); !stopping_ && line.told == 0; await_teller(lock)) {
    const auto earlier = result == 0 ? next_complete(line.entries.front().number) : nullptr;
    tell(lock, earlier != nullptr ? *earlier : line, earlier != nullptr ? 0 : result);
    told = true;
    if (earlier == nullptr) break;
  }
  return told;
}

void Completions::wait_for(Key key, std::shared_ptr<Line> line) {
  std::unique_lock lock(mutex_);
  while (!stopping_ && !line->entries.empty()) {
    void* const event = line->entries.front().event;
    int result = 0;
    if (line->told == 0) {
      lock.unlock();
      result = enter_context(driver_, owner_, key.first);
      if (result == 0) result = driver_.cuEventSynchronize(event);
      lock.lock();
    }
    const bool told = tell_first(lock, *line, result);
    if (told) say_told(lock, Teller::kHelper);
    if (stopping_) break;
    line->entries.pop_front();
    --line->told;
    if (result == 0) events_[key.first].push_back(event);
  }
  const auto found = lines_.find(key);
  if (found != lines_.end() && found->second == line) lines_.erase(found);
}

// Releases the lock meanwhile.
void Completions::say_told(std::unique_lock<std::mutex>& lock, Teller teller) {
  if (told_elsewhere_ == nullptr) return;
  lock.unlock();
  told_elsewhere_(teller);
  lock.lock();
}

// Returns whether it called any `ended`.
bool Completions::settle(std::unique_lock<std::mutex>& lock) {
  bool told = false;
  // A failure is left to the helper, which waits for the same event.
  for (await_teller(lock); !stopping_; await_teller(lock)) {
    const std::shared_ptr<Line> next = next_complete(last_number_ + 1);
    if (next == nullptr) break;
    tell(lock, *next, 0);
    told = true;
  }
  take_out_told();
  return told;
}

void Completions::settle() {
  std::unique_lock lock(mutex_);
  (void)settle(lock);
}

void Completions::forget(void* context) {
  const std::lock_guard lock(mutex_);
  events_.erase(context);
}

void Completions::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
}

}  // namespace gpurun::server
