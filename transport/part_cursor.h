// PartCursor: a position in the parts of a message, behind which everything is still to be sent.
// One thread uses it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/bytes.h"

namespace gpurun::transport {

class PartCursor {
 public:
  // The parts must outlive this object.
  explicit PartCursor(std::span<const ByteView> parts) : parts_(parts) { skip_empty(); }

  bool done() const { return part_ == parts_.size(); }
  bool started() const { return started_; }
  std::size_t bytes_left() const {
    std::size_t bytes = 0;
    for (std::size_t part = part_; part < parts_.size(); ++part) bytes += parts_[part].size();
    return bytes - offset_;
  }

  // Writes the next pieces, none of them empty, to `into`: as many as fit there and have at most
  // `bytes_max` bytes together. Returns how many, and adds their bytes to `*bytes`.
  std::size_t look(std::span<ByteView> into, std::size_t bytes_max, std::size_t* bytes) const {
    std::size_t count = 0, left = bytes_max, offset = offset_;
    for (std::size_t part = part_; part < parts_.size() && count < into.size() && left > 0;
         ++part) {
      const ByteView rest = parts_[part].subspan(offset);
      offset = 0;
      if (rest.empty()) continue;
      into[count++] = rest.first(std::min(rest.size(), left));
      left -= into[count - 1].size();
    }
    *bytes += bytes_max - left;
    return count;
  }

  // `bytes` is at most what is left.
  void advance(std::size_t bytes) {
    started_ = started_ || bytes > 0;
    while (bytes > 0) {
      const std::size_t here = std::min(bytes, parts_[part_].size() - offset_);
      offset_ += here;
      bytes -= here;
      skip_empty();
    }
  }

 private:
  void skip_empty() {
    while (part_ < parts_.size() && offset_ == parts_[part_].size()) {
      ++part_;
      offset_ = 0;
    }
  }

  std::span<const ByteView> parts_;
  std::size_t part_ = 0;
  std::size_t offset_ = 0;
  bool started_ = false;
};

}  // namespace gpurun::transport
