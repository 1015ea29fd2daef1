// Shared memory at the worker: a worker trusts neither the client nor other workers. It refuses
// payloads of a wrong size, unknown memory, and requests without a waiting caller. It bounds what
// one session has open.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstring>

#include "protocol/calls/interprocess.h"
#include "protocol/limits.h"
#include "tests/callpath/lying_exchange.h"
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

TEST_F(Interprocess, RefusesInvalidPayloads) {
  for (const char* symbol : {"cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle"}) {
    EXPECT_EQ(ask(symbol, std::uint64_t{5}), kInvalidValue) << symbol;
    EXPECT_EQ(ask(symbol, std::array<char, 200>{}), kInvalidValue) << symbol;
  }
  EXPECT_EQ(ask("cuIpcGetMemHandle", ShareRequest{4096, 4096, 77, 0}), kInvalidValue);
  EXPECT_EQ(ask("cuIpcGetMemHandle", ShareRequest{4096, 4096, ~0u, 0}), kInvalidValue);
  EXPECT_EQ(ask("cuIpcCloseMemHandle", CloseRequest{4096, 0, 0}), kInvalidValue);
  EXPECT_EQ(ask("cuIpcCloseMemHandle", CloseRequest{4096, 1, 0}), kInvalidValue);
  EXPECT_EQ(ask("cuIpcGetMemHandle", ShareRequest{4096, 0, 0, 0}), 0);  // There is nothing to
                                                                        // withdraw.
}

TEST_F(Interprocess, PostedOpenIsRefused) {
  EXPECT_EQ(
      world_.session().post(world_.lane(), raw("cuIpcOpenMemHandle_v2"), bytes_of(request(1))), 0);
  EXPECT_EQ(world_.synchronize(), kInvalidValue);  // Reported late.
  EXPECT_EQ(world_.synchronize(), 0);
}

TEST_F(Interprocess, OpeningsAreBounded) {
  for (std::uint32_t number = 0; number < limits::kSharedOpeningsMax; ++number) {
    ASSERT_EQ(ask("cuIpcOpenMemHandle_v2", request(number)), 0) << number;
  }
  EXPECT_EQ(ask("cuIpcOpenMemHandle_v2", request(limits::kSharedOpeningsMax)), kOutOfMemory);
  EXPECT_EQ(ask("cuIpcOpenMemHandle_v2", request(7)), 0);  // The same once more.
}

// A worker's description of memory that it shares: SharedFacts of interprocess.cc.
struct Facts {
  std::uint32_t kind = 2;  // 1: pieces, 2: the driver's memory, 3: an event.
  std::uint32_t pieces = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 4096;
  std::uint8_t device[16] = {};
  std::uint8_t driver_handle[64] = {};
  std::uint64_t piece_bytes[40] = {};
};

TEST(InterprocessExchange, RefusesInvalidDescriptionsFromOtherWorker) {
  LyingExchange liar;
  World& world = liar.world();
  std::uint32_t number = 0;
  const auto opened = [&](ByteView content, std::size_t files) {
    liar.content.assign(content.begin(), content.end());
    const UniqueFd memory(memfd_create("lies", MFD_CLOEXEC));
    liar.files.assign(files, memory.get());
    OpenRequest open;
    ++number;  // Each handle is requested once.
    std::memcpy(open.handle.data(), &number, sizeof number);
    open.flags = 1;
    client::CallSite site = world.site("cuIpcOpenMemHandle_v2");
    site.form = protocol::Form::kRaw;
    site.order = Order::kContext;
    client::Reply reply;
    return world.session().call(world.lane(), site, bytes_of(open), &reply);
  };
  Facts good;
  void* uuid = good.device;
  int ordinal = 0;
  ASSERT_EQ(world.call("cuDeviceGetUuid_v2", {&uuid, &ordinal}), 0);
  EXPECT_EQ(opened(bytes_of(good), 0), 0);
  EXPECT_EQ(opened(bytes_of(good), 1), 0);
  const auto refused = [&](std::size_t files, auto change) {
    Facts bad = good;
    change(bad);
    return opened(bytes_of(bad), files) == kInvalidValue;
  };
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  EXPECT_TRUE(refused(2, [](Facts&) {}));
  EXPECT_TRUE(refused(0, [](Facts& bad) { bad.bytes = 0; }));
  EXPECT_TRUE(refused(0, [](Facts& bad) { bad.bytes = limits::kWindowBytesMax + 1; }));
  for (const std::uint32_t kind : {0u, 3u, 4u, ~0u}) {
    EXPECT_TRUE(refused(0, [kind](Facts& bad) { bad.kind = kind; })) << kind;
  }
  const auto pieces = [](Facts& bad, std::uint32_t count, std::uint64_t bytes_of_each) {
    bad.kind = 1;
    bad.pieces = count;
    for (std::uint64_t& bytes : bad.piece_bytes) bytes = bytes_of_each;
  };
  EXPECT_TRUE(refused(0, [&](Facts& bad) { pieces(bad, 0, 4096); }));
  EXPECT_TRUE(refused(1, [&](Facts& bad) { pieces(bad, 2, 4096); }));
  EXPECT_TRUE(refused(41, [&](Facts& bad) { pieces(bad, 41, 4096); }));
  EXPECT_TRUE(refused(0, [&](Facts& bad) { pieces(bad, ~0u, 4096); }));
  EXPECT_TRUE(refused(2, [&](Facts& bad) { pieces(bad, 2, kHuge / 2 + 1); }));
  EXPECT_TRUE(refused(2, [&](Facts& bad) { pieces(bad, 2, limits::kWindowBytesMax); }));
  EXPECT_TRUE(refused(1, [&](Facts& bad) { pieces(bad, 1, 4095); }));
  EXPECT_TRUE(refused(1, [&](Facts& bad) {
    pieces(bad, 1, 4096);
    bad.offset = 1;
  }));
  EXPECT_TRUE(refused(1, [&](Facts& bad) {
    pieces(bad, 1, 4096);
    bad.offset = kHuge - 4094;
  }));
  EXPECT_NE(opened(bytes_of(Facts()), 0), 0) << "memory of a device that nobody has";
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, sizeof good - 1}) {
    EXPECT_EQ(opened(byte_view(&good, size), 0), kInvalidValue) << size;
  }
  const std::array<std::byte, server::kExchangeContentBytes> most{};
  EXPECT_EQ(opened(most, 0), kInvalidValue);
  EXPECT_EQ(opened(bytes_of(good), 0), 0);
}

}  // namespace
}  // namespace gpurun::callpath
