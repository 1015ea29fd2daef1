// IssueQueue: the earlier calls that each call waits for, counted down as they are issued.
#include "server/worker/execution/issue_queue.h"

#include <algorithm>

#include "protocol/calls/handle_form.h"

namespace gpurun::server {
namespace {

using protocol::Order;
using protocol::RecordHeader;

enum ChainKind : std::uint8_t {
  kStreamChain,
  kLegacyChain,
  kPerThreadChain,
  kLaneChain,
  kExecutableChain,
  kGate,
  kHost,
  kHostPast,  // Ordered host calls that pass the streams.
  kAlone
};

bool is_gate(Order order) { return order == Order::kContext || order == Order::kOrderedHost; }

// The mark of the call is the barrier, and not the call itself.
bool has_mark_before(const RecordHeader& header) {
  return header.order == Order::kOrderedHost && (header.flags & protocol::kFlagBarrier) != 0;
}

bool passes_streams(const RecordHeader& header) {
  return (header.flags & protocol::kFlagPassesStreams) != 0;
}

// No call needs to wait for it. Users of a subject keep their order all the same.
bool delays_nobody(const RecordHeader& header) {
  return header.order == Order::kContext && (header.flags & protocol::kFlagFence) != 0 &&
         (header.flags & protocol::kFlagBarrier) == 0 && header.subject == 0;
}

}  // namespace

IssueQueue::Chain IssueQueue::chain_of(const RecordHeader& header) {
  switch (header.order) {
    case Order::kStream:
      if (header.stream == protocol::kStreamNull || header.stream == protocol::kStreamLegacy) {
        return {kLegacyChain, 0, header.context};
      }
      if (header.stream == protocol::kStreamPerThread) {
        return {kPerThreadChain, header.lane, header.context};
      }
      return {kStreamChain, header.stream, 0};  // One queue, whatever context is current.
    case Order::kLane:
      // A change of an executable may be behind a launch that waits for a function of the program.
      // The lane's waits for other work must not be.
      if (protocol::claimed_handle_kind(header.subject) == driver_abi::HandleKind::kGraphExec) {
        return {kExecutableChain, header.subject, 0};
      }
      return {kLaneChain, header.lane, 0};
    case Order::kOrderedHost:
      return {passes_streams(header) ? kHostPast : kHost, 0, header.context};
    case Order::kImmediate:
    case Order::kContext:
      break;
  }
  return {kGate, 0, header.context};
}

void IssueQueue::wait_for(Item& item, Item* earlier) {
  if (earlier == nullptr || earlier == &item) return;
  auto& dependents = earlier->dependents_;
  if (!dependents.empty() && dependents.back() == &item) return;
  dependents.push_back(&item);
  ++item.blockers_;
}

// Waits for every queued call of `context`. The last call of each chain waits for those before it.
void IssueQueue::wait_for_context(Item& item, std::uint64_t context) {
  const auto it = contexts_.find(context);
  if (it == contexts_.end()) return;
  for (const auto& [chain, tail] : it->second) wait_for(item, tail.item);
}

void IssueQueue::wait_for_gates(Item& item, std::uint64_t context) {
  for (const std::uint64_t of : {context, std::uint64_t{0}}) {
    const auto it = chains_.find(Chain{kGate, 0, of});
    if (it != chains_.end()) wait_for(item, it->second);
  }
}

void IssueQueue::order_in_context(Item& item, const RecordHeader& header) {
  const bool of_all =
      header.order == Order::kContext && (header.flags & protocol::kFlagBarrier) != 0;
  if (header.context == 0 || of_all) {
    for (const auto& [chain, last] : chains_) wait_for(item, last);
    return;
  }
  wait_for_context(item, header.context);
  const auto host = chains_.find(Chain{kHost, 0, 0});
  if (host != chains_.end()) wait_for(item, host->second);
  wait_for_host_past(item);
}

// Frees of a pool are such calls, and the contexts of a device share its memory.
void IssueQueue::wait_for_host_past(Item& item) {
  for (const auto& [chain, last] : chains_) {
    if (chain.kind == kHostPast) wait_for(item, last);
  }
}

// Waits for the gates, as in push(), and for earlier calls that pass the streams.
void IssueQueue::order_past_streams(Item& item, std::uint64_t context) {
  for (const auto& [chain, last] : chains_) {
    const bool of_ours = context == 0 || chain.context == 0 || chain.context == context;
    if (of_ours && chain.kind == kGate) wait_for(item, last);
  }
  wait_for_host_past(item);
}

void IssueQueue::order_in_stream(Item& item, std::uint64_t home, bool blocking) {
  const auto it = contexts_.find(home);
  if (it == contexts_.end()) return;
  if (item.chain_.kind == kLegacyChain) {
    for (const auto& [chain, tail] : it->second) {
      if (tail.blocking) wait_for(item, tail.item);
    }
  } else if (blocking) {
    const auto legacy = it->second.find(Chain{kLegacyChain, 0, home});
    if (legacy != it->second.end()) wait_for(item, legacy->second.item);
  }
}

void IssueQueue::order_by_subject(Item& item, bool writes) {
  Subject& subject = subjects_[item.subject_];
  wait_for(item, subject.writer);
  if (writes) {
    for (const auto& [chain, reader] : subject.readers) wait_for(item, reader);
    subject.readers.clear();
    subject.writer = &item;
  } else {
    subject.readers[item.chain_] = &item;
  }
}

void IssueQueue::remember(Item& item, std::uint64_t home, bool blocking) {
  chains_[item.chain_] = &item;
  contexts_[item.contexts_[0]][item.chain_] = {&item, blocking && item.contexts_[0] == home};
  if (item.contexts_[1] != 0) contexts_[item.contexts_[1]][item.chain_] = {&item, blocking};
}

// The mark follows the work of its context. The end of ordered host calls is not work of the
// device.
void IssueQueue::push_mark(const RecordHeader& header, void* user) {
  auto owned = std::make_unique<Item>();
  Item& item = *owned;
  item.is_mark_ = true;
  item.sequence_ = header.sequence;
  item.user_ = user;
  item.chain_ = {kAlone, header.sequence, 0};
  items_[key_of(item)] = std::move(owned);
  wait_for(item, barrier_);
  wait_for_gates(item, header.context);
  const auto of_host = [](const Chain& chain) {
    return chain.kind == kHost || chain.kind == kHostPast;
  };
  if (header.context == 0) {
    for (const auto& [chain, last] : chains_) {
      if (!of_host(chain)) wait_for(item, last);
    }
  } else if (const auto tails = contexts_.find(header.context); tails != contexts_.end()) {
    for (const auto& [chain, tail] : tails->second) {
      if (!of_host(chain)) wait_for(item, tail.item);
    }
  }
  barrier_ = &item;
  if (item.blockers_ == 0) issuable_.emplace(item.sequence_, &item);
}

IssueQueue::Item* IssueQueue::push(const RecordHeader& header, const StreamTraits& traits,
                                   void* user) {
  if (has_mark_before(header)) push_mark(header, user);
  auto owned = std::make_unique<Item>();
  Item& item = *owned;
  items_[header.sequence] = std::move(owned);
  item.sequence_ = header.sequence;
  item.user_ = user;
  item.chain_ = chain_of(header);
  item.subject_ = header.subject;
  item.contexts_[0] = header.context;
  const bool named_stream = item.chain_.kind == kStreamChain;
  const std::uint64_t home = named_stream && traits.context != 0 ? traits.context : header.context;
  if (home != header.context) item.contexts_[1] = home;
  const bool blocking = item.chain_.kind == kPerThreadChain || (named_stream && traits.blocking);

  wait_for(item, barrier_);
  wait_for_gates(item, header.context);
  if (item.contexts_[1] != 0) wait_for_gates(item, item.contexts_[1]);
  const auto before = chains_.find(item.chain_);
  if (before != chains_.end()) wait_for(item, before->second);
  if (is_gate(header.order)) {
    if (passes_streams(header)) {
      order_past_streams(item, header.context);
    } else {
      order_in_context(item, header);
    }
  }
  if (header.order == Order::kStream) order_in_stream(item, home, blocking);
  if (item.subject_ != 0) {
    order_by_subject(item, (header.flags & protocol::kFlagWritesSubject) != 0);
  }
  if (!delays_nobody(header)) remember(item, home, blocking);
  if ((header.flags & protocol::kFlagBarrier) != 0 && !has_mark_before(header)) barrier_ = &item;
  if (item.blockers_ == 0) issuable_.emplace(item.sequence_, &item);
  return &item;
}

void IssueQueue::push_behind(std::uint64_t sequence, const std::vector<Item*>& earlier,
                             void* user) {
  auto owned = std::make_unique<Item>();
  Item& item = *owned;
  items_[sequence] = std::move(owned);
  item.sequence_ = sequence;
  item.user_ = user;
  item.chain_ = {kAlone, sequence, 0};
  for (Item* each : earlier) wait_for(item, each);
  if (item.blockers_ == 0) issuable_.emplace(sequence, &item);
}

bool IssueQueue::has_legacy_work(std::uint64_t context) const {
  const auto tails = contexts_.find(context);
  if (tails == contexts_.end()) return false;
  return std::any_of(tails->second.begin(), tails->second.end(), [](const auto& each) {
    return each.first.kind == kLegacyChain || each.second.blocking;
  });
}

IssueQueue::Item* IssueQueue::take() {
  if (issuable_.empty()) return nullptr;
  Item* item = issuable_.begin()->second;
  issuable_.erase(issuable_.begin());
  return item;
}

void IssueQueue::finish(Item* item) {
  const auto chain = chains_.find(item->chain_);
  if (chain != chains_.end() && chain->second == item) chains_.erase(chain);
  for (const std::uint64_t context : item->contexts_) {
    const auto tails = contexts_.find(context);
    if (tails == contexts_.end()) continue;
    const auto tail = tails->second.find(item->chain_);
    if (tail != tails->second.end() && tail->second.item == item) tails->second.erase(tail);
    if (tails->second.empty()) contexts_.erase(tails);
  }
  if (const auto it = subjects_.find(item->subject_); it != subjects_.end()) {
    Subject& subject = it->second;
    if (subject.writer == item) subject.writer = nullptr;
    const auto reader = subject.readers.find(item->chain_);
    if (reader != subject.readers.end() && reader->second == item) subject.readers.erase(reader);
    if (subject.writer == nullptr && subject.readers.empty()) subjects_.erase(it);
  }
  if (barrier_ == item) barrier_ = nullptr;
  if (item->held_) std::erase(held_, item);
  for (Item* dependent : item->dependents_) {
    if (--dependent->blockers_ == 0) issuable_.emplace(dependent->sequence_, dependent);
  }
  items_.erase(key_of(*item));
}

void IssueQueue::hold(Item* item) {
  item->held_ = true;
  held_.push_back(item);
}

void IssueQueue::retry_held() {
  for (Item* item : held_) {
    item->held_ = false;
    issuable_.emplace(item->sequence_, item);
  }
  held_.clear();
}

std::size_t IssueQueue::remembered() const noexcept {
  return chains_.size() + contexts_.size() + subjects_.size() + (barrier_ != nullptr ? 1 : 0);
}

}  // namespace gpurun::server
