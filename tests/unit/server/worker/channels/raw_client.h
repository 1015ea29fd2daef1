// RawClient: the client's end of a worker's connections, frame by frame, so that a test can also
// send what our client never sends. The worker runs in a thread, on a StepDevice. Every wait is
// bounded. A wait that fails also fails the test.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "protocol/log/frame_reader.h"
#include "server/worker/channels/worker.h"
#include "tests/unit/server/driver/step_device.h"
#include "transport/loopback/connection.h"

namespace gpurun::server {

class RawClient {
 public:
  struct Item {
    protocol::ReplyHeader header;
    Bytes payload;
  };
  struct BulkFrame {
    protocol::FrameKind kind = protocol::FrameKind::kHeartbeat;
    protocol::BulkHeader header;
    Bytes bytes;
  };

  explicit RawClient(WorkerOptions options = {}) {
    StepDevice::device().reset();
    if (options.driver.cuStreamQuery == nullptr) options.driver = StepDevice::functions();
    options.heartbeat = std::chrono::hours(1);
    options.features &= ~protocol::feature_bit(protocol::Feature::kPackedChunks);
    auto log = transport::loopback::connect_pair();
    auto bulk = transport::loopback::connect_pair();
    log_ = std::move(log.first);
    bulk_ = std::move(bulk.first);
    WorkerChannels channels;
    channels.log = std::move(log.second);
    channels.bulk.push_back(std::move(bulk.second));
    worker_ = std::thread([this, options, mine = std::move(channels)]() mutable {
      ended_ = run_worker(options, std::move(mine));
    });
  }
  ~RawClient() {
    cut();
    if (worker_.joinable()) (void)end();
  }
  void cut() {
    log_->shut_down();
    bulk_->shut_down();
  }
  void cut_bulk() { bulk_->shut_down(); }
  Status end() {
    StepDevice::device().fail(999);  // Fails all waits for the device.
    worker_.join();
    return ended_;
  }

  // Sends a record and returns its number. Uses context 0, and the per-thread stream of `lane`.
  std::uint64_t record(protocol::RecordHeader header, ByteView payload, std::uint32_t lane = 0) {
    header.order = header.order == protocol::Order::kContext && header.form != protocol::Form::kRaw
                       ? protocol::Order::kStream
                       : header.order;
    header.lane = lane;
    header.stream = protocol::kStreamPerThread;
    header.sequence = ++last_;
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    header.bytes = static_cast<std::uint32_t>(protocol::record_bytes(payload.size()));
    Bytes bytes(header.bytes);
    std::memcpy(bytes.data(), &header, sizeof header);
    if (!payload.empty()) std::memcpy(bytes.data() + sizeof header, payload.data(), payload.size());
    send(*log_, protocol::FrameKind::kRecords, bytes, header.sequence);
    return last_;
  }
  std::uint64_t copy_in(std::uint64_t transfer, void* to, std::uint64_t bytes,
                        std::uint32_t lane = 0, std::uint16_t flags = 0) {
    protocol::RecordHeader header;
    header.form = protocol::Form::kCopyIn;
    header.flags = flags;
    header.bulk = transfer;
    const protocol::CopyPayload copy{reinterpret_cast<std::uintptr_t>(to), 0, bytes};
    return record(header, bytes_of(copy), lane);
  }
  std::uint64_t copy_out(std::uint64_t transfer, const void* from, std::uint64_t bytes,
                         std::uint16_t flags = 0, std::uint32_t lane = 0) {
    protocol::RecordHeader header;
    header.form = protocol::Form::kCopyOut;
    header.bulk = transfer;
    header.flags = flags;
    const protocol::CopyPayload copy{0, reinterpret_cast<std::uintptr_t>(from), bytes};
    return record(header, bytes_of(copy), lane);
  }
  std::uint64_t fill(void* to, unsigned value, std::size_t bytes, std::uint16_t flags = 0,
                     std::uint32_t lane = 0) {
    protocol::RecordHeader header;
    header.form = protocol::Form::kMemset;
    header.flags = flags;
    protocol::MemsetPayload set;
    set.destination = reinterpret_cast<std::uintptr_t>(to);
    set.width = bytes;
    set.height = 1;
    set.value = value;
    set.element_bytes = 1;
    return record(header, bytes_of(set), lane);
  }
  void chunk(std::uint64_t transfer, std::uint64_t offset, std::uint64_t total, ByteView bytes) {
    bulk_frame(protocol::FrameKind::kChunk, {transfer, offset, total, 0}, bytes);
  }
  void bulk_frame(protocol::FrameKind kind, const protocol::BulkHeader& header, ByteView bytes) {
    Bytes payload(sizeof header + bytes.size());
    std::memcpy(payload.data(), &header, sizeof header);
    if (!bytes.empty()) std::memcpy(payload.data() + sizeof header, bytes.data(), bytes.size());
    send(*bulk_, kind, payload, 0);
  }

  // Waits for the next item of the log. Skips heartbeats and acknowledgements.
  Item item() {
    for (;;) {
      if (!rest_.empty()) {
        const auto view = protocol::parse_reply(rest_);
        EXPECT_TRUE(view.ok());
        if (!view.ok()) return {};
        Item item{view->header, Bytes(view->payload.begin(), view->payload.end())};
        rest_.erase(rest_.begin(), rest_.begin() + view->header.bytes);
        return item;
      }
      const protocol::Frame frame = this->frame();
      if (frame.header.kind == protocol::FrameKind::kReplies) {
        rest_.assign(frame.payload.begin(), frame.payload.end());
      } else if (frame.header.kind == protocol::FrameKind::kGoodbye) {
        ADD_FAILURE() << "goodbye: " << text(frame.payload);
        return {};
      } else if (broken_) {
        return {};
      }
    }
  }
  // Waits for the worker's goodbye. Returns its reason.
  std::string goodbye() {
    for (;;) {
      const protocol::Frame frame = this->frame();
      if (broken_ || frame.header.kind == protocol::FrameKind::kGoodbye) return text(frame.payload);
    }
  }
  BulkFrame bulk() {
    BulkFrame result;
    if (!head_came_) head_came_ = receive_bulk(head_, patience());
    EXPECT_TRUE(head_came_);
    if (!std::exchange(head_came_, false)) return result;
    const auto frame = protocol::parse_frame_header(head_);
    EXPECT_TRUE(frame.ok());
    result.kind = frame->kind;
    result.bytes.resize(frame->payload_bytes - protocol::kBulkHeaderBytes);
    std::memcpy(&result.header, head_ + protocol::kFrameHeaderBytes, sizeof result.header);
    if (!result.bytes.empty()) {
      EXPECT_TRUE(receive_bulk(result.bytes, patience()));
    }
    return result;
  }
  // Whether nothing arrives on the bulk connection for a moment.
  bool bulk_is_quiet() {
    if (!head_came_) head_came_ = receive_bulk(head_, Deadline::in(std::chrono::milliseconds(50)));
    return !head_came_;
  }

 private:
  static Deadline patience() { return Deadline::in(std::chrono::seconds(20)); }
  static std::string text(ByteView bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  static void send(transport::Connection& over, protocol::FrameKind kind, ByteView payload,
                   std::uint64_t sequence) {
    protocol::FrameHeader header;
    header.kind = kind;
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    header.sequence = sequence;
    const ByteView parts[] = {bytes_of(header), payload};
    (void)over.send(parts, patience());  // The worker may have ended already.
  }
  bool receive_bulk(MutableBytes into, Deadline deadline) {
    return bulk_->receive(into, into.size(), deadline).ok();
  }
  protocol::Frame frame() {
    protocol::Frame frame;
    for (;;) {
      const auto whole = reader_.next(&frame);
      EXPECT_TRUE(whole.ok());
      if (whole.ok() && *whole) return frame;
      const auto got = log_->receive(reader_.space(), 1, patience());
      if (!got.ok()) {
        EXPECT_TRUE(got.ok()) << got.status().to_string();
        broken_ = true;
        return {};
      }
      reader_.filled(*got);
    }
  }

  std::unique_ptr<transport::Connection> log_;
  std::unique_ptr<transport::Connection> bulk_;
  std::thread worker_;
  Status ended_;
  protocol::FrameReader reader_;
  Bytes rest_;
  std::uint64_t last_ = 0;
  bool broken_ = false;
  std::byte head_[protocol::kFrameHeaderBytes + protocol::kBulkHeaderBytes] = {};
  bool head_came_ = false;  // head_ holds the head of the next bulk frame.
};

}  // namespace gpurun::server
