// KeptBytes: the bytes that a receive() had got when it met its deadline, kept for the next call.
// Only the receiving thread uses it.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/bytes.h"

namespace gpurun::transport {

class KeptBytes {
 public:
  bool empty() const noexcept { return bytes_.empty(); }
  // Moves as many kept bytes as fit to `into`, and returns how many.
  std::size_t take(MutableBytes into) {
    const std::size_t count = std::min(bytes_.size(), into.size());
    std::copy_n(bytes_.begin(), count, into.begin());
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  // `bytes` come before what is still kept.
  void put_back(ByteView bytes) { bytes_.insert(bytes_.begin(), bytes.begin(), bytes.end()); }

 private:
  Bytes bytes_;
};

}  // namespace gpurun::transport
