// Carrier ends: what the model puts below a carried connection. A socket that holds few bytes, and
// a carrier of two small rings. The sockets' own memory is hidden from the model (Quiet). The rings
// are the product's.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "tests/model/model.h"
#include "transport/carrier/connection.h"
#include "transport/shm/ring.h"

namespace gpurun::model {

inline constexpr std::size_t kSocketBytes = 10;
inline constexpr std::size_t kRingBytes = 8;

// One direction of the sockets.
struct Pipe {
  Bytes bytes;
  Passage passage;
  bool ended = false;

  std::size_t room() const { return kSocketBytes - bytes.size(); }
};

class PipeEnd final : public transport::Connection {
 public:
  PipeEnd(Pipe& in, Pipe& out) : in_(in), out_(out) {}

  const transport::Capabilities& capabilities() const override { return capabilities_; }
  const std::string& description() const override { return description_; }

  Status send(std::span<const ByteView> parts, Deadline) override {
    const Quiet quiet;
    for (ByteView part : parts) {
      while (!part.empty()) {
        until([this] { return out_.room() != 0 || out_.ended; }, "room in the socket");
        if (out_.ended) return Status(Code::kPeerGone, "it has ended");
        part = part.subspan(put(part));
      }
    }
    return {};
  }
  Result<std::size_t> send_some(std::span<const ByteView> parts) override {
    const Quiet quiet;
    point();
    if (out_.ended) return Status(Code::kPeerGone, "it has ended");
    std::size_t sent = 0;
    for (const ByteView part : parts) sent += put(part);
    return sent;
  }
  Result<std::size_t> receive(MutableBytes into, std::size_t, Deadline) override {
    const Quiet quiet;
    until([this] { return !in_.bytes.empty() || in_.ended; }, "bytes of the socket");
    return take(into);
  }
  Result<std::size_t> receive_some(MutableBytes into, bool) override {
    const Quiet quiet;
    point();
    if (in_.bytes.empty() && !in_.ended) return std::size_t{0};
    return take(into);
  }
  void shut_down() noexcept override {
    const Quiet quiet;
    point();
    in_.ended = out_.ended = true;
  }

  bool has_bytes() const { return !in_.bytes.empty() || in_.ended; }
  bool has_room() const { return out_.room() != 0 || out_.ended; }

 private:
  std::size_t put(ByteView part) {
    const std::size_t bytes = std::min(part.size(), out_.room());
    reads(part.data(), bytes);
    out_.passage.in();
    out_.bytes.insert(out_.bytes.end(), part.begin(),
                      part.begin() + static_cast<std::ptrdiff_t>(bytes));
    return bytes;
  }
  Result<std::size_t> take(MutableBytes into) {
    if (in_.bytes.empty()) return Status(Code::kPeerGone, "it has ended");
    const std::size_t bytes = std::min(into.size(), in_.bytes.size());
    in_.passage.out();
    writes(into.data(), bytes);
    std::copy_n(in_.bytes.begin(), bytes, into.begin());
    in_.bytes.erase(in_.bytes.begin(), in_.bytes.begin() + static_cast<std::ptrdiff_t>(bytes));
    return bytes;
  }

  Pipe& in_;
  Pipe& out_;
  const transport::Capabilities capabilities_;
  const std::string description_ = "model";
};

class ModelSocket final : public transport::carrier::Socket {
 public:
  ModelSocket(Pipe& in, Pipe& out) : end_(in, out) {}
  transport::Connection& bytes() const noexcept override { return end_; }
  bool taken_away() const noexcept override { return false; }
  bool seems_taken_away() const noexcept override { return false; }
  Status gone_by_the_program() override { return Status(Code::kUnavailable, "never"); }
  void await_room(bool or_bytes, std::chrono::nanoseconds) noexcept override {
    const Quiet quiet;
    until([=, this] { return end_.has_room() || (or_bytes && end_.has_bytes()); },
          "the socket to be ready");
  }
  bool await_bytes(int, bool or_room, std::chrono::nanoseconds) noexcept override {
    const Quiet quiet;
    rest(1);  // A thread that has the turn goes on.
    until([=, this] { return end_.has_bytes() || ((or_room || called_) && end_.has_room()); },
          "the socket to be ready");
    if (end_.has_room()) called_ = false;
    return true;
  }
  void heed_calls() noexcept override {}
  void call_for_room() noexcept override {
    const Quiet quiet;
    point();
    called_ = true;
  }
  bool has_ended() const noexcept override { return false; }
  Result<std::unique_ptr<transport::sockets::SocketWatch>> watch(int) override {
    return Status(Code::kUnavailable, "no watch");
  }
  bool has_bytes() const { return end_.has_bytes(); }
  bool has_room() const { return end_.has_room(); }

 private:
  mutable PipeEnd end_;
  bool called_ = false;
};

// Both rings, in memory that starts as zeros.
struct RingMemory {
  transport::shm::RingState states[2] = {};
  std::byte data[2][kRingBytes] = {};
  transport::shm::Ring ring(int direction) {
    return {&states[direction], data[direction], kRingBytes};
  }
};

// Puts fail behind `puts` bytes, and a take fails once behind `takes`.
class ModelCarrier final : public transport::carrier::Carrier {
 public:
  ModelCarrier(RingMemory& memory, int end, std::size_t puts, std::size_t takes)
      : out_ring_(memory.ring(end)),
        in_ring_(memory.ring(1 - end)),
        writer_(out_ring_),
        reader_(in_ring_),
        puts_(puts),
        takes_(takes) {}

  const char* name() const noexcept override { return "model"; }
  transport::carrier::Moved put(transport::PartCursor& cursor) override {
    using transport::carrier::Found;
    if (writer_.written() >= puts_) return {0, Found::kFailed};
    const auto room = writer_.room();
    if (!room) return {0, Found::kBroken};
    ByteView piece;
    std::size_t bytes = 0;
    if (cursor.look({&piece, 1}, std::min<std::size_t>(*room, 3), &bytes) == 0) return {};
    writer_.put(piece);
    cursor.advance(bytes);
    writer_.publish();
    return {bytes, Found::kWorks};
  }
  bool has_to_wake() noexcept override { return writer_.has_to_wake(); }
  void sleep_as_sender(std::chrono::nanoseconds span, const std::atomic<unsigned>& wanted,
                       bool for_room) noexcept override {
    writer_.sleep(span, wanted, for_room);
  }
  bool is_full() noexcept override { return writer_.room() == std::optional<std::size_t>(0); }
  std::uint64_t bytes_put() const noexcept override { return writer_.written(); }
  bool find_untaken(std::uint64_t taken, std::array<ByteView, 2>* untaken) noexcept override {
    return writer_.find_untaken(taken, untaken);
  }
  transport::carrier::Moved take(MutableBytes into) noexcept override {
    using transport::carrier::Found;
    if (!failed_ && reader_.read() >= takes_) {
      failed_ = true;
      return {0, Found::kFailed};
    }
    const auto taken = reader_.take(into.first(std::min<std::size_t>(into.size(), 3)));
    if (!taken) return {0, Found::kBroken};
    return {*taken, Found::kWorks};
  }
  std::uint64_t bytes_taken() const noexcept override { return reader_.read(); }
  bool skip_to(std::uint64_t put) noexcept override { return reader_.skip_to(put); }
  bool has_bytes() const noexcept override { return reader_.has_bytes(); }
  bool announce_sleep() noexcept override { return reader_.announce_sleep(); }
  bool announce_wake() noexcept override { return reader_.announce_wake(); }
  bool sleep_is_announced() const noexcept override { return reader_.sleep_is_announced(); }
  void wake_sender() noexcept override { writer_.wake(); }
  void close() noexcept override {
    transport::shm::close(out_ring_);
    transport::shm::close(in_ring_);
  }
  bool is_closed_out() const noexcept override { return is_closed(out_ring_); }
  bool is_closed_in() const noexcept override { return is_closed(in_ring_); }

 private:
  const transport::shm::Ring out_ring_;
  const transport::shm::Ring in_ring_;
  transport::shm::RingWriter writer_;
  transport::shm::RingReader reader_;
  const std::size_t puts_;
  const std::size_t takes_;
  bool failed_ = false;
};

}  // namespace gpurun::model
