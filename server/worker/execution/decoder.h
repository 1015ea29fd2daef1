// Decoder: the reader of the client's frames on the log channel. It passes their records on in log
// order, each exactly once. It drops records that it has had before, as in a replay after a cut.
//
// One thread, in run().
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "base/brief_spin.h"
#include "base/result.h"
#include "protocol/log/frame_reader.h"
#include "protocol/log/packed_records.h"
#include "protocol/log/record.h"
#include "server/worker/execution/outbox.h"
#include "transport/transport.h"

namespace gpurun::server {

// The receiver of decoded calls.
class CallSink {
 public:
  virtual ~CallSink() = default;
  // Calls in log order, without gaps or repetitions. Payloads are valid only during the call. A
  // failure ends the session.
  virtual Status accept(std::span<const protocol::RecordView> calls) = 0;
  // A frame of `records` calls came. accept() gets them before or after this.
  virtual void received(std::size_t /*records*/, std::size_t /*bytes*/) noexcept {}
  // Nothing more came for a moment. The decoder is about to sleep.
  virtual void idle() {}
};

class Decoder {
 public:
  // Borrows all references, which outlive it.
  // Polls for `spin` before it sleeps.
  Decoder(transport::Connection& log, Outbox& outbox, CallSink& sink,
          std::chrono::milliseconds silence_deadline,
          std::chrono::microseconds spin = BriefSpin::kSpan);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Runs until the client sends its goodbye, and then returns ok.
  //   kPeerGone  the connection ended, or nothing came for the silence deadline.
  //   kProtocol  the client broke the contract. Failures of the sink are returned as they are.
  Status run();

  std::uint64_t taken_through() const noexcept { return taken_; }

 private:
  Result<std::size_t> receive();
  // True: the frame was the goodbye.
  Result<bool> handle(const protocol::Frame& frame);
  // `first` is the number of the first record.
  Status take_records(std::uint64_t first, ByteView records);
  Status hand_on();

  transport::Connection& log_;
  Outbox& outbox_;
  CallSink& sink_;
  const std::chrono::milliseconds silence_deadline_;
  BriefSpin spin_;
  protocol::FrameReader reader_;
  protocol::RecordsUnpacker unpacker_;
  std::vector<protocol::RecordView> calls_;
  std::uint64_t taken_ = 0;
  std::size_t calls_bytes_ = 0;  // Bytes of calls_.
};

}  // namespace gpurun::server
