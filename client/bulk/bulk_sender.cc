// BulkSender: takes chunks in turn, sends them together where they are small, and sends receipts.
#include "client/bulk/bulk_sender.h"

#include <array>
#include <mutex>
#include <optional>
#include <utility>

#include "client/log/tsan_send_annotation.h"
#include "client/process/thread_cpu_time.h"

namespace gpurun::client {

using protocol::BulkHeader;
using protocol::FrameKind;

Status BulkSender::start() {
  return thread_.start(
      "gpurun-bulk-out",
      [](void* of) -> void* {
        static_cast<BulkSender*>(of)->run();
        return nullptr;
      },
      this);
}

Status BulkSender::send_receipts(Lock& lock) {
  const protocol::Receipts::Batch batch = state_.receipts.take();
  lock.unlock();
  Status status = protocol::send_bulk_words(connection_, FrameKind::kChunkReceipt, batch.headers());
  lock.lock();
  return status;
}

// Takes the next chunk that may go, if it fits beside the chunks that go already.
BulkSender::Taken BulkSender::take_next() {
  Taken taken;
  const auto out = state_.outgoing.next_to_send();
  if (out == nullptr) return taken;
  taken.in_place = out->head != out->head_end;
  const std::size_t bytes = taken.in_place ? out->chunk_bytes(out->head) : out->ready.front().bytes;
  if (!chunks_.fits(bytes)) return taken;
  state_.outgoing.serve(*out);
  if (taken.in_place) {
    taken.chunk = state_.take_chunk(*out, out->head);
    out->head += bytes;
    taken.payload = out->piece(taken.chunk);
    state_.begin_read(*out, taken.payload);
  } else {
    taken.chunk = out->ready.front();
    out->ready.pop_front();
    taken.payload = ByteView(state_.window.start_of(taken.chunk.slot), bytes);
  }
  // Before it is sent: the receipt may come before send() returns.
  out->sent += bytes;
  out->chunks.push_back(taken.chunk);
  state_.window.begin_send(taken.chunk.slot);
  state_.use.sent(*out, bytes);
  taken.out = out;
  return taken;
}

void BulkSender::has_gone(const Taken& taken) {
  if (taken.in_place) {
    state_.end_read(*taken.out, taken.payload);
    if (taken.out->taken()) state_.room.notify_all();
  }
  if (state_.window.end_send(taken.chunk.slot)) state_.wake_for_slots();
}

Status BulkSender::send_next(Lock& lock) {
  constexpr std::size_t kMost = protocol::ChunksToSend::kChunksMax;
  constexpr ConnectionUse::Span kNoTime{0};
  std::array<Taken, kMost> together;
  std::size_t count = 0;
  const bool measures = state_.use.measures_next_send();
  ConnectionUse::Span core_time = kNoTime;
  for (; count < kMost; ++count) {
    const Taken taken = together[count] = take_next();
    if (taken.out == nullptr) break;
    lock.unlock();
    if (measures && count == 0) core_time = thread_cpu_time();
    const BulkHeader header{taken.out->transfer, taken.chunk.offset, taken.out->source.size(), 0};
    chunks_.add(packer_, header, taken.payload);
    lock.lock();
  }
  if (count == 0) return {};
  lock.unlock();
  std::array<std::optional<TsanSendAnnotation>, kMost> sent_in_place;
  for (std::size_t i = 0; i < count; ++i) {
    if (together[i].in_place) sent_in_place[i].emplace(together[i].payload, state_.reads.count());
  }
  Status status = chunks_.send_rest(packer_, connection_);
  for (auto& each : sent_in_place) each.reset();
  const ConnectionUse::Span worked = measures ? thread_cpu_time() - core_time : kNoTime;
  lock.lock();
  if (measures) state_.use.send_took(worked);
  for (std::size_t i = 0; i < count; ++i) has_gone(together[i]);
  return status;
}

void BulkSender::run() {
  Lock lock(state_.mutex);
  for (;;) {
    if (!state_.use.in_use(index_)) {
      state_.unused.wait(lock, [&] { return state_.ended || state_.use.in_use(index_); });
      if (state_.ended) return;
    }
    // A sender that is no longer in use forwards the wake-up that it consumed.
    state_.to_send.wait(lock, [&] {
      return state_.ended || !state_.use.in_use(index_) || state_.receipts.due() ||
             state_.outgoing.next_to_send() != nullptr;
    });
    if (state_.ended) return;
    if (!state_.use.in_use(index_)) {
      state_.to_send.notify_one();
      continue;
    }
    Status status = state_.receipts.due() ? send_receipts(lock) : send_next(lock);
    if (!status.ok()) {
      lock.unlock();
      state_.listener.failed(state_.listener.user, std::move(status));
      return;
    }
  }
}

}  // namespace gpurun::client
