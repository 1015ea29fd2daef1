// KeptBytes: what a receive() that met its deadline had got, for the next one. Its receiving
// thread.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/bytes.h"

namespace gpurun::transport {

class KeptBytes {
 public:
  bool empty() const noexcept { return bytes_.empty(); }
  // As many of them as fit; how many.
  std::size_t take(MutableBytes into) {
    const std::size_t count = std::min(bytes_.size(), into.size());
    std::copy_n(bytes_.begin(), count, into.begin());
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  // They come before what is still kept.
  void put_back(ByteView bytes) { bytes_.insert(bytes_.begin(), bytes.begin(), bytes.end()); }

 private:
  Bytes bytes_;
};

}  // namespace gpurun::transport
