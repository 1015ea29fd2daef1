// Receipts: the receipts of one end of a bulk connection for received chunks, sent in groups. Each
// message costs both ends a system call, and often a thread's sleep.
//
// One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "protocol/bulk/chunk_wire.h"

namespace gpurun::protocol {

class Receipts {
 public:
  // Receipts that go together. Each end sends them by send_bulk_words().
  class Batch {
   public:
    bool empty() const { return count_ == 0; }
    std::span<const BulkHeader> headers() const { return std::span(headers_).first(count_); }

   private:
    friend class Receipts;
    std::array<BulkHeader, kBulkWordsMax> headers_ = {};
    std::size_t count_ = 0;
  };

  // Receipts are ready to send after `chunks` chunks.
  explicit Receipts(std::size_t chunks) : chunks_(chunks) {}

  // Records a receipt. Of each transfer only the furthest counts, in whatever order they come.
  // `now`: do not wait for more. Returns due().
  bool note(const BulkHeader& receipt, bool now) {
    BulkHeader& furthest = receipts_[receipt.transfer];
    if (receipt.offset >= furthest.offset) furthest = receipt;
    if (++untold_ >= chunks_ || now) due_ = true;
    return due_;
  }
  bool due() const { return due_; }
  // Takes the next group that is ready. Empty when none is.
  Batch take() {
    Batch batch;
    if (!due_) return batch;
    while (!receipts_.empty() && batch.count_ < batch.headers_.size()) {
      batch.headers_[batch.count_++] = receipts_.begin()->second;
      receipts_.erase(receipts_.begin());
    }
    if (receipts_.empty()) {
      due_ = false;
      untold_ = 0;
    }
    return batch;
  }

 private:
  const std::size_t chunks_;
  std::map<std::uint64_t, BulkHeader> receipts_;  // By transfer.
  std::size_t untold_ = 0;
  bool due_ = false;
};

}  // namespace gpurun::protocol
