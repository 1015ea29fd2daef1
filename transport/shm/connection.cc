// Connection in shared memory: bytes go through the rings, and the socket carries wake-ups and the
// end.
#include "transport/shm/connection.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "transport/kept_bytes.h"
#include "transport/part_cursor.h"
#include "transport/shm/sleeper.h"
#include "transport/shm/watch.h"
#include "transport/sockets/connection.h"

namespace gpurun::transport::shm {
namespace {

// How often a writer that sleeps at a full ring checks for the reader's death: a killed process
// cannot wake it.
constexpr std::chrono::milliseconds kSlice{100};
constexpr std::size_t kPiecesMax = 16;
// One of this many polls asks the socket too, because a killed process cannot mark the ring as
// closed. So does the first poll after a watch woke a thread.
constexpr unsigned kLooksAtRing = 256;

class ShmConnection final : public Connection {
 public:
  ShmConnection(std::unique_ptr<sockets::SocketConnection> socket, SharedMemory memory, Side side)
      : socket_(std::move(socket)),
        memory_(std::move(memory)),
        out_ring_(side == Side::kOffered ? memory_.to_taker() : memory_.to_offerer()),
        in_ring_(side == Side::kOffered ? memory_.to_offerer() : memory_.to_taker()),
        writer_(out_ring_),
        reader_(in_ring_),
        sleeper_(reader_, in_ring_),
        description_("shared memory, by " + socket_->description()) {
    capabilities_.same_host = true;
    capabilities_.shares_memory = true;
  }
  ~ShmConnection() override { shut_down(); }

  const Capabilities& capabilities() const override { return capabilities_; }
  const std::string& description() const override { return description_; }
  int fd() const noexcept override { return socket_->fd(); }

  Status send(std::span<const ByteView> parts, Deadline deadline) override;
  Result<std::size_t> send_some(std::span<const ByteView> parts) override;
  Result<std::size_t> receive(MutableBytes into, std::size_t bytes_min, Deadline deadline) override;
  Result<std::size_t> receive_some(MutableBytes into, bool again) override;
  bool holds_received() const noexcept override { return !kept_.empty(); }
  void shut_down() noexcept override;
  Result<std::unique_ptr<Watch>> watch() override;

 private:
  Status gone(const char* doing);
  Status nobody_reads();
  Status broken();
  Result<std::size_t> put_some(PartCursor& cursor);
  Status wake_reader();
  Status await_room(Deadline deadline);
  Result<std::size_t> take(MutableBytes into);
  Status sleep(Deadline deadline);
  Status heed_socket();
  bool has_ended() const noexcept { return ended_ || is_closed(in_ring_); }

  const std::unique_ptr<sockets::SocketConnection> socket_;
  const SharedMemory memory_;
  const Ring out_ring_;
  const Ring in_ring_;
  RingWriter writer_;  // The sender's.
  RingReader reader_;  // The receiver's, as the next three.
  Sleeper sleeper_;
  KeptBytes kept_;
  bool ended_ = false;  // The socket has ended. Bytes in the ring still count.
  unsigned looks_ = 0;
  std::atomic<bool> gone_{false};
  std::atomic<ShmWatch*> watch_{nullptr};
  std::string description_;
  Capabilities capabilities_;
};

Status ShmConnection::gone(const char* doing) {
  if (socket_->taken_away()) return socket_->gone_by_the_program();
  const bool ours = gone_.load();
  shut_down();
  return Status(Code::kPeerGone,
                description_ + (ours ? ": closed while " : ": closed by the peer while ") + doing);
}

// Leaves the ring open, because the other end's last bytes can still be received. receive() finds
// the end itself.
Status ShmConnection::nobody_reads() {
  if (socket_->taken_away()) return socket_->gone_by_the_program();
  return Status(Code::kPeerGone, description_ + ": closed by the peer while sending");
}

Status ShmConnection::broken() {
  shut_down();
  return Status(Code::kPeerGone, description_ + ": the other end has broken the ring");
}

// Puts as much of a message as fits now, at most a step. A sleeping reader is woken later, once for
// all steps.
Result<std::size_t> ShmConnection::put_some(PartCursor& cursor) {
  if (gone_.load(std::memory_order_relaxed)) return gone("sending");
  if (is_closed(out_ring_)) return nobody_reads();
  const std::optional<std::size_t> room = writer_.room();
  if (!room) return broken();
  std::array<ByteView, kPiecesMax> pieces;
  std::size_t bytes = 0;
  const std::size_t count = cursor.look(pieces, std::min(*room, kStepBytes), &bytes);
  if (bytes == 0) return std::size_t{0};
  for (std::size_t i = 0; i < count; ++i) writer_.put(pieces[i]);
  cursor.advance(bytes);
  writer_.publish();
  return bytes;
}

Status ShmConnection::wake_reader() {
  if (!writer_.has_to_wake()) return {};
  static constexpr std::byte kWake{1};
  const ByteView wake(&kWake, 1);
  // A wake-up byte that finds no room may be dropped: the many unread ones before it also wake the
  // reader.
  const Result<std::size_t> woken = socket_->send_some({&wake, 1});
  return woken.status().code() == Code::kPeerGone ? Status() : woken.status();
}

Status ShmConnection::await_room(Deadline deadline) {
  GPURUN_RETURN_IF_ERROR(wake_reader());
  if (deadline.passed()) return Status(Code::kDeadline, description_ + ": sending");
  const std::chrono::nanoseconds slice = kSlice;
  writer_.sleep(deadline.is_never() ? slice : std::min(slice, deadline.remaining()));
  pollfd end = {socket_->fd(), POLLRDHUP, 0};
  const bool dead = poll(&end, 1, 0) > 0 && writer_.room() == std::optional<std::size_t>(0);
  return dead ? nobody_reads() : Status();
}

Status ShmConnection::send(std::span<const ByteView> parts, Deadline deadline) {
  PartCursor cursor(parts);
  while (!cursor.done()) {
    const Result<std::size_t> put = put_some(cursor);
    if (!put.ok()) return put.status();
    if (*put != 0) continue;
    const Status waited = await_room(deadline);
    if (waited.code() == Code::kDeadline && cursor.started()) {
      shut_down();
      return Status(Code::kPeerGone, description_ + ": the deadline cut a message in half");
    }
    GPURUN_RETURN_IF_ERROR(waited);
  }
  GPURUN_RETURN_IF_ERROR(wake_reader());
  return gone_.load(std::memory_order_relaxed) ? gone("sending") : Status();
}

Result<std::size_t> ShmConnection::send_some(std::span<const ByteView> parts) {
  PartCursor cursor(parts);
  std::size_t sent = 0;
  while (!cursor.done()) {
    const Result<std::size_t> put = put_some(cursor);
    if (!put.ok()) return put.status();
    if (*put == 0) break;
    sent += *put;
  }
  GPURUN_RETURN_IF_ERROR(wake_reader());
  return sent;
}

Result<std::size_t> ShmConnection::take(MutableBytes into) {
  const std::optional<std::size_t> taken = reader_.take(into);
  if (!taken) return broken();
  return *taken;
}

// Reads the wake-up bytes that have come over the socket, without waiting.
Status ShmConnection::heed_socket() {
  std::array<std::byte, 64> wakes;
  const Result<std::size_t> heard = socket_->receive_some(wakes, false);
  if (heard.ok()) {
    sleeper_.heard(*heard);
    return {};
  }
  if (heard.status().code() != Code::kPeerGone) return heard.status();
  ended_ = true;
  return {};
}

// Sleeps until bytes are there, the end, or the deadline.
Status ShmConnection::sleep(Deadline deadline) {
  if (!sleeper_.go_to_sleep()) {
    if (ShmWatch* const watch = watch_.load(std::memory_order_acquire); watch != nullptr) {
      watch->receiver_sleeps();
    }
    std::array<std::byte, 64> wakes;
    const Result<std::size_t> heard = socket_->receive(wakes, 1, deadline);
    if (heard.ok()) sleeper_.heard(*heard);
    if (heard.status().code() == Code::kPeerGone) ended_ = true;
    sleeper_.wake_up();
    if (!heard.ok() && !ended_) return heard.status();
    return {};
  }
  sleeper_.wake_up();
  return {};
}

Result<std::size_t> ShmConnection::receive(MutableBytes into, std::size_t bytes_min,
                                           Deadline deadline) {
  if (bytes_min == 0 || bytes_min > into.size()) {
    return Status(Code::kInvalidArgument, description_ + ": receive of no bytes");
  }
  std::size_t got = kept_.take(into);
  if (sleeper_.is_owed()) GPURUN_RETURN_IF_ERROR(heed_socket());
  bool late = false;
  while (got < bytes_min) {
    if (gone_.load(std::memory_order_relaxed)) return gone("receiving");
    // Read before the ring: bytes that were written before the end are then in it.
    const bool ended = has_ended();
    const Result<std::size_t> taken = take(into.subspan(got));
    if (!taken.ok()) return taken.status();
    got += *taken;
    if (*taken != 0) continue;
    if (ended) return gone("receiving");
    // The deadline also ends a series of spurious wake-ups.
    const Status slept =
        late ? Status(Code::kDeadline, description_ + ": receiving") : sleep(deadline);
    if (slept.code() == Code::kDeadline) {
      kept_.put_back(into.first(got));
    }
    GPURUN_RETURN_IF_ERROR(slept);
    late = deadline.passed();
  }
  return got;
}

Result<std::size_t> ShmConnection::receive_some(MutableBytes into, bool again) {
  if (into.empty() || !kept_.empty()) return Connection::receive_some(into, again);
  if (gone_.load(std::memory_order_relaxed)) return gone("receiving");
  if (!again && socket_->seems_taken_away()) return socket_->gone_by_the_program();
  const bool asks = ++looks_ % kLooksAtRing == 0 || sleeper_.is_asleep();
  if (asks || sleeper_.is_owed()) GPURUN_RETURN_IF_ERROR(heed_socket());
  const bool ended = has_ended();
  const Result<std::size_t> taken = take(into);
  if (!taken.ok() || *taken != 0) return taken;
  if (ended) return gone("receiving");
  return std::size_t{0};
}

void ShmConnection::shut_down() noexcept {
  gone_.store(true);
  close(out_ring_);
  close(in_ring_);
  socket_->shut_down();
}

Result<std::unique_ptr<Watch>> ShmConnection::watch() {
  auto socket = sockets::SocketWatch::of(*socket_, socket_->fd_min());
  if (!socket.ok()) return socket.status();
  return std::unique_ptr<Watch>(new ShmWatch(*std::move(socket), sleeper_, watch_));
}

}  // namespace

Result<std::unique_ptr<Connection>> share(std::unique_ptr<Connection> socket, SharedMemory memory,
                                          Side side) {
  if (!memory.is_there()) return socket;
  auto* const concrete = dynamic_cast<sockets::SocketConnection*>(socket.get());
  if (concrete == nullptr) {
    return Status(Code::kInvalidArgument, socket->description() + ": no local socket");
  }
  static_cast<void>(socket.release());
  return std::unique_ptr<Connection>(new ShmConnection(
      std::unique_ptr<sockets::SocketConnection>(concrete), std::move(memory), side));
}

Status share_offered(std::unique_ptr<Connection>& connection, Deadline deadline, UniqueFd* file) {
  if (!is_local(*connection)) return {};
  Result<SharedMemory> memory = take_offer(*connection, deadline, file);
  if (!memory.ok()) return memory.status();
  auto shared = share(std::move(connection), *std::move(memory), Side::kTook);
  if (!shared.ok()) return shared.status();
  connection = *std::move(shared);
  return {};
}

}  // namespace gpurun::transport::shm
