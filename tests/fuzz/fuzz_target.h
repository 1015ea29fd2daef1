// Fuzz target: the function that every target defines, and that libFuzzer or corpus_main.cc calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

// Returns 0 for every input: it never crashes, never hangs, and causes no report of a sanitizer.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace gpurun::fuzz {

// A condition that must hold for every input, in every build.
#define GPURUN_FUZZ_CHECK(condition)    \
  do {                                  \
    if (!(condition)) __builtin_trap(); \
  } while (false)

// Reads an input from its front. Returns zeros after its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(byte_view(data, size)) {}

  bool empty() const { return rest_.empty(); }
  ByteView rest() const { return rest_; }
  ByteView take(std::size_t bytes) {
    const ByteView front = rest_.first(bytes < rest_.size() ? bytes : rest_.size());
    rest_ = rest_.subspan(front.size());
    return front;
  }
  template <typename T>
  T number() {
    T value = 0;
    const ByteView bytes = take(sizeof value);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      value = static_cast<T>(value | static_cast<T>(std::to_integer<T>(bytes[i]) << (8 * i)));
    }
    return value;
  }

 private:
  ByteView rest_;
};

}  // namespace gpurun::fuzz
