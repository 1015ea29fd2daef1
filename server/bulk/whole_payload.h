// WholePayload: the bytes of one large payload, complete in memory of their own.
#pragma once

#include <cstddef>
#include <memory>

#include "base/bytes.h"

namespace gpurun::server {

// A private mapping, followed by at least one zero byte. It gets pages as they are written.
class WholePayload {
 public:
  // nullptr: there is no address space.
  static std::shared_ptr<WholePayload> create(std::size_t bytes);
  ~WholePayload();
  WholePayload(const WholePayload&) = delete;
  WholePayload& operator=(const WholePayload&) = delete;
  MutableBytes bytes() const noexcept { return {start_, bytes_}; }

 private:
  WholePayload(std::byte* start, std::size_t bytes) : start_(start), bytes_(bytes) {}
  std::byte* const start_;
  const std::size_t bytes_;
};

}  // namespace gpurun::server
