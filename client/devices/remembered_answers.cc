// RememberedAnswers: a map by question. A counter shows whether an answer is older than a change.
#include "client/devices/remembered_answers.h"

#include <string_view>
#include <utility>

namespace gpurun::client {
namespace {

std::string_view text_of(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

bool RememberedAnswers::find(std::uint16_t row, ByteView question, Bytes* answer) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = by_row_.find(row);
  if (known == by_row_.end()) return false;
  const auto found = known->second.find(text_of(question));
  if (found == known->second.end()) return false;
  *answer = found->second;
  return true;
}

std::uint64_t RememberedAnswers::now() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return forgotten_;
}

void RememberedAnswers::add(std::uint16_t row, ByteView question, ByteView answer,
                            std::uint64_t asked_at) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (forgotten_ != asked_at) return;
  if (count_ >= kAnswersMax) {
    by_row_.clear();
    count_ = 0;
  }
  Bytes kept(answer.begin(), answer.end());
  const bool is_new =
      by_row_[row].insert_or_assign(std::string(text_of(question)), std::move(kept)).second;
  if (is_new) ++count_;
}

void RememberedAnswers::forget(std::uint16_t row) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++forgotten_;
  const auto known = by_row_.find(row);
  if (known == by_row_.end()) return;
  count_ -= known->second.size();
  by_row_.erase(known);
}

void RememberedAnswers::forget_all() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++forgotten_;
  by_row_.clear();
  count_ = 0;
}

}  // namespace gpurun::client
