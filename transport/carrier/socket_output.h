// SocketOutput: records, the rest of a short record of data, and bytes of the carrier, that are on
// their way to the socket. Nothing else may be sent there before them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "base/bytes.h"
#include "transport/carrier/control.h"
#include "transport/transport.h"

namespace gpurun::transport::carrier {

class SocketOutput {
 public:
  bool empty() const noexcept { return sent_ == record_bytes_ + untaken_bytes(); }

  // At most kRecordsMax since empty(), and none behind add_untaken().
  static constexpr std::size_t kRecordsMax = 6;
  void add(const Record& record) noexcept {
    std::array<std::byte, kRecordBytesMax> bytes;
    const std::size_t count = write_record(record, &bytes);
    std::copy_n(bytes.begin(), count,
                records_.begin() + static_cast<std::ptrdiff_t>(record_bytes_));
    record_bytes_ += count;
  }
  // The rest of a record of data, at most kRestBytesMax, while empty(). It is copied.
  static constexpr std::size_t kRestBytesMax = 256;
  void add_rest(std::span<const ByteView> parts) noexcept {
    for (const ByteView part : parts) {
      std::copy(part.begin(), part.end(),
                records_.begin() + static_cast<std::ptrdiff_t>(record_bytes_));
      record_bytes_ += part.size();
    }
  }
  // They stay unchanged until empty().
  void add_untaken(const std::array<ByteView, 2>& untaken) noexcept { untaken_ = untaken; }

  // Sends what goes without waiting. A socket that has failed takes everything.
  void flush(Connection& socket) {
    while (!empty()) {
      const Result<std::size_t> sent = send_some(socket);
      if (sent.ok() && *sent == 0) return;
      if (!sent.ok()) break;
      sent_ += *sent;
    }
    record_bytes_ = sent_ = 0;
    untaken_ = {};
  }

 private:
  std::size_t untaken_bytes() const noexcept { return untaken_[0].size() + untaken_[1].size(); }

  Result<std::size_t> send_some(Connection& socket) {
    std::array<ByteView, 3> parts = {ByteView(records_).first(record_bytes_), untaken_[0],
                                     untaken_[1]};
    std::size_t skipped = sent_;
    for (ByteView& part : parts) {
      const std::size_t here = std::min(skipped, part.size());
      part = part.subspan(here);
      skipped -= here;
    }
    return socket.send_some(parts);
  }

  std::array<std::byte, std::max(kRecordsMax* kRecordBytesMax, kRestBytesMax)> records_;
  std::size_t record_bytes_ = 0;
  std::array<ByteView, 2> untaken_;
  std::size_t sent_ = 0;
};

}  // namespace gpurun::transport::carrier
