// SocketInput: what has come over the socket of a carried connection, records and data. The
// receiving thread uses it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "transport/carrier/control.h"

namespace gpurun::transport::carrier {

class SocketInput {
 public:
  // Where the next bytes of the socket go, at least one.
  MutableBytes room() noexcept {
    if (begin_ != 0) {
      std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    return MutableBytes(bytes_).subspan(end_);
  }
  void came(std::size_t bytes) noexcept { end_ += bytes; }

  // The next record, with `*broken` set when it is not one. Empty too when it is not whole, or
  // data come first.
  std::optional<Record> next_record(bool* broken) noexcept {
    if (data_left_ != 0 || begin_ == end_) return std::nullopt;
    std::size_t used = 0;
    const std::optional<Record> record = read_record(held(), &used);
    *broken = !record;
    if (used == 0) return std::nullopt;
    begin_ += used;
    if (record->kind == Kind::kData) data_left_ = static_cast<std::size_t>(record->count);
    return record;
  }

  // Bytes of the connection that come next over the socket.
  std::size_t data_left() const noexcept { return data_left_; }
  bool empty() const noexcept { return begin_ == end_; }
  std::size_t take_data(MutableBytes into) noexcept {
    const std::size_t bytes = std::min({into.size(), data_left_, end_ - begin_});
    if (bytes != 0) std::memcpy(into.data(), bytes_.data() + begin_, bytes);
    begin_ += bytes;
    data_left_ -= bytes;
    return bytes;
  }
  // So many bytes of data have come elsewhere, while empty().
  void data_came(std::size_t bytes) noexcept { data_left_ -= bytes; }

 private:
  ByteView held() const noexcept { return ByteView(bytes_).subspan(begin_, end_ - begin_); }

  std::array<std::byte, 4096> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t data_left_ = 0;
};

}  // namespace gpurun::transport::carrier
