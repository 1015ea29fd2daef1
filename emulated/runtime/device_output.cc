// Storage of printed texts until the driver synchronises.
#include "emulated/runtime/device_output.h"

#include <cstdio>
#include <utility>

namespace gpurun::emulated {

namespace {
// A record is charged this much besides its text, so that empty texts are bounded too.
constexpr std::size_t kRecordBytes = 64;

void show(DeviceOutput::Target target, const std::string& text) {
  FILE* stream = target == DeviceOutput::Target::kStdout ? stdout : stderr;
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}
}  // namespace

void DeviceOutput::set_limit(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
}

std::size_t DeviceOutput::limit() const {
  std::lock_guard lock(mutex_);
  return limit_;
}

void DeviceOutput::set_sink(Sink sink) {
  std::lock_guard lock(mutex_);
  sink_ = std::move(sink);
}

void DeviceOutput::append(Target target, std::string text) {
  std::lock_guard lock(mutex_);
  bytes_ += text.size() + kRecordBytes;
  records_.push_back({target, std::move(text)});
  while (bytes_ > limit_ && records_.size() > 1) {
    bytes_ -= records_.front().text.size() + kRecordBytes;
    records_.pop_front();
  }
}

void DeviceOutput::flush() {
  {
    // The common case: nothing was printed, and no other flush is showing.
    std::lock_guard lock(mutex_);
    if (records_.empty() && !showing_) return;
  }
  std::lock_guard showing(flush_mutex_);
  std::deque<Record> records;
  Sink sink;
  {
    std::lock_guard lock(mutex_);
    records.swap(records_);
    bytes_ = 0;
    showing_ = true;
    sink = sink_;
  }
  for (const Record& record : records) {
    if (sink) {
      sink(record.target, record.text);
    } else {
      show(record.target, record.text);
    }
  }
  std::lock_guard lock(mutex_);
  showing_ = false;
}

}  // namespace gpurun::emulated
