// OutgoingTransfers: the lines, and the rules for the window's slots.
#include "client/bulk/outgoing_transfers.h"

#include <iterator>

#include "client/bulk/source_reads.h"

namespace gpurun::client {

void OutgoingTransfers::add(OutgoingTransfer out, std::optional<Line> line) {
  constexpr std::uint64_t kAlone = ~std::uint64_t{0};
  out.line = line.value_or(Line{kAlone, out.transfer});
  if (out.offered != nullptr) offered_bytes_ += out.source.size();
  const auto added = std::make_shared<OutgoingTransfer>(std::move(out));
  transfers_.emplace(added->transfer, added);
  if (!added->on_demand) lines_[added->line].push_back(added);
}

OutgoingTransfers::Pointer OutgoingTransfers::find(std::uint64_t transfer) const {
  const auto found = transfers_.find(transfer);
  return found == transfers_.end() ? nullptr : found->second;
}

void OutgoingTransfers::drop(OutgoingTransfer& out) {
  if (out.offered != nullptr) offered_bytes_ -= out.source.size();
  out.dropped = true;
  const std::uint64_t transfer = out.transfer;
  transfers_.erase(transfer);
}

Status OutgoingTransfers::want(std::uint64_t transfer, std::uint64_t watermark) {
  const Pointer out = find(transfer);
  if (out == nullptr) return {};  // Abandoned, over another connection.
  if (!out->on_demand) return Status(Code::kProtocol, "the worker wants what was not offered");
  // Its stream waits for this transfer alone. It goes before transfers that go ahead of their turn.
  if (!out->later) lines_[out->line].push_front(out);
  out->begin_later();
  out->after = watermark;
  return {};
}

// Returns whether the window has a slot for `out`. Reserved slots are for the oldest transfer, or
// for transfers in turn.
bool OutgoingTransfers::has_slot_for(const OutgoingTransfer& out) const noexcept {
  const std::size_t free = window_.free_count();
  if (out.in_turn) return free != 0;
  if (free > kReservedSlots + kTurnSlots) return true;
  if (free <= kTurnSlots) return false;
  for (const auto& [transfer, each] : transfers_) {
    if (each->on_demand && !each->later) continue;  // It may never go.
    if (each->in_turn) continue;
    if (!each->taken()) return each.get() == &out;
  }
  return false;
}

bool OutgoingTransfers::may_copy(const OutgoingTransfer& out) const noexcept {
  if (out.filled - std::max(out.retired, out.head_end) >= kTransferWindowBytes) return false;
  if (out.head != out.head_end) return !is_tight();
  return has_slot_for(out);
}

// Returns whether some of it may go now. Its chunks go in order, the head first.
bool OutgoingTransfers::may_send(const OutgoingTransfer& out) const noexcept {
  if (out.sent - out.retired >= kTransferWindowBytes) return false;
  if (out.head == out.head_end) return !out.ready.empty();
  return out.after <= completions_.through() && has_slot_for(out);
}

// Returns the first transfer that is not all handed over, if it can go on.
OutgoingTransfers::Pointer OutgoingTransfers::first_to_send(InLine& line) {
  while (!line.empty() && line.front()->handed_over()) line.pop_front();
  return !line.empty() && may_send(*line.front()) ? line.front() : nullptr;
}

OutgoingTransfers::Pointer OutgoingTransfers::next_to_send() {
  auto at = lines_.upper_bound(last_served_);
  for (std::size_t left = lines_.size(); left != 0; --left) {
    if (at == lines_.end()) at = lines_.begin();
    if (auto found = first_to_send(at->second)) return found;
    at = at->second.empty() ? lines_.erase(at) : std::next(at);
  }
  return nullptr;
}

bool OutgoingTransfers::needs(ByteView memory) const noexcept {
  return std::any_of(transfers_.begin(), transfers_.end(), [memory](const auto& each) {
    return !each.second->taken() && overlap(each.second->source, memory);
  });
}

bool OutgoingTransfers::needs_up_to(std::uint64_t last) const noexcept {
  return std::any_of(transfers_.begin(), transfers_.end(), [last](const auto& each) {
    return each.first <= last && each.second->offered == nullptr && !each.second->taken();
  });
}

}  // namespace gpurun::client
