// Protects: a worker takes nothing that a client says of shared memory on trust: payloads of
// another size, memory that nobody has, requests that nobody waits for; and what one session has
// open is bounded.
#include <gtest/gtest.h>

#include <cstring>

#include "protocol/interprocess.h"
#include "protocol/limits.h"
#include "tests/callpath/world.h"

namespace gpurun::callpath {
namespace {

using protocol::CloseRequest;
using protocol::OpenRequest;
using protocol::Order;
using protocol::ShareRequest;

constexpr int kInvalidValue = 1, kOutOfMemory = 2;

class Interprocess : public ::testing::Test {
 protected:
  client::CallSite raw(const char* symbol, Order order = Order::kContext) {
    client::CallSite site = world_.site(symbol);
    site.form = protocol::Form::kRaw;
    site.order = order;
    return site;
  }
  template <typename Payload>
  int ask(const char* symbol, const Payload& payload) {
    client::Reply reply;
    return world_.session().call(world_.lane(), raw(symbol), bytes_of(payload), &reply);
  }
  OpenRequest request(std::uint32_t number) {
    OpenRequest open;
    std::memcpy(open.handle.data(), &number, sizeof number);
    open.flags = 1;
    return open;
  }

  World world_;
};

TEST_F(Interprocess, OtherPayloadsAreRefused) {
  for (const char* symbol : {"cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle"}) {
    EXPECT_EQ(ask(symbol, std::uint64_t{5}), kInvalidValue) << symbol;
    EXPECT_EQ(ask(symbol, std::array<char, 200>{}), kInvalidValue) << symbol;
  }
  EXPECT_EQ(ask("cuIpcGetMemHandle", ShareRequest{4096, 4096, 77, 0}), kInvalidValue);
  EXPECT_EQ(ask("cuIpcGetMemHandle", ShareRequest{4096, 4096, ~0u, 0}), kInvalidValue);
  EXPECT_EQ(ask("cuIpcCloseMemHandle", CloseRequest{4096, 0, 0}), kInvalidValue);
  EXPECT_EQ(ask("cuIpcCloseMemHandle", CloseRequest{4096, 1, 0}), kInvalidValue);
  EXPECT_EQ(ask("cuIpcGetMemHandle", ShareRequest{4096, 0, 0, 0}), 0);  // Nothing to withdraw.
}

TEST_F(Interprocess, WhoWaitsForNothingOpensNothing) {
  EXPECT_EQ(
      world_.session().post(world_.lane(), raw("cuIpcOpenMemHandle_v2"), bytes_of(request(1))), 0);
  EXPECT_EQ(world_.synchronize(), kInvalidValue);  // Told late.
  EXPECT_EQ(world_.synchronize(), 0);
}

TEST_F(Interprocess, OpeningsAreBounded) {
  for (std::uint32_t number = 0; number < limits::kSharedOpeningsMax; ++number) {
    ASSERT_EQ(ask("cuIpcOpenMemHandle_v2", request(number)), 0) << number;
  }
  EXPECT_EQ(ask("cuIpcOpenMemHandle_v2", request(limits::kSharedOpeningsMax)), kOutOfMemory);
  EXPECT_EQ(ask("cuIpcOpenMemHandle_v2", request(7)), 0);  // Once more.
}

}  // namespace
}  // namespace gpurun::callpath
