// Cursor: reads numbers of Tile IR's bytecode from front to back. It keeps the first failure, and
// everything read after it is 0. So a reader need not check after each number, but must check
// before it loops that number of times.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::emulated::tile {

inline constexpr int kInvalidImage = 200;  // CUDA_ERROR_INVALID_IMAGE
inline constexpr int kInvalidPtx = 218;    // CUDA_ERROR_INVALID_PTX

class Cursor {
 public:
  // `where` is for messages: "type 5".
  Cursor(ByteView bytes, std::string where) : bytes_(bytes), where_(std::move(where)) {}

  bool ok() const { return failure_.ok(); }
  const Status& status() const { return failure_; }
  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return ok() ? bytes_.size() - at_ : 0; }
  ByteView rest() const { return bytes_.subspan(at_); }

  // Always false.
  bool fail(const std::string& what, int error = kInvalidImage) {
    if (ok()) {
      failure_ = Status::cuda(
          error, "Tile IR image: " + where_ + ", byte " + std::to_string(at_) + ": " + what);
    }
    return false;
  }

  std::uint8_t byte() {
    if (left() == 0) {
      fail("cut");
      return 0;
    }
    return static_cast<std::uint8_t>(bytes_[at_++]);
  }

  // Reads a number that is stored as seven bits per byte, the lowest bits first.
  std::uint64_t number(std::uint64_t max = ~std::uint64_t{0}) {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const std::uint8_t next = byte();
      if (shift == 63 && next > 1) fail("a number that is too long");
      if (!ok()) return 0;
      value |= std::uint64_t{next & 0x7fu} << shift;
      if ((next & 0x80) == 0) break;
    }
    if (value > max) {
      fail("the number " + std::to_string(value) + ", over " + std::to_string(max));
      return 0;
    }
    return value;
  }

  // Reads a number with its sign in the lowest bit.
  std::uint64_t signed_number() {
    const std::uint64_t value = number();
    return (value >> 1) ^ (~(value & 1) + 1);
  }

  // Reads a count of items that have at least `bytes_each` bytes each. Fails when the bytes left
  // are too few.
  std::uint64_t count(std::uint64_t bytes_each, std::uint64_t max) {
    const std::uint64_t value = number(max);
    if (value > left() / bytes_each) {
      fail("more things than bytes");
      return 0;
    }
    return value;
  }

  template <typename T>
  T fixed() {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < sizeof(T); ++i) value |= std::uint64_t{byte()} << (8 * i);
    return static_cast<T>(value);
  }

  ByteView take(std::uint64_t bytes) {
    if (bytes > left()) {
      fail("cut");
      return {};
    }
    const ByteView taken = bytes_.subspan(at_, bytes);
    at_ += bytes;
    return taken;
  }

  // Skips to a multiple of `alignment`, counted from the first byte.
  void align(std::uint64_t alignment) { take((alignment - at_ % alignment) % alignment); }

 private:
  ByteView bytes_;
  std::string where_;
  std::uint64_t at_ = 0;
  Status failure_;
};

}  // namespace gpurun::emulated::tile
