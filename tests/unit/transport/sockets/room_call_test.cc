// RoomCall: wakes for room only after a call, and only when there is room.
#include "transport/sockets/room_call.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <utility>

namespace gpurun::transport::sockets {
namespace {

bool is_ready(const RoomCall& call) {
  pollfd ready = {call.fd(), POLLIN, 0};
  return poll(&ready, 1, 0) == 1;
}

class RoomCallTest : public testing::Test {
 protected:
  RoomCallTest() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    auto adopted = SocketConnection::adopt(UniqueFd(ends[0]), Options{});
    EXPECT_TRUE(adopted.ok()) << adopted.status().message();
    near_ = *std::move(adopted);
    far_ = UniqueFd(ends[1]);
    call_ = RoomCall::of(static_cast<SocketConnection&>(*near_));
  }
  void fill() {
    const std::array<std::byte, 4096> bytes = {};
    const ByteView part(bytes);
    for (;;) {
      const auto sent = near_->send_some({&part, 1});
      ASSERT_TRUE(sent.ok()) << sent.status().message();
      if (*sent == 0) return;
    }
  }
  void drain() {
    std::array<char, 4096> bytes;
    while (recv(far_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
  }

  std::unique_ptr<Connection> near_;
  UniqueFd far_;
  std::unique_ptr<RoomCall> call_;
};

TEST_F(RoomCallTest, RoomAloneWakesNobody) {
  ASSERT_NE(call_, nullptr);
  EXPECT_FALSE(is_ready(*call_));
}

TEST_F(RoomCallTest, ACallWakesOnceThereIsRoom) {
  ASSERT_NE(call_, nullptr);
  fill();
  call_->make();
  EXPECT_FALSE(is_ready(*call_));
  drain();
  EXPECT_TRUE(is_ready(*call_));
  EXPECT_TRUE(is_ready(*call_));  // Until it is taken back.
  call_->take_back();
  EXPECT_FALSE(is_ready(*call_));
}

TEST_F(RoomCallTest, BytesAreNoRoom) {
  ASSERT_NE(call_, nullptr);
  fill();
  call_->make();
  ASSERT_EQ(send(far_.get(), "x", 1, 0), 1);
  EXPECT_FALSE(is_ready(*call_));
}

}  // namespace
}  // namespace gpurun::transport::sockets
