// FakeWorker: the other end of a session, scripted by a test. It uses the protocol's own code over
// the loopback transport. Every wait is bounded, and a wait that fails also fails the test.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "client/session/session.h"
#include "protocol/log/frame_reader.h"
#include "transport/loopback/connection.h"

namespace gpurun::client {

class FakeWorker {
 public:
  struct Record {
    protocol::RecordHeader header;
    Bytes payload;
  };

  // Makes both ends. Pass `channels()` to Session::start().
  FakeWorker() {
    auto log = transport::loopback::connect_pair();
    auto bulk = transport::loopback::connect_pair();
    channels_.log = std::move(log.first);
    channels_.bulk.push_back(std::move(bulk.first));
    channels_.server_name = "fake:1";
    log_ = std::move(log.second);
    bulk_ = std::move(bulk.second);
  }
  Session::Channels channels() { return std::move(channels_); }

  // Waits for the next record, in the order of arrival. Returns an empty one (opcode 0) after a
  // failure.
  Record next() {
    while (records_.empty()) {
      if (!receive_frame()) return {};
    }
    Record record = std::move(records_.front());
    records_.pop_front();
    return record;
  }
  // Receives until `count` frames of `kind` have arrived.
  bool wait_for_frames(protocol::FrameKind kind, int count) {
    while (frames_of(kind) < count) {
      if (!receive_frame()) return false;
    }
    return true;
  }
  int frames_of(protocol::FrameKind kind) const { return frames_[static_cast<int>(kind)]; }
  // The number of items that the client's last frame acknowledged.
  std::uint64_t items_acknowledged() const { return items_acknowledged_; }

  // Sends one item to the client. Fills in header.bytes, .payload_bytes and .sequence.
  void send_item(protocol::ReplyHeader header, ByteView payload = {}) {
    header.sequence = ++items_;
    send_numbered_item(header, payload);
  }
  // As send_item(), with a sequence number that the test chooses.
  void send_numbered_item(protocol::ReplyHeader header, ByteView payload = {}) {
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    header.bytes = static_cast<std::uint32_t>(protocol::reply_bytes(payload.size()));
    Bytes item(header.bytes);
    std::memcpy(item.data(), &header, sizeof header);
    if (!payload.empty()) std::memcpy(item.data() + sizeof header, payload.data(), payload.size());
    send_frame(*log_, protocol::FrameKind::kReplies, item, header.sequence);
  }
  void reply(const Record& to, int result = 0, ByteView payload = {}, std::uint64_t watermark = 0) {
    protocol::ReplyHeader header;
    header.kind = protocol::ReplyKind::kReply;
    header.opcode = to.header.opcode;
    header.lane = to.header.lane;
    header.result = result;
    header.call_sequence = to.header.sequence;
    header.watermark = watermark;
    send_item(header, payload);
  }
  void call_error(const Record& about, int result, bool sticky = false) {
    protocol::ReplyHeader header;
    header.kind = protocol::ReplyKind::kCallError;
    header.flags = sticky ? protocol::kReplyFlagSticky : std::uint8_t{0};
    header.opcode = about.header.opcode;
    header.lane = about.header.lane;
    header.result = result;
    header.call_sequence = about.header.sequence;
    header.context = about.header.context;
    send_item(header);
  }
  void acknowledge(std::uint64_t sequence) {
    acknowledged_ = sequence;
    send_frame(*log_, protocol::FrameKind::kAcknowledge, {}, 0);
  }
  void goodbye(const char* reason) {
    send_frame(*log_, protocol::FrameKind::kGoodbye, byte_view(reason, std::strlen(reason)), 0);
  }
  void send_frame(transport::Connection& over, protocol::FrameKind kind, ByteView payload,
                  std::uint64_t sequence) {
    protocol::FrameHeader header;
    header.kind = kind;
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    header.sequence = sequence;
    header.acknowledged = acknowledged_;
    const ByteView parts[] = {bytes_of(header), payload};
    static_cast<void>(over.send(parts, patience()));  // The client may have ended already.
  }

  transport::Connection& log() { return *log_; }
  transport::Connection& bulk() { return *bulk_; }
  static Deadline patience() { return Deadline::in(std::chrono::seconds(20)); }

 private:
  bool receive_frame() {
    protocol::Frame frame;
    for (;;) {
      const Result<bool> whole = reader_.next(&frame);
      if (!whole.ok()) return failed(whole.status());
      if (*whole) break;
      const Result<std::size_t> got = log_->receive(reader_.space(), reader_.wanted(), patience());
      if (!got.ok()) return failed(got.status());
      reader_.filled(*got);
    }
    ++frames_[static_cast<int>(frame.header.kind)];
    items_acknowledged_ = frame.header.acknowledged;
    if (frame.header.kind != protocol::FrameKind::kRecords) return true;
    EXPECT_EQ(frame.header.sequence, received_ + 1);
    ByteView rest = frame.payload;
    while (!rest.empty()) {
      const Result<protocol::RecordView> record = protocol::parse_record(rest);
      if (!record.ok()) return failed(record.status());
      EXPECT_EQ(record->header.sequence, ++received_);
      records_.push_back({record->header, Bytes(record->payload.begin(), record->payload.end())});
      rest = rest.subspan(record->header.bytes);
    }
    return true;
  }
  bool failed(const Status& status) {
    ADD_FAILURE() << status.to_string();
    return false;
  }

  Session::Channels channels_;
  std::unique_ptr<transport::Connection> log_;
  std::unique_ptr<transport::Connection> bulk_;
  protocol::FrameReader reader_;
  std::deque<Record> records_;
  int frames_[16] = {};
  std::uint64_t received_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t items_ = 0;
  std::uint64_t items_acknowledged_ = 0;
};

}  // namespace gpurun::client
