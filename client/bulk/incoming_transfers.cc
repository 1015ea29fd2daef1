// IncomingTransfers: by number, with a count of those that no thread waits for.
#include "client/bulk/incoming_transfers.h"

#include <algorithm>

#include "client/bulk/source_reads.h"

namespace gpurun::client {

void IncomingTransfers::add(std::uint64_t transfer, const IncomingTransfer& in) {
  transfers_.emplace(transfer, in);
  if (in.unattended) unattended_.fetch_add(1, std::memory_order_acq_rel);
  if (in.written) written_.fetch_add(1, std::memory_order_acq_rel);
}

IncomingTransfer* IncomingTransfers::find(std::uint64_t transfer) {
  const auto found = transfers_.find(transfer);
  return found == transfers_.end() ? nullptr : &found->second;
}

void IncomingTransfers::remove(std::uint64_t transfer) {
  const auto found = transfers_.find(transfer);
  if (found == transfers_.end()) return;
  if (found->second.unattended) unattended_.fetch_sub(1, std::memory_order_acq_rel);
  if (found->second.written) written_.fetch_sub(1, std::memory_order_acq_rel);
  transfers_.erase(found);
}

bool IncomingTransfers::outstanding(ByteView memory) const noexcept {
  return std::any_of(transfers_.begin(), transfers_.end(), [memory](const auto& each) {
    return each.second.unattended && overlap(each.second.destination.reach(), memory);
  });
}

bool IncomingTransfers::is_written(ByteView memory) const noexcept {
  return std::any_of(transfers_.begin(), transfers_.end(), [memory](const auto& each) {
    return each.second.written && overlap(each.second.destination.reach(), memory);
  });
}

bool IncomingTransfers::receives(ByteView memory) const noexcept {
  return std::any_of(transfers_.begin(), transfers_.end(), [memory](const auto& each) {
    return !each.second.written && overlap(each.second.destination.reach(), memory);
  });
}

}  // namespace gpurun::client
