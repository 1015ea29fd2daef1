// BulkDownloads: announces and cancels destinations, writes bytes from the log, and completes.
#include "client/bulk/bulk_downloads.h"

#include <string>
#include <utility>

#include "protocol/limits.h"

namespace gpurun::client {
namespace {

IncomingTransfer transfer_to(const HostBox& destination, bool unattended) {
  IncomingTransfer in;
  in.destination = destination;
  in.total = destination.bytes();
  in.unattended = unattended;
  return in;
}

}  // namespace

unsigned BulkDownloads::expect(std::uint64_t transfer, const HostBox& destination,
                               bool unattended) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  Incoming in = transfer_to(destination, unattended);
  const unsigned connections = state_.use.expect(in);
  state_.incoming.add(transfer, in);
  return connections;
}

// ConnectionUse does not count it, because no connection is to carry its bytes.
void BulkDownloads::expect_written(std::uint64_t transfer, const HostBox& destination,
                                   bool unattended) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  Incoming in = transfer_to(destination, unattended);
  in.written = true;
  state_.incoming.add(transfer, in);
}

bool BulkDownloads::receives(ByteView memory) const noexcept {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.incoming.receives(memory);
}

bool BulkDownloads::await_written(ByteView memory, std::chrono::milliseconds at_most) noexcept {
  Lock lock(state_.mutex);
  return state_.completed.wait_for(
      lock, at_most, [&] { return state_.ended || !state_.incoming.is_written(memory); });
}

Status BulkDownloads::note_written(const protocol::BulkHeader& header) {
  const bool whole = header.offset == header.total;
  if (whole != (header.watermark != 0)) {
    return Status(Code::kProtocol, "written bytes with a number that does not fit");
  }
  {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    Incoming* const in = state_.incoming.find(header.transfer);
    if (in != nullptr && (!in->written || header.total != in->total)) {
      return Status(Code::kProtocol, "written bytes of a transfer that asked for none");
    }
    // A transfer that takes no bytes any more has failed or ends. A thread waits for it, perhaps.
    if (in != nullptr && in->claimed == 0) {
      if (state_.listener.writes != nullptr) state_.listener.writes(state_.listener.user);
      in->claimed = in->received = header.offset;
      if (whole) state_.incoming.remove(header.transfer);
    }
  }
  return whole ? complete(header.watermark) : Status();
}

bool BulkDownloads::outstanding(ByteView memory) const noexcept {
  if (!outstanding()) return false;
  const std::lock_guard<std::mutex> lock(state_.mutex);
  return state_.incoming.outstanding(memory);
}

bool BulkDownloads::cancel(std::uint64_t transfer) {
  Lock lock(state_.mutex);
  Incoming* in = state_.incoming.find(transfer);
  if (in == nullptr) return false;
  in->close();
  // Bounded by the life of the connection: its end ends a receive in progress.
  state_.write_done.wait(lock, [&] {
    in = state_.incoming.find(transfer);
    return in == nullptr || in->writers == 0;
  });
  if (in == nullptr) return false;
  const std::uint64_t watermark = in->watermark;
  state_.use.dropped(*in);
  if (in->written) state_.completed.notify_all();
  state_.incoming.remove(transfer);
  lock.unlock();
  // If its completion has come, over another connection than some of its bytes, other threads wait
  // for it.
  if (watermark != 0) {
    if (Status status = complete(watermark); !status.ok()) {
      state_.listener.failed(state_.listener.user, std::move(status));
    }
  }
  return true;
}

// Waits until transfers 1 to `behind` have arrived. The worker sent them before this chunk, over
// any connection. This cannot deadlock: none of their chunks follows a chunk that waits for them.
// What the earliest chunk waits for has therefore arrived.
Status BulkDownloads::await_turn(std::uint64_t behind) {
  Lock lock(state_.mutex);
  if (behind > state_.last_transfer.load(std::memory_order_acquire)) {
    return Status(Code::kProtocol, "a chunk behind transfers that were never begun");
  }
  state_.completed.wait(lock,
                        [&] { return state_.ended || state_.completions.through() >= behind; });
  return state_.completions.through() >= behind ? Status()
                                                : Status(Code::kPeerGone, "the session has ended");
}

Status BulkDownloads::complete(std::uint64_t watermark) {
  std::uint64_t through = 0;
  {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    GPURUN_RETURN_IF_ERROR(state_.completions.note(watermark));
    GPURUN_RETURN_IF_ERROR(state_.completions.advance(
        [this](std::uint64_t transfer, ByteView bytes) { return write_whole(transfer, bytes); }));
    through = state_.completions.through();
    state_.completed.notify_all();
    if (state_.outgoing.has_lines())
      state_.to_send.notify_one();  // A transfer that was asked for may have waited.
  }
  state_.listener.completed(state_.listener.user, through);
  return {};
}

// Drops the bytes if the call has failed.
Status BulkDownloads::write_whole(std::uint64_t transfer, ByteView bytes) {
  Incoming* const in = state_.incoming.find(transfer);
  if (in == nullptr) return {};
  if (bytes.size() != in->total) {
    return Status(Code::kProtocol, "a transfer of another size than was asked for");
  }
  if (in->claimed != 0) return {};
  if (state_.listener.writes != nullptr) state_.listener.writes(state_.listener.user);
  write_box(in->destination, 0, bytes);
  in->claimed = in->received = in->total;
  state_.use.received(*in, in->total);
  state_.incoming.remove(transfer);
  return {};
}

Result<bool> BulkDownloads::take_whole(std::uint64_t transfer, std::uint64_t number,
                                       ByteView bytes) {
  if (transfer > state_.last_transfer.load(std::memory_order_acquire)) {
    return Status(Code::kProtocol, "bytes of a transfer that was never begun");
  }
  if (bytes.size() > limits::kItemCopyBytesMax) {
    return Status(Code::kProtocol,
                  "a copy of " + std::to_string(bytes.size()) + " bytes on the log");
  }
  {
    const std::lock_guard<std::mutex> lock(state_.mutex);
    if (state_.ended) return Status(Code::kPeerGone, "the session has ended");
    if (state_.completions.has(number)) {
      return Status(Code::kProtocol, "completion " + std::to_string(number) + " comes twice");
    }
    if (number != state_.completions.through() + 1)
      return state_.completions.keep(number, transfer, bytes);
    GPURUN_RETURN_IF_ERROR(write_whole(transfer, bytes));
  }
  GPURUN_RETURN_IF_ERROR(complete(number));
  return true;
}

std::optional<std::uint64_t> BulkDownloads::await_completion(std::uint64_t behind,
                                                             std::chrono::milliseconds at_most) {
  Lock lock(state_.mutex);
  state_.completed.wait_for(lock, at_most,
                            [&] { return state_.ended || state_.completions.through() > behind; });
  return state_.ended ? std::nullopt : std::optional(state_.completions.through());
}

}  // namespace gpurun::client
