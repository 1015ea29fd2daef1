// Occurrences and their completion.
#include "emulated/objects/event.h"

#include <vector>

namespace gpurun::emulated {

bool Occurrence::done() const {
  if (event_ != nullptr) return event_->done(record_);
  const std::lock_guard lock(mutex_);
  return done_;
}

void Occurrence::wait() {
  if (event_ != nullptr) return event_->wait(record_);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
}

void Occurrence::complete() {
  if (event_ != nullptr) return event_->complete(record_);
  const std::lock_guard lock(mutex_);
  done_ = true;
  when_ = Clock::now();
  changed_.notify_all();
}

Occurrence::Clock::time_point Occurrence::when() const {
  const std::lock_guard lock(mutex_);
  return when_;
}

OccurrencePtr Event::begin() const {
  if (shared_ == nullptr) return std::make_shared<Occurrence>();
  return std::make_shared<Occurrence>(shared_, shared_->begin());
}

OccurrencePtr Event::last() const {
  if (shared_ != nullptr) {
    const std::uint64_t record = shared_->last();
    return record == 0 ? nullptr : std::make_shared<Occurrence>(shared_, record);
  }
  const std::lock_guard lock(mutex_);
  return last_;
}

void Event::set_last(OccurrencePtr occurrence) {
  const std::lock_guard lock(mutex_);
  if (shared_ == nullptr) last_ = std::move(occurrence);
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
