// Bulk under test: a session and the worker's end of its bulk connection, shared by the bulk tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <memory>

#include "client/bulk/bulk.h"
#include "protocol/bulk/packed_chunk.h"
#include "tests/unit/client/session/fake_worker.h"
#include "tests/unit/client/session/session_under_test.h"

namespace gpurun::client {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

inline Bytes pattern(std::size_t byte_count) {
  Bytes bytes(byte_count);
  std::uint32_t value = 1;
  for (std::byte& each : bytes) {
    value = value * 1'664'525 + 1'013'904'223;
    each = static_cast<std::byte>(value >> 24);
  }
  return bytes;
}

class BulkTest : public testing::Test {
 protected:
  struct BulkFrame {
    protocol::FrameHeader frame;
    protocol::BulkHeader bulk;
    Bytes bytes;
  };

  void SetUp() override { begin(quiet()); }
  void begin(const SessionOptions& options) {
    session_.reset();
    worker_ = std::make_unique<FakeWorker>();
    auto session = Session::start(worker_->channels(), options);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    session_ = *std::move(session);
  }

  BulkFrame next_bulk() {
    BulkFrame result;
    std::byte head[protocol::kFrameHeaderBytes + protocol::kBulkHeaderBytes];
    const auto got = worker_->bulk().receive(head, sizeof head, FakeWorker::patience());
    EXPECT_TRUE(got.ok()) << got.status().to_string();
    if (!got.ok()) return result;
    const auto frame = protocol::parse_frame_header(head);
    EXPECT_TRUE(frame.ok());
    result.frame = *frame;
    result.bytes.resize(frame->payload_bytes - protocol::kBulkHeaderBytes);
    const auto bulk = protocol::parse_bulk_header(
        frame->kind, ByteView(head).subspan(protocol::kFrameHeaderBytes), result.bytes.size());
    EXPECT_TRUE(bulk.ok());
    result.bulk = *bulk;
    if (!result.bytes.empty()) {
      EXPECT_TRUE(
          worker_->bulk().receive(result.bytes, result.bytes.size(), FakeWorker::patience()).ok());
    }
    return result;
  }
  void send_bulk(protocol::FrameKind kind, const protocol::BulkHeader& header,
                 ByteView bytes = {}) {
    Bytes payload(sizeof header + bytes.size());
    std::memcpy(payload.data(), &header, sizeof header);
    if (!bytes.empty()) std::memcpy(payload.data() + sizeof header, bytes.data(), bytes.size());
    worker_->send_frame(worker_->bulk(), kind, payload, 0);
  }
  void send_packed(const protocol::BulkHeader& header, const protocol::PackedHead& head,
                   ByteView bytes) {
    Bytes packed(sizeof head + bytes.size());
    std::memcpy(packed.data(), &head, sizeof head);
    std::memcpy(packed.data() + sizeof head, bytes.data(), bytes.size());
    send_bulk(protocol::FrameKind::kChunkPacked, header, packed);
  }
  void receipt(const protocol::BulkHeader& about, std::uint64_t retired) {
    send_bulk(protocol::FrameKind::kChunkReceipt, {about.transfer, retired, about.total, 0});
  }
  // Receives one whole transfer, with a receipt for each chunk. No other transfer may be under way.
  Bytes take_transfer(std::uint64_t transfer, std::size_t byte_count) {
    Bytes whole(byte_count);
    for (std::size_t got = 0; got < byte_count;) {
      const BulkFrame chunk = next_bulk();
      EXPECT_EQ(chunk.bulk.transfer, transfer);
      EXPECT_EQ(chunk.bulk.offset, got);
      EXPECT_EQ(chunk.bulk.total, byte_count);
      if (chunk.bytes.empty() || chunk.bulk.offset + chunk.bytes.size() > byte_count) break;
      std::copy(chunk.bytes.begin(), chunk.bytes.end(),
                whole.begin() + static_cast<std::ptrdiff_t>(chunk.bulk.offset));
      got += chunk.bytes.size();
      receipt(chunk.bulk, got);
    }
    return whole;
  }
  // Reports that the stream has reached the copy `about`.
  void want(const FakeWorker::Record& about, std::uint64_t watermark) {
    protocol::ReplyHeader item;
    item.kind = protocol::ReplyKind::kBytesWanted;
    item.lane = about.header.lane;
    item.call_sequence = about.header.sequence;
    item.subject = about.header.bulk;
    item.watermark = watermark;
    worker_->send_item(item);
  }
  std::future<int> fence() {
    return std::async(std::launch::async, [this] {
      Reply reply;
      CallSite site;
      site.opcode = 9;
      return session_->call(*Lane::current(), site, ByteView(), &reply);
    });
  }
  std::future<int> copy_out(MutableBytes destination, bool wait) {
    return std::async(std::launch::async, [this, destination, wait] {
      return session_->copy_out(*Lane::current(), CallSite(), destination, 0x2000, wait);
    });
  }
  int copy_in(ByteView source, Session::Reading reading, Handle stream = 0) {
    CallSite site;
    site.stream = stream;
    return session_->copy_in(*Lane::current(), site, 0x1000, source, reading);
  }

  std::unique_ptr<FakeWorker> worker_;
  std::unique_ptr<Session> session_;
};

}  // namespace gpurun::client
