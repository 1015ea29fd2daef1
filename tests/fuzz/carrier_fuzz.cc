// Carrier: a peer that sends any bytes over the socket of a carried connection, and writes anything
// into the rings that both map. The connection ends or goes on, and reads and writes nothing else.
#include <algorithm>
#include <memory>

#include "tests/fuzz/fuzz_target.h"
#include "transport/carrier/connection.h"
#include "transport/carrier/control.h"
#include "transport/shm/ring.h"

namespace {

using namespace gpurun;
using transport::carrier::Found;
using transport::carrier::Moved;

constexpr std::size_t kRingBytes = 64;

struct Pipes {
  Bytes to_us;
  std::size_t room = 0;  // For what we send.
  bool ended = false;
};

class PipeEnd final : public transport::Connection {
 public:
  explicit PipeEnd(Pipes& pipes) : pipes_(pipes) {}

  const transport::Capabilities& capabilities() const override { return capabilities_; }
  const std::string& description() const override { return description_; }
  Status send(std::span<const ByteView> parts, Deadline) override {
    std::size_t bytes = 0;
    for (const ByteView part : parts) bytes += part.size();
    if (pipes_.ended) return Status(Code::kPeerGone, "it has ended");
    if (bytes > pipes_.room) return Status(Code::kDeadline, "no room");
    pipes_.room -= bytes;
    return {};
  }
  Result<std::size_t> send_some(std::span<const ByteView> parts) override {
    if (pipes_.ended) return Status(Code::kPeerGone, "it has ended");
    std::size_t sent = 0;
    for (const ByteView part : parts) {
      for (const std::byte each : part) {
        if (pipes_.room == 0) return sent;
        sum_ ^= std::to_integer<unsigned>(each);  // Reads it.
        --pipes_.room;
        ++sent;
      }
    }
    return sent;
  }
  Result<std::size_t> receive(MutableBytes into, std::size_t, Deadline) override {
    const Result<std::size_t> got = receive_some(into, false);
    if (got.ok() && *got == 0) return Status(Code::kDeadline, "nothing has come");
    return got;
  }
  Result<std::size_t> receive_some(MutableBytes into, bool) override {
    if (pipes_.to_us.empty() && pipes_.ended) return Status(Code::kPeerGone, "it has ended");
    const std::size_t bytes = std::min(into.size(), pipes_.to_us.size());
    std::copy_n(pipes_.to_us.begin(), bytes, into.begin());
    pipes_.to_us.erase(pipes_.to_us.begin(),
                       pipes_.to_us.begin() + static_cast<std::ptrdiff_t>(bytes));
    return bytes;
  }
  void shut_down() noexcept override { pipes_.ended = true; }

 private:
  Pipes& pipes_;
  unsigned sum_ = 0;
  const transport::Capabilities capabilities_;
  const std::string description_ = "fuzz";
};

class FuzzSocket final : public transport::carrier::Socket {
 public:
  explicit FuzzSocket(Pipes& pipes) : pipes_(pipes), end_(pipes) {}

  transport::Connection& bytes() const noexcept override { return end_; }
  bool taken_away() const noexcept override { return false; }
  bool seems_taken_away() const noexcept override { return false; }
  Status gone_by_the_program() override { return Status(Code::kUnavailable, "never"); }
  void await_room(bool, std::chrono::nanoseconds) noexcept override {}
  bool await_bytes(int, bool, std::chrono::nanoseconds) noexcept override { return true; }
  void heed_calls() noexcept override {}
  void call_for_room() noexcept override {}
  bool has_ended() const noexcept override { return pipes_.ended; }
  Result<std::unique_ptr<transport::sockets::SocketWatch>> watch(int) override {
    return Status(Code::kUnavailable, "no watch");
  }

 private:
  Pipes& pipes_;
  mutable PipeEnd end_;
};

struct Memory {
  transport::shm::RingState states[2] = {};
  std::byte data[2][kRingBytes] = {};
  transport::shm::Ring ring(int direction) {
    return {&states[direction], data[direction], kRingBytes};
  }
};

class FuzzCarrier final : public transport::carrier::Carrier {
 public:
  explicit FuzzCarrier(Memory& memory)
      : out_(memory.ring(0)), in_(memory.ring(1)), writer_(out_), reader_(in_) {}
  const char* name() const noexcept override { return "fuzz"; }
  Moved put(transport::PartCursor& cursor) override {
    const auto room = writer_.room();
    if (!room) return {0, Found::kBroken};
    ByteView piece;
    std::size_t bytes = 0;
    if (cursor.look({&piece, 1}, *room, &bytes) == 0) return {};
    writer_.put(piece);
    cursor.advance(bytes);
    writer_.publish();
    return {bytes, Found::kWorks};
  }
  bool has_to_wake() noexcept override { return writer_.has_to_wake(); }
  void sleep_as_sender(std::chrono::nanoseconds, const std::atomic<unsigned>& wanted,
                       bool for_room) noexcept override {
    writer_.sleep(std::chrono::nanoseconds(0), wanted, for_room);
  }
  bool is_full() noexcept override { return writer_.room() == std::optional<std::size_t>(0); }
  std::uint64_t bytes_put() const noexcept override { return writer_.written(); }
  bool find_untaken(std::uint64_t taken, std::array<ByteView, 2>* untaken) noexcept override {
    return writer_.find_untaken(taken, untaken);
  }
  Moved take(MutableBytes into) noexcept override {
    const auto taken = reader_.take(into);
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
    transport::shm::close(out_);
    transport::shm::close(in_);
  }
  bool is_closed_out() const noexcept override { return is_closed(out_); }
  bool is_closed_in() const noexcept override { return is_closed(in_); }

 private:
  const transport::shm::Ring out_;
  const transport::shm::Ring in_;
  transport::shm::RingWriter writer_;
  transport::shm::RingReader reader_;
};

// A position near `now`, or any.
std::uint64_t position(fuzz::Input& input, std::uint64_t now) {
  const auto way = input.number<std::uint8_t>();
  return way < 200 ? now + way % (2 * kRingBytes) - kRingBytes / 2 : input.number<std::uint64_t>();
}

// A record with counts that are often possible, or any bytes.
void say(fuzz::Input& input, const Memory& memory, Pipes& pipes) {
  using transport::carrier::Kind;
  const auto way = input.number<std::uint8_t>();
  if (way >= 240) {
    const ByteView any = input.take(way - 239U);
    pipes.to_us.insert(pipes.to_us.end(), any.begin(), any.end());
    return;
  }
  transport::carrier::Record record;
  record.kind = static_cast<Kind>(way % 6 + 1);
  record.entry = way / 60 + 1U;
  const std::uint64_t now = record.kind == Kind::kLeave ? memory.states[0].written.load()
                                                        : memory.states[1].written.load();
  record.count =
      record.kind == Kind::kData ? input.number<std::uint8_t>() + 1U : position(input, now);
  std::array<std::byte, transport::carrier::kRecordBytesMax> bytes;
  const std::size_t count = write_record(record, &bytes);
  pipes.to_us.insert(pipes.to_us.end(), bytes.begin(),
                     bytes.begin() + static_cast<std::ptrdiff_t>(count));
  if (record.kind != Kind::kData) return;
  const ByteView data = input.take(record.count);
  pipes.to_us.insert(pipes.to_us.end(), data.begin(), data.end());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  Memory memory;
  Pipes pipes;
  transport::carrier::CarrierOptions options;
  options.may_change = input.number<std::uint8_t>() % 8 != 0;
  auto ours = transport::carrier::carry(std::make_unique<FuzzSocket>(pipes),
                                        std::make_unique<FuzzCarrier>(memory), {}, options);
  bool gone = false;
  while (!input.empty()) {
    const auto step = input.number<std::uint8_t>();
    switch (step % 8) {
      case 0:
      case 1:
        say(input, memory, pipes);
        break;
      case 2: {
        auto& written = memory.states[1].written;
        written.store(position(input, written.load()));
        break;
      }
      case 3: {
        auto& read = memory.states[0].read;
        read.store(position(input, read.load()));
        break;
      }
      case 4: {
        const Bytes sent(input.number<std::uint8_t>() + 1U, std::byte{3});
        const ByteView part(sent);
        (void)ours->send({&part, 1}, Deadline::in(std::chrono::nanoseconds(0)));
        break;
      }
      case 5: {
        Bytes into(100);
        const auto got = ours->receive_some(into, step >= 128);
        GPURUN_FUZZ_CHECK(!gone || !got.ok());  // The end is final.
        gone = !got.ok();
        break;
      }
      case 6:
        (void)(step >= 128 ? ours->leave() : ours->enter());
        pipes.room += step / 8;
        break;
      default:
        memory.states[step >= 128 ? 0 : 1].reader_sleeps.store(1);
        if (step == 255) pipes.ended = true;
        break;
    }
  }
  pipes.room = std::size_t{1} << 20;
  return 0;
}
