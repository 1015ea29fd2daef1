// ConnectionCount: decides after each stretch.
#include "client/bulk/connection_count.h"

#include <algorithm>

namespace gpurun::client {

double ConnectionCount::Stretch::rate() const {
  const double seconds = std::chrono::duration<double>(busy).count();
  return seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
}

bool ConnectionCount::Stretch::whole() const {
  return (bytes >= kStretchBytes && busy >= kStretchBusyMin) ||
         (bytes >= kStretchBytesMin && busy >= kStretchBusy);
}

void ConnectionCount::Stretch::add(const Stretch& other) {
  bytes += other.bytes;
  busy += other.busy;
  core_time += other.core_time;
}

// Adds the time up to `now` in which something was under way.
void ConnectionCount::pass(Time now) {
  if (under_way_ != 0) {
    const Span since = now - last_;
    if (since <= kGapMax) {
      (settling_ ? settled_ : stretch_).busy += since;
      quiet_.busy += since;
    }
  }
  last_ = now;
}

void ConnectionCount::sent(Time now, std::uint64_t bytes) {
  pass(now);
  under_way_ += bytes;
}

void ConnectionCount::retired(Time now, std::uint64_t bytes) {
  pass(now);
  under_way_ -= std::min(bytes, under_way_);
  quiet_.bytes += bytes;
  if (settling_) {
    if (before_change_ != 0) {
      before_change_ -= std::min(before_change_, bytes);
      settled_ = {};
      return;
    }
    settled_.bytes += bytes;
    if (settled_.bytes < kSettleBytes && settled_.busy < kSettleBusy) return;
    settling_ = false;
    stretch_ = {};
    return;
  }
  stretch_.bytes += bytes;
  if (stretch_.whole()) end_stretch(now);
}

void ConnectionCount::dropped(Time now, std::uint64_t bytes) {
  pass(now);
  under_way_ -= std::min(bytes, under_way_);
  before_change_ -= std::min(bytes, before_change_);
}

void ConnectionCount::opened(Time now, unsigned count, unsigned their_cores) {
  open_ = count;
  their_cores_ = their_cores;
  if (trial_ || wanted_ <= in_use_ || open_ < wanted_) return;
  pass(now);
  begin(in_use_, wanted_);
}

void ConnectionCount::not_opened(Time now) {
  wanted_ = open_;
  rest(now, in_use_ > 1);
}

void ConnectionCount::use(unsigned count) {
  in_use_ = count;
  tried_most_ = std::max(tried_most_, count);
  settling_ = true;
  before_change_ = under_way_;
  settled_ = {};
}

// Returns whether there are cores for `count` sending threads, by their measured share of a core.
bool ConnectionCount::cores_for(unsigned count) const {
  const double busy = std::chrono::duration<double>(before_.busy).count();
  const double core_time = std::chrono::duration<double>(before_.core_time).count();
  const double share = busy > 0 ? core_time / busy / in_use_ : 1;
  const double needed = share * count;
  if (needed * (bounds_.same_host ? 2 : 1) > bounds_.cores) return false;
  return their_cores_ == 0 || needed <= their_cores_;
}

// Returns how many to try. The number in use means no more.
unsigned ConnectionCount::next_more() const {
  unsigned count = std::min(2 * in_use_, bounds_.connections);
  while (count > in_use_ && !cores_for(count)) --count;
  return count;
}

// After a whole stretch: `before_` is for the number of connections in use.
void ConnectionCount::begin_when_due(Time now) {
  if (wanted_ > open_ || now < not_before_) return;
  if (quiet_.bytes < kQuietBytes && quiet_.busy < kQuietBusy) return;
  if (fewer_next_) return begin(in_use_ / 2, in_use_);
  const unsigned more = next_more();
  if (more == in_use_) return rest(now, in_use_ > 1);
  wanted_ = std::max(more, open_);
  if (open_ >= more) begin(in_use_, more);
}

// Measures the number in use anew. Earlier stretches may have been slow for other reasons, such as
// memory that was never touched. What the last trial has just measured is kept.
void ConnectionCount::begin(unsigned few, unsigned many) {
  const bool up = in_use_ == few;
  trial_ = Trial{few, many, up, {}, 0};
  if (fresh_) {
    trial_->measured[up ? 0 : 1] = before_;
    trial_->stretches = 1;
  }
  use(up ? many : few);
}

void ConnectionCount::end_stretch(Time now) {
  before_ = stretch_;
  stretch_ = {};
  if (!trial_) {
    fresh_ = false;
    return begin_when_due(now);
  }
  const bool of_many = in_use_ == trial_->many;
  trial_->measured[of_many ? 1 : 0].add(before_);
  ++trial_->stretches;
  const double few = trial_->measured[0].rate();
  const double many = trial_->measured[1].rate();
  if (trial_->stretches == 2 && many >= kPlainly * few) return decide(now, true);
  if (trial_->stretches == 2 && many < few) return decide(now, false);
  if (trial_->stretches == kStretchesMax) return decide(now, many >= kClearly * few);
  use(of_many ? trial_->few : trial_->many);
}

void ConnectionCount::decide(Time now, bool many) {
  const bool up = trial_->up;
  const unsigned chosen = many ? trial_->many : trial_->few;
  if (many) unsure_ = up && trial_->measured[0].busy + trial_->measured[1].busy < kSureBusy;
  before_ = trial_->measured[many ? 1 : 0];
  fresh_ = true;
  trial_.reset();
  wanted_ = open_;
  if (chosen != in_use_) use(chosen);
  if (!up && !many) rest_ = kRestMin;  // The link has changed.
  if (!up || !many) return rest(now, up && in_use_ > 1);
  // Even more may be even faster, which is tried at once.
  rest_ = kRestMin;
  quiet_.bytes = kQuietBytes;
  begin_when_due(now);
}

void ConnectionCount::rest(Time now, bool fewer_next) {
  if (unsure_ && fewer_next) {
    not_before_ = now + kUnsureRest;
  } else {
    not_before_ = now + rest_;
    rest_ = std::min(2 * rest_, kRestMax);
  }
  unsure_ = false;
  quiet_ = {};
  fewer_next_ = fewer_next;
}

}  // namespace gpurun::client
