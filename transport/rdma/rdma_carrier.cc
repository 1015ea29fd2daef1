// RdmaCarrier: one lock around the queue pair, which is never held over a wait.
#include "transport/rdma/rdma_carrier.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace gpurun::transport::rdma {
namespace {

using carrier::Found;
using carrier::Moved;

constexpr std::size_t kPiecesMax = 16;
// A request in so many reports its completion. The places of those before it are then free, too.
constexpr std::uint64_t kReportEvery = 16;
// Requests and receives that bytes leave for credits and the end. A whole round of unreported
// requests may stand between the last report and the next. The other end gives at most one credit
// for each quarter of its ring and of its receives, before it must take one of ours.
constexpr std::uint64_t kRequestsKept = 2 * kReportEvery;
constexpr std::uint64_t kReceivesKept = 16;

constexpr unsigned kMeaningShift = 30;
constexpr std::uint32_t kCountMask = (std::uint32_t{1} << kMeaningShift) - 1;
enum Meaning : std::uint32_t { kBytesUpTo, kTakenUpTo, kReceivesUpTo, kEnd };

// Between looks at the queues, while no event wakes the thread. It doubles from one to the other.
constexpr std::chrono::microseconds kNapMin{20};
constexpr std::chrono::microseconds kNapMax{1000};
// For bytes that are under way when the socket has ended.
constexpr std::chrono::milliseconds kRestWait{50};

std::uint32_t immediate_of(Meaning meaning, std::uint64_t count) {
  return (static_cast<std::uint32_t>(meaning) << kMeaningShift) |
         (static_cast<std::uint32_t>(count) & kCountMask);
}

// How far a count has moved on from `known`.
std::uint64_t advance_of(std::uint32_t count, std::uint64_t known) {
  return (count - static_cast<std::uint32_t>(known)) & kCountMask;
}

// Where the byte behind `position` lies in a ring of `ring_bytes`. The rings of both ends may
// differ.
std::size_t place_in(std::size_t ring_bytes, std::uint64_t position) {
  return static_cast<std::size_t>(position) & (ring_bytes - 1);
}

// Calls `done` until it returns true, or until the deadline.
template <typename Done>
void await_done(Deadline deadline, Done done) {
  auto nap = kNapMin;
  while (!done() && !deadline.passed()) {
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, kNapMax);
  }
}

}  // namespace

RdmaCarrier::RdmaCarrier(std::unique_ptr<QueuePair> pair)
    : pair_(std::move(pair)),
      name_("RDMA by " + pair_->port().name()),
      window_(pair_->window()),
      their_receives_(pair_->their_receives()),
      receives_(pair_->receives()),
      credited_receives_(receives_) {}

bool RdmaCarrier::may_post(std::uint64_t requests_kept,
                           std::uint64_t receives_kept) const noexcept {
  return requested_ - completed_ + requests_kept < kSends &&
         posted_ + receives_kept < their_receives_;
}

std::size_t RdmaCarrier::room() const noexcept {
  return window_ - static_cast<std::size_t>(put_.load(std::memory_order_relaxed) - their_taken_);
}

bool RdmaCarrier::post(const std::byte* from, std::size_t bytes, std::size_t offset,
                       std::uint32_t immediate, bool reports) noexcept {
  const std::uint64_t number = requested_ + 1;
  const bool signaled = reports || number % kReportEvery == 0;
  if (!pair_->bring(from, static_cast<std::uint32_t>(bytes), offset, immediate,
                    signaled ? number : 0)) {
    failed_.store(true, std::memory_order_release);
    return false;
  }
  requested_ = number;
  ++posted_;
  if (signaled) silence_.will_report(number, completed_, Silence::Clock::now());
  return true;
}

bool RdmaCarrier::is_full() noexcept {
  const std::lock_guard<std::mutex> lock(queue_);
  return room() == 0 || !may_post(kRequestsKept, kReceivesKept);
}

Moved RdmaCarrier::put(PartCursor& cursor) {
  if (is_full()) {
    poll_requests();
    poll();
  }
  const std::lock_guard<std::mutex> lock(queue_);
  if (has_failed()) return {0, Found::kFailed};
  if (end_posted_ || !may_post(kRequestsKept, kReceivesKept)) return {};
  std::array<ByteView, kPiecesMax> pieces;
  std::size_t bytes = 0;
  const std::size_t count =
      cursor.look(pieces, std::min<std::size_t>(room(), pair_->step_bytes()), &bytes);
  if (bytes == 0) return {};
  const std::uint64_t put = put_.load(std::memory_order_relaxed);
  const std::size_t at = place_in(pair_->memory().ring_bytes(), put);
  std::byte* to = pair_->memory().out() + at;
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(to, pieces[i].data(), pieces[i].size());
    to += pieces[i].size();
  }
  const std::size_t their_place = place_in(pair_->theirs().ring_bytes, put);
  if (!post(to - bytes, bytes, their_place, immediate_of(kBytesUpTo, put + bytes), false)) {
    return {0, Found::kFailed};
  }
  put_.store(put + bytes, std::memory_order_relaxed);
  cursor.advance(bytes);
  return {bytes, Found::kWorks};
}

// The receiving thread may be busy elsewhere, so this one looks at the queues itself.
void RdmaCarrier::sleep_as_sender(std::chrono::nanoseconds span,
                                  const std::atomic<unsigned>& wanted, bool for_room) noexcept {
  const Deadline deadline = Deadline::in(span);
  std::chrono::nanoseconds nap = kNapMin;
  for (;;) {
    poll_requests();
    poll();
    if (is_closed_out() || (for_room && (has_failed() || !is_full()))) return;
    std::unique_lock<std::mutex> lock(sleeping_);
    woken_.wait_for(lock, std::min(nap, deadline.remaining()),
                    [&] { return wake_ || wanted.load() != 0; });
    if (std::exchange(wake_, false) || wanted.load() != 0 || deadline.passed()) return;
    nap = std::min<std::chrono::nanoseconds>(2 * nap, kNapMax);
  }
}

void RdmaCarrier::wake_sender() noexcept {
  {
    const std::lock_guard<std::mutex> lock(sleeping_);
    wake_ = true;
  }
  woken_.notify_one();
}

bool RdmaCarrier::find_untaken(std::uint64_t taken, std::array<ByteView, 2>* untaken) noexcept {
  const std::uint64_t bytes = put_.load(std::memory_order_relaxed) - taken;
  if (bytes > window_) return false;
  const std::size_t at = place_in(pair_->memory().ring_bytes(), taken);
  *untaken = {ByteView(pair_->memory().out() + at, static_cast<std::size_t>(bytes)), ByteView()};
  return true;
}

void RdmaCarrier::finish(Deadline deadline) noexcept {
  await_done(deadline, [this] {
    poll_requests();
    poll();  // The end needs a receive of the other end, which a credit may bring.
    const std::lock_guard<std::mutex> lock(queue_);
    post_end();
    return has_failed() || is_ended() || (end_posted_ && completed_ == requested_);
  });
}

ByteView RdmaCarrier::next_piece(std::uint64_t taken) noexcept {
  const std::uint64_t arrived = arrived_.load(std::memory_order_acquire);
  if (static_cast<std::int64_t>(arrived - taken) <= 0) return {};
  if (pair_->writes()) {
    const std::size_t at = place_in(pair_->memory().ring_bytes(), taken);
    return {pair_->memory().in() + at, static_cast<std::size_t>(arrived - taken)};
  }
  const std::lock_guard<std::mutex> lock(queue_);
  drop_slots(taken);
  if (slots_.empty()) return {};
  const FilledSlot& slot = slots_.front();
  const auto left = static_cast<std::size_t>(slot.end - taken);
  if (left > slot.bytes) return {};
  return {pair_->slot(slot.index) + slot.bytes - left, left};
}

Moved RdmaCarrier::take(MutableBytes into) noexcept {
  std::uint64_t taken = taken_.load(std::memory_order_relaxed);
  const std::uint64_t arrived = arrived_.load(std::memory_order_relaxed);
  if (static_cast<std::int64_t>(arrived - taken) <= 0) poll();
  std::size_t got = 0;
  while (got < into.size()) {
    const ByteView piece = next_piece(taken);
    // So that the sender gets room while this end copies the rest.
    const std::size_t bytes =
        std::min({piece.size(), into.size() - got, std::size_t{pair_->step_bytes()}});
    if (bytes == 0) break;
    std::memcpy(into.data() + got, piece.data(), bytes);
    got += bytes;
    taken += bytes;
    taken_.store(taken, std::memory_order_release);
    const std::lock_guard<std::mutex> lock(queue_);
    drop_slots(taken);
    give_credits(false);
  }
  return {got, got == 0 && has_failed() ? Found::kFailed : Found::kWorks};
}

bool RdmaCarrier::skip_to(std::uint64_t put) noexcept {
  if (put - taken_.load(std::memory_order_relaxed) > window_) return false;
  taken_.store(put, std::memory_order_release);
  const std::lock_guard<std::mutex> lock(queue_);
  drop_slots(put);
  give_credits(true);
  return true;
}

bool RdmaCarrier::has_bytes() const noexcept {
  const std::uint64_t arrived = arrived_.load(std::memory_order_acquire);
  return static_cast<std::int64_t>(arrived - taken_.load(std::memory_order_relaxed)) > 0 ||
         has_failed();
}

// The channel stays armed until something comes, so two sleeps in a row need no system call for it.
// The third heeds the channel again, in case that it has an event without a completion.
//
// A completion that came before the request for an event raises none, so the queue is looked at
// behind it.
bool RdmaCarrier::announce_sleep() noexcept {
  const bool was_asleep = asleep_.exchange(true);
  if (came_.exchange(false) || !armed_.exchange(false)) {
    if (!pair_->heed_channel() || !pair_->arm()) failed_.store(true, std::memory_order_release);
    armed_.store(true);
  }
  poll_requests();
  poll();
  return was_asleep;
}

void RdmaCarrier::await_rest() noexcept {
  await_done(Deadline::in(kRestWait), [this] {
    poll();
    return is_ended() || has_failed();
  });
}

// A peer that never pauses keeps no thread here. More cannot have come before the call.
void RdmaCarrier::poll() noexcept {
  bool wakes = false;
  {
    const std::lock_guard<std::mutex> lock(queue_);
    std::array<ibv_wc, 16> come;
    for (std::uint64_t seen = 0; seen < pair_->receives() && !has_failed();) {
      const int count = pair_->poll_receives(come.data(), static_cast<int>(come.size()));
      for (int i = 0; i < count && !has_failed(); ++i) {
        if (!heed(come[static_cast<std::size_t>(i)])) {
          failed_.store(true, std::memory_order_release);
        }
      }
      if (count < 0) failed_.store(true, std::memory_order_release);
      if (count <= 0) break;
      seen += static_cast<std::uint64_t>(count);
      wakes = true;
      came_.store(true);
    }
    give_credits(false);
  }
  if (wakes) wake_sender();
}

void RdmaCarrier::poll_requests() noexcept {
  const std::lock_guard<std::mutex> lock(queue_);
  heed_requests();
  if (completed_ != requested_ && !has_failed()) heed_silence();
}

void RdmaCarrier::heed_silence() noexcept {
  const SilenceStep step = silence_.look(requested_, completed_, Silence::Clock::now());
  if (step == SilenceStep::kFail) failed_.store(true, std::memory_order_release);
  if (step != SilenceStep::kAskForReport || end_posted_ || !may_post(0, 0)) return;
  const std::uint64_t taken = taken_.load(std::memory_order_relaxed);
  if (post(nullptr, 0, 0, immediate_of(kTakenUpTo, taken), true)) credited_taken_ = taken;
}

// What is flushed comes behind the request that has failed, perhaps on the other queue.
void RdmaCarrier::note_failure(ibv_wc_status status) noexcept {
  if (status == IBV_WC_SUCCESS) return;
  const ibv_wc_status known = failure_.load();
  if (known == IBV_WC_SUCCESS || known == IBV_WC_WR_FLUSH_ERR) failure_.store(status);
}

// Requests complete in order, and one that fails reports that in any case.
void RdmaCarrier::heed_requests() noexcept {
  std::array<ibv_wc, 16> done;
  int count = 0;
  while ((count = pair_->poll_requests(done.data(), static_cast<int>(done.size()))) > 0) {
    for (int i = 0; i < count; ++i) {
      const ibv_wc& one = done[static_cast<std::size_t>(i)];
      note_failure(one.status);
      const bool right = one.status == IBV_WC_SUCCESS;
      if (!right) failed_.store(true, std::memory_order_release);
      completed_ = std::max(completed_, one.wr_id);
      reads_.end(one.wr_id, right);
      writes_.end(one.wr_id, right);
    }
    silence_.reported(Silence::Clock::now());
  }
  if (count < 0) failed_.store(true, std::memory_order_release);
}

// False: the device has failed, or the other end has sent what is impossible.
bool RdmaCarrier::heed(const ibv_wc& completion) noexcept {
  note_failure(completion.status);
  if (completion.status != IBV_WC_SUCCESS) return false;
  const auto wanted = pair_->writes() ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  if (completion.opcode != wanted || (completion.wc_flags & IBV_WC_WITH_IMM) == 0) return false;
  const std::uint32_t immediate = ntohl(completion.imm_data);
  const std::uint32_t count = immediate & kCountMask;
  const auto meaning = static_cast<Meaning>(immediate >> kMeaningShift);
  if (meaning == kBytesUpTo) return heed_bytes(completion, count);
  if (!post_receive(static_cast<std::uint32_t>(completion.wr_id))) return false;
  if (meaning == kTakenUpTo) return heed_taken(count);
  if (meaning == kReceivesUpTo) return heed_receives(count);
  ended_.store(true, std::memory_order_release);
  return true;
}

bool RdmaCarrier::heed_bytes(const ibv_wc& completion, std::uint32_t count) noexcept {
  const std::uint64_t arrived = arrived_.load(std::memory_order_relaxed);
  const std::uint64_t more = advance_of(count, arrived);
  const std::uint64_t held = arrived + more - taken_.load(std::memory_order_acquire);
  // A position behind which this end goes on already is not ahead of it.
  if (more > window_ || static_cast<std::int64_t>(held) > static_cast<std::int64_t>(window_)) {
    return false;
  }
  if (pair_->writes()) {
    if (!post_receive(0)) return false;
  } else {
    if (completion.byte_len != more || completion.wr_id >= kSlots) return false;
    slots_.push(
        {static_cast<std::uint32_t>(completion.wr_id), completion.byte_len, arrived + more});
  }
  arrived_.store(arrived + more, std::memory_order_release);
  return true;
}

bool RdmaCarrier::heed_taken(std::uint32_t count) noexcept {
  const std::uint64_t more = advance_of(count, their_taken_);
  if (more > put_.load(std::memory_order_relaxed) - their_taken_) return false;
  their_taken_ += more;
  return true;
}

bool RdmaCarrier::heed_receives(std::uint32_t count) noexcept {
  const std::uint64_t more = advance_of(count, their_receives_);
  if (their_receives_ + more > posted_ + pair_->their_receives()) return false;
  their_receives_ += more;
  return true;
}

bool RdmaCarrier::post_receive(std::uint32_t slot) noexcept {
  if (!pair_->post_receive(slot)) return false;
  ++receives_;
  return true;
}

// A slot receives again when all of its bytes are taken.
void RdmaCarrier::drop_slots(std::uint64_t taken) noexcept {
  while (!slots_.empty() && static_cast<std::int64_t>(taken - slots_.front().end) >= 0) {
    if (!post_receive(slots_.front().index)) failed_.store(true, std::memory_order_release);
    slots_.pop();
  }
}

// A credit that finds no place now is given later: poll() and take() look again.
void RdmaCarrier::give_credits(bool now) noexcept {
  const std::uint64_t taken = taken_.load(std::memory_order_relaxed);
  const bool credits_taken = now || taken - credited_taken_ >= window_ / 4;
  const bool credits_receives = receives_ - credited_receives_ >= pair_->receives() / 4;
  if (has_failed() || end_posted_ || (!credits_taken && !credits_receives)) return;
  if (!may_post(kReportEvery, 2)) heed_requests();
  if (credits_taken && may_post(0, 0) &&
      post(nullptr, 0, 0, immediate_of(kTakenUpTo, taken), false)) {
    credited_taken_ = taken;
  }
  if (credits_receives && may_post(0, 0) &&
      post(nullptr, 0, 0, immediate_of(kReceivesUpTo, receives_), false)) {
    credited_receives_ = receives_;
  }
}

void RdmaCarrier::post_end() noexcept {
  if (end_posted_ || has_failed() || !may_post(0, 0)) return;
  end_posted_ = post(nullptr, 0, 0, immediate_of(kEnd, 0), true);
}

void RdmaCarrier::close() noexcept {
  if (closed_.exchange(true)) return;
  {
    const std::lock_guard<std::mutex> lock(queue_);
    post_end();
  }
  wake_sender();
}

}  // namespace gpurun::transport::rdma
