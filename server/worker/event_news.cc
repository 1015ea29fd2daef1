// Three maps, for the three things that a record waits for: its end, a look, its turn to be posted.
#include "server/worker/event_news.h"

namespace gpurun::server {

void EventNews::begin(const protocol::RecordHeader& record) {
  owed_.fetch_add(1, std::memory_order_acq_rel);
  const std::lock_guard lock(mutex_);
  open_[record.sequence].record = record;
}

void EventNews::note(std::uint64_t sequence, bool News::*what, int result) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(sequence);
  if (found == open_.end()) return;  // Cancelled.
  News& news = found->second;
  news.*what = true;
  if (result != 0) news.result = result;
  if (news.issued && news.ended) ready_.insert(open_.extract(found));
}

void EventNews::issued(std::uint64_t sequence) { note(sequence, &News::issued, 0); }

void EventNews::ended(std::uint64_t sequence, int result) { note(sequence, &News::ended, result); }

void EventNews::cancel(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  if (open_.erase(sequence) != 0) owed_.fetch_sub(1, std::memory_order_acq_rel);
}

bool EventNews::ready() const {
  if (!owed()) return false;
  const std::lock_guard lock(mutex_);
  return !ready_.empty() || !due_.empty();
}

bool EventNews::take_stock() {
  const std::lock_guard lock(mutex_);
  due_.merge(ready_);
  return !due_.empty();
}

bool EventNews::take(News* news) {
  const std::lock_guard lock(mutex_);
  if (due_.empty()) return false;
  *news = due_.begin()->second;
  due_.erase(due_.begin());
  return true;
}

}  // namespace gpurun::server
