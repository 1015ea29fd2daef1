// RememberedAnswers: the worker's answers that stay valid until the program itself changes
// something. Any thread.
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
  // One more makes the cache forget the earlier ones, which are then asked for again.
  static constexpr std::size_t kAnswersMax = 1024;

  // Returns false, and leaves `*answer` as it was, when nothing is known.
  bool find(std::uint16_t row, ByteView question, Bytes* answer) const;

  // Call it before a question is sent. add() stores the reply only if nothing was forgotten since
  // then, because the reply may be older than the change.
  std::uint64_t now() const;
  void add(std::uint16_t row, ByteView question, ByteView answer, std::uint64_t asked_at);

  // Call it after a change of the answers of that row.
  void forget(std::uint16_t row);
  void forget_all();

 private:
  using ByQuestion = std::map<std::string, Bytes, std::less<>>;

  mutable std::mutex mutex_;
  std::map<std::uint16_t, ByQuestion> by_row_;  // Guarded by mutex_.
  std::size_t count_ = 0;                       // Of all rows. Guarded by mutex_.
  std::uint64_t forgotten_ = 0;  // How often something was forgotten. Guarded by mutex_.
};

}  // namespace gpurun::client
