// One queue of events for each stream, and a helper that waits at its head.
#include "server/worker/completions.h"

#include "server/worker/call.h"
#include "server/worker/thread_context.h"

namespace gpurun::server {
namespace {

// CU_EVENT_BLOCKING_SYNC, so that waiting burns no processor, and CU_EVENT_DISABLE_TIMING (cuda.h).
constexpr unsigned kEventFlags = 1 | 2;

}  // namespace

// A recorded event, of those of former calls where one is free.
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
  if (event != nullptr) {  // They went with a former context at the same address.
    const std::lock_guard lock(mutex_);
    events_[context].clear();
  }
  *result = driver_.cuEventCreate(&event, kEventFlags);
  if (*result == 0) *result = driver_.cuEventRecord(event, stream);
  return event;
}

// Synchronises with what is complete: only then comes out what kernels have printed.
bool Completions::complete(void* event) const {
  return driver_.cuEventQuery(event) == 0 && driver_.cuEventSynchronize(event) == 0;
}

int Completions::after(void* context, void* stream, Ended ended, Heard heard) {
  int result = 0;
  void* event = take_event(context, stream, &result);
  if (result != 0) return result;
  const Key key{context, stream};
  const auto ready = [&] { return driver_.cuEventQuery(event) == 0; };
  const bool done = heard == Heard::kAwaited && soon_ && (ready() || soon_(ready));
  std::unique_lock lock(mutex_);
  std::shared_ptr<Line>& line = lines_[key];
  if (line == nullptr && complete(event)) {
    events_[context].push_back(event);
    lines_.erase(key);
    lock.unlock();
    ended(0);
    return 0;
  }
  if (line == nullptr) line = std::make_shared<Line>();
  line->entries.push_back({event, std::move(ended)});
  const std::shared_ptr<Line> mine = line;
  const bool lacks_helper = !line->attended;
  const bool later = lacks_helper && heard == Heard::kAsked;
  if (later) unattended_.store(true, std::memory_order_release);
  if (!later) line->attended = true;
  lock.unlock();
  if (lacks_helper && !later) help(key, mine);
  if (done) settle();  // Those before it, too: its helper sleeps.
  return 0;
}

void Completions::help(Key key, std::shared_ptr<Line> line) {
  if (!parking_.run([this, key, line] { wait_for(key, line); }).ok()) wait_for(key, line);
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
  for (auto& [key, line] : lines) help(key, std::move(line));
}

// With the lock held: of a line without a helper.
void Completions::take_out_told(Key key, const std::shared_ptr<Line>& line) {
  for (; line->told != 0; --line->told) {
    events_[key.first].push_back(line->entries.front().event);
    line->entries.pop_front();
  }
  const auto found = lines_.find(key);
  if (line->entries.empty() && found != lines_.end() && found->second == line) lines_.erase(found);
}

// The first entry that was not told yet; gives the lock up meanwhile.
void Completions::tell(std::unique_lock<std::mutex>& lock, Line& line, int result) {
  const Ended ended = std::move(line.entries[line.told++].ended);
  line.telling = true;
  lock.unlock();
  ended(result);
  lock.lock();
  line.telling = false;
  told_.notify_all();
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
    // Also for one that somebody else tells: settle() waits for it as long as its line stands.
    told_.wait(lock, [&] { return !line->telling; });
    if (stopping_) break;
    if (line->told == 0) {
      tell(lock, *line, result);
      if (told_by_helper_ != nullptr) {
        lock.unlock();
        told_by_helper_();
        lock.lock();
      }
    }
    line->entries.pop_front();
    --line->told;
    if (result == 0) events_[key.first].push_back(event);
  }
  const auto found = lines_.find(key);
  if (found != lines_.end() && found->second == line) lines_.erase(found);
}

void Completions::settle() {
  std::unique_lock lock(mutex_);
  const std::vector<std::pair<Key, std::shared_ptr<Line>>> lines(lines_.begin(), lines_.end());
  for (const auto& [key, line] : lines) {
    told_.wait(lock, [&] { return !line->telling; });
    // A failure is left to the helper, which waits for the same event.
    while (!stopping_ && line->told < line->entries.size() &&
           complete(line->entries[line->told].event)) {
      tell(lock, *line, 0);
      told_.wait(lock, [&] { return !line->telling; });
    }
    if (!line->attended) take_out_told(key, line);
  }
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
