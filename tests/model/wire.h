// Wire: the far end of a session in the model. It has connections that hold bytes, and a worker's
// view of them. Its own memory is hidden from the model (Quiet). The model follows only the
// session's memory.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "protocol/log/frame.h"
#include "protocol/log/record.h"
#include "tests/model/model.h"
#include "transport/transport.h"

namespace gpurun::model {

inline void append(Bytes& to, ByteView bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

struct Wire {
  struct Record {
    protocol::RecordHeader header;
    Bytes payload;
    const std::byte* place;  // In the session's ring.
    Bytes copy;              // A copy of the whole record.
  };

  bool down = false;
  Passage outwards, inwards;
  Bytes to_client;
  std::deque<Record> records;    // Not read by the worker yet.
  std::vector<Record> retained;  // Sent, not acknowledged.
  std::uint64_t sent = 0;        // The last record's number.
  std::uint64_t acknowledged = 0;
  std::uint64_t items = 0;  // Reply items.
  std::uint64_t acknowledged_items = 0;
  std::uint64_t empty_frames = 0;

  // Takes a frame of the client's log channel. Its records lie at `places`.
  void take_frame(const protocol::FrameHeader& header, ByteView payload,
                  const std::vector<const std::byte*>& places) {
    check(header.acknowledged <= items, "the session acknowledges a reply that was never sent");
    acknowledged_items = std::max(acknowledged_items, header.acknowledged);
    if (header.kind != protocol::FrameKind::kRecords) {
      ++empty_frames;
      return;
    }
    check(header.sequence == sent + 1, "a frame's first number has a gap before it");
    std::size_t at = 0;
    while (at < payload.size()) {
      const Result<protocol::RecordView> record = protocol::parse_record(payload.subspan(at));
      if (!record.ok()) violated("a torn record: " + record.status().to_string());
      check(record->header.sequence == ++sent, "a number is missing, or comes twice");
      const std::size_t bytes = record->header.bytes;
      const ByteView whole = payload.subspan(at, bytes);
      records.push_back({record->header, Bytes(record->payload.begin(), record->payload.end()),
                         places[at / 8], Bytes(whole.begin(), whole.end())});
      retained.push_back(records.back());
      at += bytes;
    }
  }

  // Functions of the worker. Each lets other threads run first.
  void say(protocol::FrameKind kind, ByteView payload, std::uint64_t sequence) {
    protocol::FrameHeader header;
    header.kind = kind;
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    header.sequence = sequence;
    header.acknowledged = acknowledged;
    inwards.in();
    append(to_client, bytes_of(header));
    append(to_client, payload);
  }
  void item(protocol::ReplyHeader header, ByteView payload = {}) {
    header.sequence = ++items;
    header.bytes = static_cast<std::uint32_t>(protocol::reply_bytes(payload.size()));
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    Bytes whole;
    append(whole, bytes_of(header));
    append(whole, payload);
    whole.resize(header.bytes);
    say(protocol::FrameKind::kReplies, whole, header.sequence);
  }
  void reply(const Record& to, std::uint64_t watermark = 0) {
    protocol::ReplyHeader header;
    header.kind = protocol::ReplyKind::kReply;
    header.opcode = to.header.opcode;
    header.lane = to.header.lane;
    header.result = static_cast<std::int32_t>(to.header.sequence);  // So that the test recognises
                                                                    // it.
    header.call_sequence = to.header.sequence;
    header.watermark = watermark;
    item(header);
  }
  // Checks that records without acknowledgement are still intact, because a resumed session would
  // send them again.
  void acknowledge(std::uint64_t sequence) {
    for (const Record& record : retained) {
      check(std::memcmp(record.place, record.copy.data(), record.copy.size()) == 0,
            "a record was overwritten before it was acknowledged");
    }
    acknowledged = sequence;
    std::erase_if(retained, [&](const Record& each) { return each.header.sequence <= sequence; });
  }
};

// The session's end of a connection. Without a wire it carries nothing until it is shut down.
class WireEnd final : public transport::Connection {
 public:
  explicit WireEnd(Wire* wire) : wire_(wire) {}

  const transport::Capabilities& capabilities() const override { return capabilities_; }
  const std::string& description() const override { return description_; }

  Status send(std::span<const ByteView> parts, Deadline) override {
    const Quiet quiet;
    check(!sending_, "two threads send on one connection");
    sending_ = true;
    point();
    // Reads the bytes twice, because the kernel may be slow.
    Bytes bytes;
    std::vector<const std::byte*> places;
    for (const ByteView part : parts) {
      reads(part.data(), part.size());
      append(bytes, part);
      for (std::size_t at = 0; at < part.size(); at += 8) places.push_back(part.data() + at);
    }
    point();
    std::size_t at = 0;
    for (const ByteView part : parts) {
      reads(part.data(), part.size());
      check(std::memcmp(part.data(), bytes.data() + at, part.size()) == 0,
            "what is sent was changed meanwhile");
      at += part.size();
    }
    sending_ = false;
    if (wire_ == nullptr || wire_->down || down_) return Status(Code::kPeerGone, "it is down");
    protocol::FrameHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    places.erase(places.begin(), places.begin() + sizeof header / 8);
    wire_->outwards.in();
    wire_->take_frame(header, ByteView(bytes).subspan(sizeof header), places);
    return {};
  }

  // Time does not advance here, so a wait never reaches its deadline. Only a deadline that has
  // already passed counts.
  Result<std::size_t> receive(MutableBytes into, std::size_t bytes_min,
                              Deadline deadline) override {
    const Quiet quiet;
    check(!receiving_, "two threads receive on one connection");
    receiving_ = true;
    if (deadline.passed()) {
      point();
    } else {
      until([this, bytes_min] { return gone() || available() >= bytes_min; },
            "bytes of the worker");
    }
    receiving_ = false;
    if (available() < bytes_min && !gone()) return Status(Code::kDeadline, "nothing came");
    if (available() < bytes_min) return Status(Code::kPeerGone, "it is down");
    const std::size_t count = std::min(into.size(), available());
    wire_->inwards.out();
    writes(into.data(), count);
    std::memcpy(into.data(), wire_->to_client.data(), count);
    wire_->to_client.erase(wire_->to_client.begin(),
                           wire_->to_client.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }

  Result<std::unique_ptr<transport::Watch>> watch() override {
    return std::unique_ptr<transport::Watch>(std::make_unique<EndWatch>(*this));
  }

  void shut_down() noexcept override {
    const Quiet quiet;
    point();
    down_ = true;
    if (wire_ != nullptr) wire_->down = true;
  }

 private:
  // A watch may report once too often, so this one reports all bytes that have arrived.
  class EndWatch final : public transport::Watch {
   public:
    explicit EndWatch(const WireEnd& end) : end_(end) {}
    Status wait(Deadline) override {
      const Quiet quiet;
      const auto ready = [this] {
        if (end_.gone()) return pauses_ == 0 || !told_end_;
        return pauses_ == 0 && end_.available() != 0;
      };
      until(ready, "something to receive");
      told_end_ = end_.gone();
      return {};
    }
    void pause() noexcept override {
      const Quiet quiet;
      point();
      ++pauses_;
    }
    void resume() noexcept override {
      const Quiet quiet;
      point();
      --pauses_;
    }

   private:
    const WireEnd& end_;
    int pauses_ = 0;
    bool told_end_ = false;
  };

  bool gone() const { return down_ || (wire_ != nullptr && wire_->down); }
  std::size_t available() const { return wire_ == nullptr ? 0 : wire_->to_client.size(); }

  Wire* wire_;
  bool down_ = false;
  bool sending_ = false;
  bool receiving_ = false;
  const transport::Capabilities capabilities_;
  const std::string description_ = "model";
};

}  // namespace gpurun::model
