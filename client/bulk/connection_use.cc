// ConnectionUse: passes what happens to the counts, and follows them.
#include "client/bulk/connection_use.h"

#include <algorithm>

#include "client/process/thread_cpu_time.h"

namespace gpurun::client {

ConnectionUse::ConnectionUse(unsigned open, bool spread_copies,
                             std::optional<ConnectionCount::Bounds> bounds)
    : spread_copies_(spread_copies), open_(open), used_(open), asked_for_(open) {
  if (bounds.has_value() && open == 1) {
    count_.emplace(*bounds);
    if (spread_copies) count_out_.emplace(*bounds);
  }
  may_join_ = count_.has_value();
}

ConnectionUse::Used ConnectionUse::to_device() const noexcept {
  return {used_, count_ ? count_->tried_most() : open_};
}

ConnectionUse::Used ConnectionUse::from_device() const noexcept {
  if (!spread_copies_) return {1, 1};
  if (!count_out_) return {open_, open_};
  return {count_out_->in_use(), count_out_->tried_most()};
}

unsigned ConnectionUse::most_wanted() const noexcept {
  return std::max(count_ ? count_->wanted() : 0, count_out_ ? count_out_->wanted() : 0);
}

unsigned ConnectionUse::wanted() const noexcept {
  return may_join_ ? std::max(most_wanted(), open_) : open_;
}

// Puts as many connections to work as the count gives.
bool ConnectionUse::follow_count() {
  if (count_->in_use() == used_) return false;
  used_ = count_->in_use();
  return true;
}

void ConnectionUse::note_lack() {
  if (most_wanted() > asked_for_) lacks_.store(true, std::memory_order_relaxed);
}

void ConnectionUse::sent(const OutgoingTransfer& out, std::uint64_t bytes) {
  if (!count_ || out.source.size() < ConnectionCount::kTransferBytesMin) return;
  count_->sent(ConnectionCount::Clock::now(), bytes);
}

bool ConnectionUse::retired(const OutgoingTransfer& out, std::uint64_t bytes) {
  if (!count_ || bytes == 0 || out.source.size() < ConnectionCount::kTransferBytesMin) return false;
  count_->retired(ConnectionCount::Clock::now(), bytes);
  const bool changed = follow_count();
  note_lack();
  return changed;
}

unsigned ConnectionUse::expect(IncomingTransfer& in) {
  if (!spread_copies_ || in.total < ConnectionCount::kTransferBytesMin) return 0;
  if (!count_out_) return open_ > 1 ? open_ : 0;
  in.counted = true;
  count_out_->sent(ConnectionCount::Clock::now(), in.total);
  return count_out_->in_use() > 1 ? count_out_->in_use() : 0;
}

void ConnectionUse::received(const IncomingTransfer& in, std::uint64_t bytes) {
  if (!in.counted) return;
  count_out_->retired(ConnectionCount::Clock::now(), bytes);
  note_lack();
}

void ConnectionUse::dropped(const IncomingTransfer& in) {
  if (in.counted) count_out_->dropped(ConnectionCount::Clock::now(), in.total - in.received);
}

bool ConnectionUse::measures_next_send() noexcept {
  return count_.has_value() && ++sends_ % kTurnsPerLook == 0;
}

bool ConnectionUse::measures_next_receive(const IncomingTransfer& in) noexcept {
  return in.counted && ++receives_ % kTurnsPerLook == 0;
}

void ConnectionUse::send_took(Span core_time) { count_->worked(kTurnsPerLook * core_time); }

void ConnectionUse::receive_took(Span core_time) { count_out_->worked(kTurnsPerLook * core_time); }

bool ConnectionUse::ask_for_more() {
  lacks_.store(false, std::memory_order_relaxed);
  if (!may_join_ || most_wanted() <= asked_for_) return false;
  asked_for_ = most_wanted();
  return true;
}

bool ConnectionUse::opened(unsigned their_cores) {
  const ConnectionCount::Time now = ConnectionCount::Clock::now();
  ++open_;
  count_->opened(now, open_, their_cores);
  if (count_out_) count_out_->opened(now, open_, their_cores);
  return follow_count();
}

void ConnectionUse::not_opened(ConnectionCount::Time now) {
  if (count_->wanted() > open_) count_->not_opened(now);
  if (count_out_ && count_out_->wanted() > open_) count_out_->not_opened(now);
}

void ConnectionUse::cannot_start() {
  may_join_ = false;
  not_opened(ConnectionCount::Clock::now());
}

void ConnectionUse::cannot_open() {
  not_opened(ConnectionCount::Clock::now());
  asked_for_ = open_;
}

}  // namespace gpurun::client
