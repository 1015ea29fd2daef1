// RememberedAnswers: what the worker has answered to questions whose answers stay as they are until
// the program itself changes something. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/bytes.h"

namespace gpurun::client {

class RememberedAnswers {
 public:
  // With one more, the earlier ones are forgotten: they are asked for again.
  static constexpr std::size_t kAnswersMax = 1024;

  // False, and `*answer` as it was, when nothing is known.
  bool find(std::uint16_t row, ByteView question, Bytes* answer) const;

  // Before a question is sent. What its reply says is remembered only if nothing was forgotten
  // meanwhile: it may be from before the change.
  std::uint64_t now() const;
  void add(std::uint16_t row, ByteView question, ByteView answer, std::uint64_t asked_at);

  // After what changes the answers of that row.
  void forget(std::uint16_t row);
  void forget_all();

 private:
  using ByQuestion = std::map<std::string, Bytes, std::less<>>;

  mutable std::mutex mutex_;
  std::map<std::uint16_t, ByQuestion> by_row_;  // Guarded by mutex_.
  std::size_t count_ = 0;                       // Of all rows. Guarded by mutex_.
  std::uint64_t forgotten_ = 0;                 // How often something was. Guarded by mutex_.
};

}  // namespace gpurun::client
