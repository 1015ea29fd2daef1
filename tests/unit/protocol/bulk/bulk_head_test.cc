// BulkHeads: the bytes behind a head stay on the connection, however much has arrived. An invalid
// head is refused before anything behind it is read.
#include "protocol/bulk/bulk_head.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/bytes.h"

namespace gpurun::protocol {
namespace {

// A connection that has received `bytes`. Each receive returns at most `piece` of them.
class Wire {
 public:
  explicit Wire(std::size_t piece) : piece_(piece) {}

  void say(FrameKind kind, const BulkHeader& bulk, std::size_t bytes) {
    FrameHeader frame;
    frame.kind = kind;
    frame.payload_bytes = static_cast<std::uint32_t>(sizeof bulk + bytes);
    append(bytes_of(frame));
    append(bytes_of(bulk));
    bytes_.resize(bytes_.size() + bytes);
  }
  void say_heartbeat() { append(bytes_of(FrameHeader{})); }

  Result<std::size_t> receive(MutableBytes into, std::size_t bytes_min, Deadline /*deadline*/) {
    ++receives_;
    if (bytes_.size() - at_ < bytes_min) return Status(Code::kPeerGone, "nothing more");
    const std::size_t most = std::min(into.size(), bytes_.size() - at_);
    const std::size_t got = std::max(bytes_min, std::min(most, piece_));
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at_), got, into.begin());
    at_ += got;
    return got;
  }
  std::size_t left() const { return bytes_.size() - at_; }
  int receives() const { return receives_; }
  void skip(std::size_t bytes) { at_ += bytes; }

 private:
  void append(ByteView part) { bytes_.insert(bytes_.end(), part.begin(), part.end()); }

  const std::size_t piece_;
  Bytes bytes_;
  std::size_t at_ = 0;
  int receives_ = 0;
};

constexpr BulkHeader kFirst{7, 0, 1000, 0}, kSecond{8, 0, 500, 0};

TEST(BulkHeadTest, BytesBehindHeadStayOnConnection) {
  for (const std::size_t piece : {std::size_t{1}, std::size_t{30}, std::size_t{1} << 20}) {
    Wire wire(piece);
    wire.say(FrameKind::kChunk, kFirst, 1000);
    wire.say(FrameKind::kChunk, kSecond, 500);
    BulkHeads heads;
    const auto first = heads.receive(wire);
    ASSERT_TRUE(first.ok() && first->has_value());
    EXPECT_EQ((*first)->bulk.transfer, 7U);
    EXPECT_EQ((*first)->bytes, 1000U);
    wire.skip(1000);
    const auto second = heads.receive(wire);
    ASSERT_TRUE(second.ok() && second->has_value());
    EXPECT_EQ((*second)->bulk.transfer, 8U);
    EXPECT_EQ(wire.left(), 500U);
  }
}

TEST(BulkHeadTest, ArrivedHeadTakesOneReceive) {
  Wire wire(std::size_t{1} << 20);
  wire.say(FrameKind::kChunk, kFirst, 1000);
  BulkHeads heads;
  ASSERT_TRUE(heads.receive(wire).ok());
  EXPECT_EQ(wire.receives(), 1);
}

TEST(BulkHeadTest, HeartbeatLeavesFollowingFrameUnread) {
  for (const std::size_t piece : {std::size_t{1}, std::size_t{30}, std::size_t{1} << 20}) {
    Wire wire(piece);
    wire.say_heartbeat();
    wire.say_heartbeat();
    wire.say_heartbeat();
    wire.say(FrameKind::kChunk, kSecond, 500);
    BulkHeads heads;
    for (int i = 0; i < 3; ++i) {
      const auto nothing = heads.receive(wire);
      ASSERT_TRUE(nothing.ok());
      EXPECT_FALSE(nothing->has_value());
    }
    const auto frame = heads.receive(wire);
    ASSERT_TRUE(frame.ok() && frame->has_value());
    EXPECT_EQ((*frame)->bulk.transfer, 8U);
    EXPECT_EQ(wire.left(), 500U);
  }
}

TEST(BulkHeadTest, RefusesInvalidFrames) {
  Wire other(1000);
  other.say(FrameKind::kRecords, kFirst, 8);
  EXPECT_EQ(BulkHeads().receive(other).status().code(), Code::kProtocol);
  Wire nothing(1000);
  nothing.say(FrameKind::kChunk, BulkHeader{0, 0, 8, 0}, 8);  // It belongs to no transfer.
  EXPECT_EQ(BulkHeads().receive(nothing).status().code(), Code::kProtocol);
  Wire cut(1000);
  cut.say_heartbeat();
  BulkHeads heads;
  EXPECT_TRUE(heads.receive(cut).ok());
  EXPECT_EQ(heads.receive(cut).status().code(), Code::kPeerGone);
}

}  // namespace
}  // namespace gpurun::protocol
