// Decoder: reads the client's frames from the log channel and hands their records on, each exactly
// once and in log order. What came before (a replay after a cut) is dropped by its number.
//
// One thread, in run().
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "base/brief_spin.h"
#include "base/result.h"
#include "protocol/frame_reader.h"
#include "protocol/packed_records.h"
#include "protocol/record.h"
#include "server/worker/outbox.h"
#include "transport/transport.h"

namespace gpurun::server {

// Where decoded calls go.
class CallSink {
 public:
  virtual ~CallSink() = default;
  // Calls in log order, without gaps or repetitions. Payloads are valid during the call only. A
  // failure ends the session.
  virtual Status accept(std::span<const protocol::RecordView> calls) = 0;
  // A frame of so many calls came; they are accepted before or after this.
  virtual void received(std::size_t /*records*/, std::size_t /*bytes*/) noexcept {}
  // Nothing more came for a moment: the caller is about to sleep.
  virtual void idle() {}
};

class Decoder {
 public:
  // Borrows all; they outlive it.
  Decoder(transport::Connection& log, Outbox& outbox, CallSink& sink,
          std::chrono::milliseconds silence_deadline);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Until the client says goodbye: ok.
  //   kPeerGone  the connection ended, or nothing came for the silence deadline.
  //   kProtocol  the client broke the contract; also what the sink returned.
  Status run();

  std::uint64_t taken_through() const noexcept { return taken_; }

 private:
  Result<std::size_t> receive();
  // True: that was the goodbye.
  Result<bool> handle(const protocol::Frame& frame);
  // `first`: the number of the first one.
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
  std::size_t calls_bytes_ = 0;  // Of calls_.
};

}  // namespace gpurun::server
