// QueuedCalls: an item of the queue owns its call.
#include "server/worker/execution/queued_calls.h"

#include <vector>

namespace gpurun::server {
namespace {

using protocol::Order;
using protocol::RecordHeader;

// The approximate cost of a queued call besides its record.
constexpr std::size_t kCallBytes = 1024;

constexpr std::uint64_t kBarriers = ~std::uint64_t{0};  // In place of a context.
constexpr std::uint32_t kAllLanes = ~std::uint32_t{0};  // In place of a lane.

}  // namespace

std::size_t QueuedCalls::cost(const Call& call) { return call.header().bytes + kCallBytes; }

void QueuedCalls::push(std::unique_ptr<Call> call) {
  bytes_ += cost(*call);
  const RecordHeader header = call->header();
  const IssueQueue::StreamTraits traits = streams_.traits(header);
  IssueQueue::Item* item = queue_.push(header, traits, call.release());
  if (queue_.has_mark(header.sequence)) item = queue_.barrier();
  if (const std::optional<EarlyKey> key = early_key(header)) early_[*key] = item;
}

std::optional<QueuedCalls::EarlyKey> QueuedCalls::early_key(const RecordHeader& header) const {
  if ((header.flags & protocol::kFlagFence) != 0) return {};
  const bool is_barrier = (header.flags & protocol::kFlagBarrier) != 0;
  const bool copy = header.order == Order::kStream && is_barrier;
  const bool marked = header.order == Order::kOrderedHost && is_barrier;
  const bool frees = header.order == Order::kOrderedHost && header.opcode != 0 &&
                     header.opcode == handlers_.memory_free;
  if (!copy && !marked && !frees) return {};
  // Each barrier follows the one before, so the last one suffices.
  if (marked || kinds_.is_early_wait(header)) return std::pair{kAllLanes, header.context};
  return std::pair{header.lane, copy ? kBarriers : header.context};
}

bool QueuedCalls::push_behind_early(std::unique_ptr<Call>& call) {
  const RecordHeader header = call->header();
  std::vector<IssueQueue::Item*> before;
  for (auto at = early_.lower_bound({header.lane, 0});
       at != early_.end() && at->first.first == header.lane; ++at) {
    before.push_back(at->second);
  }
  // Includes all contexts: they are issued soon, and elapsed time may be queried with any context
  // current.
  for (auto at = early_.lower_bound({kAllLanes, 0}); at != early_.end(); ++at) {
    before.push_back(at->second);
  }
  if (before.empty()) return false;
  bytes_ += cost(*call);
  queue_.push_behind(header.sequence, before, Call::keep(std::move(*call)).release());
  return true;
}

void QueuedCalls::forget_early(const IssueQueue::Item* item) {
  const std::optional<EarlyKey> key = early_key(call_of(item).header());
  if (!key) return;
  const auto found = early_.find(*key);
  if (found != early_.end() && found->second == item) early_.erase(found);
}

void QueuedCalls::finish(IssueQueue::Item* item) {
  const std::unique_ptr<Call> call(&call_of(item));
  bytes_ -= cost(*call);
  forget_early(item);
  queue_.finish(item);
  changed_.notify_all();
}

void QueuedCalls::finish_mark(IssueQueue::Item* item) {
  forget_early(item);
  queue_.finish(item);
}

void QueuedCalls::clear() {
  queue_.clear([](void* user) { delete static_cast<Call*>(user); });
}

}  // namespace gpurun::server
