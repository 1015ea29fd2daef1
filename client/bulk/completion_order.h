// CompletionOrder: the worker's transfers that have arrived whole, in the worker's order.
//
// The worker numbers the transfers to this process 1, 2, 3, ... as they complete. They arrive over
// several connections, and small ones on the log. So a later one may be here before an earlier one.
// A program learns of a completion only when all before it have arrived. Bytes that came on the log
// are kept until then, because an earlier copy may write to the same memory.
//
// One thread at a time. Bulk locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"

namespace gpurun::client {

class CompletionOrder {
 public:
  // Completions that may arrive before an earlier one. More are a protocol error.
  static constexpr std::size_t kEarlyMax = 65'536;
  // The bound of the bytes that are kept, and the extra cost of each such transfer.
  static constexpr std::size_t kKeptBytesMax = std::size_t{16} << 20;
  static constexpr std::size_t kKeptBytesEach = 128;

  // Completions 1 to this number have arrived.
  std::uint64_t through() const noexcept { return through_; }
  // Returns whether the completion has arrived, or its bytes are kept.
  bool has(std::uint64_t number) const { return number <= through_ || kept_.count(number) != 0; }

  // The completion has arrived. kProtocol: it comes twice or far too early. Then call advance().
  Status note(std::uint64_t number);
  // Keeps the bytes of a completion that is not the next. Returns false if that would be too much.
  bool keep(std::uint64_t number, std::uint64_t transfer, ByteView bytes);
  // Passes all completions that have no gap before them. `write` gets the transfer and the kept
  // bytes of each that has such bytes. A failure of it is returned.
  template <typename Write>
  Status advance(Write write);

 private:
  struct Kept {
    std::uint64_t transfer = 0;
    Bytes bytes;
  };

  std::uint64_t through_ = 0;
  std::set<std::uint64_t> early_;
  std::map<std::uint64_t, Kept> kept_;  // By the numbers of their completions.
  std::size_t kept_bytes_ = 0;
};

template <typename Write>
Status CompletionOrder::advance(Write write) {
  for (;;) {
    const std::uint64_t next = through_ + 1;
    if (!early_.empty() && *early_.begin() == next) {
      early_.erase(early_.begin());
    } else if (!kept_.empty() && kept_.begin()->first == next) {
      const Kept kept = std::move(kept_.begin()->second);
      kept_.erase(kept_.begin());
      kept_bytes_ -= kept.bytes.size() + kKeptBytesEach;
      GPURUN_RETURN_IF_ERROR(write(kept.transfer, kept.bytes));
    } else {
      return {};
    }
    through_ = next;
  }
}

}  // namespace gpurun::client
