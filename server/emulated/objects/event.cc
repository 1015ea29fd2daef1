// Occurrences and their completion.
#include "server/emulated/objects/event.h"

#include <vector>

namespace gpurun::emulated {

bool Occurrence::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void Occurrence::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
}

void Occurrence::complete() {
  const std::lock_guard lock(mutex_);
  done_ = true;
  when_ = Clock::now();
  changed_.notify_all();
}

Occurrence::Clock::time_point Occurrence::when() const {
  const std::lock_guard lock(mutex_);
  return when_;
}

OccurrencePtr Event::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

void Event::set_last(OccurrencePtr occurrence) {
  const std::lock_guard lock(mutex_);
  last_ = std::move(occurrence);
  captured_ = CapturedMark();
}

Event::CapturedMark Event::captured() const {
  const std::lock_guard lock(mutex_);
  return captured_;
}

void Event::set_captured(CapturedMark mark) {
  const std::lock_guard lock(mutex_);
  captured_ = std::move(mark);
}

CUresult RecordOperation::run(Context&) {
  occurrence_->complete();
  return CUDA_SUCCESS;
}

CUresult WaitOperation::run(Context&) {
  occurrence_->wait();
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated
