// WorkerLinks at the worker, over the real path: each step reports what the driver wrote to logs
// and values. An image arrives whole, however large. Only a live state reaches the driver. Each
// session has a bound of links and of their bytes.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "protocol/calls/link_calls.h"
#include "server/handlers/modules/links.h"
#include "tests/callpath/world.h"

namespace gpurun::callpath {
namespace {

using client::CallSite;
using client::Handle;
using client::HandleKind;
using client::Reply;
using protocol::LinkReply;

constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kInvalidPtx = 218;
constexpr int kInvalidHandle = 400;
constexpr int kNotSupported = 801;
constexpr std::uint32_t kPtx = 1;  // CU_JIT_INPUT_PTX

server::HandlerState* state_of_worker = nullptr;

WorldOptions options() {
  WorldOptions with;
  with.prepare = [](server::WorkerOptions& of) {
    state_of_worker = static_cast<server::HandlerState*>(of.user);
  };
  return with;
}

class WorkerLinks : public ::testing::Test {
 protected:
  CallSite raw(const char* symbol) {
    CallSite site = world_.site(symbol);
    site.form = protocol::Form::kRaw;
    return site;
  }
  Handle mint() {
    return world_.session().handles().mint(HandleKind::kLinkState, world_.context(), nullptr);
  }

  // Returns the call's own failure. The driver's result is in `last_`.
  int step(const CallSite& site, ByteView payload, ByteView bulk = {}) {
    Reply reply;
    const int result = world_.session().call_with_bulk(
        world_.lane(), site, std::span<const ByteView>(&payload, 1), bulk, &reply);
    if (reply.result != 0) return reply.result;
    if (result != 0) return result;
    const auto unpacked = protocol::unpack_link_reply(reply.payload);
    EXPECT_TRUE(unpacked.ok());
    if (!unpacked.ok()) return -1;
    last_ = *unpacked;
    part_.assign(last_.part.begin(), last_.part.end());
    return last_.result;
  }
  int create(Handle state, std::uint32_t info_bytes = 0, std::uint32_t error_bytes = 0,
             bool wall_time = false) {
    protocol::LinkCreate request;
    request.state = state;
    request.info_log_bytes = info_bytes;
    request.error_log_bytes = error_bytes;
    request.wall_time = wall_time;
    return step(raw("cuLinkCreate_v2"), protocol::pack(request));
  }
  Bytes input(Handle state, const char* name, const std::string& text) {
    protocol::LinkInput request;
    request.state = state;
    request.type = kPtx;
    request.named = name != nullptr;
    request.name = name == nullptr ? "" : name;
    request.data = byte_view(text.data(), text.size());
    return protocol::pack(request);
  }
  int add(Handle state, const char* name, const std::string& text) {
    return step(raw("cuLinkAddData_v2"), input(state, name, text));
  }
  int complete(Handle state, std::uint64_t offset = 0) {
    const protocol::LinkComplete request{state, offset};
    return step(raw("cuLinkComplete"), bytes_of(request));
  }
  int destroy(Handle state) { return world_.call("cuLinkDestroy", {&state}); }

  World world_{options()};
  LinkReply last_;
  Bytes part_;
};

TEST_F(WorkerLinks, EachStepReturnsLogsAndValues) {
  const Handle state = mint();
  ASSERT_EQ(create(state, 1000, 16, true), 0);
  EXPECT_EQ(last_.info_log, "");
  EXPECT_EQ(last_.info_log_value, 1000u);
  EXPECT_EQ(last_.error_log_value, 16u);
  EXPECT_EQ(last_.wall_time, protocol::kWallTimeUnknown);
  EXPECT_EQ(add(state, "one", ".version"), 0);
  EXPECT_EQ(last_.info_log, "one: 8 bytes\n");
  EXPECT_EQ(last_.info_log_value, 13u);
  float milliseconds = 0;
  std::memcpy(&milliseconds, &last_.wall_time, sizeof milliseconds);
  EXPECT_EQ(milliseconds, 1);
  EXPECT_EQ(add(state, nullptr, "broken text"), kInvalidPtx);
  EXPECT_EQ(last_.error_log, "nameless is bro");  // As much as fitted.
  EXPECT_EQ(last_.error_log_value, 15u);
  EXPECT_EQ(complete(state), 0);
  EXPECT_EQ(last_.info_log, "one: 8 bytes\n");
  EXPECT_EQ(last_.error_log, "nameless is bro");
  EXPECT_EQ(part_.size(), last_.image_bytes);
  EXPECT_EQ(destroy(state), 0);
  EXPECT_EQ(complete(state), kInvalidHandle);
  EXPECT_EQ(destroy(state), kInvalidHandle);
}

TEST_F(WorkerLinks, LargeImageArrivesInPartsAndWhole) {
  const Handle state = mint();
  ASSERT_EQ(create(state), 0);
  std::string text(700'000, ' ');
  for (std::size_t i = 0; i < text.size(); i += 4)
    text.replace(i, 4, std::to_string(1000 + i % 9000));
  protocol::LinkInput request;
  request.state = state;
  request.type = kPtx;
  const Bytes payload = protocol::pack(request);
  EXPECT_EQ(step(raw("cuLinkAddData_v2"), payload), kInvalidValue);  // Neither in the record nor
                                                                     // beside it.
  ASSERT_EQ(step(raw("cuLinkAddData_v2"), payload, byte_view(text.data(), text.size())), 0);
  EXPECT_EQ(complete(state, 1), kInvalidValue);  // Before an image exists.
  ASSERT_EQ(complete(state), 0);
  const std::uint64_t whole = last_.image_bytes;
  Bytes image = part_;
  EXPECT_LT(image.size(), whole);
  while (image.size() < whole && !part_.empty()) {
    ASSERT_EQ(complete(state, image.size()), 0);
    image.insert(image.end(), part_.begin(), part_.end());
  }
  ASSERT_EQ(image.size(), whole);
  const std::string all(reinterpret_cast<const char*>(image.data()), image.size());
  EXPECT_NE(all.find(text), std::string::npos);
  for (const std::uint64_t beyond : {whole, whole + 1, ~std::uint64_t{0}}) {
    EXPECT_EQ(complete(state, beyond), kInvalidValue);
  }
  EXPECT_EQ(destroy(state), 0);
}

TEST_F(WorkerLinks, RefuseDeadStatesAndInvalidRecords) {
  const Handle state = mint();
  EXPECT_EQ(add(state, nullptr, "text"), kInvalidHandle);
  ASSERT_EQ(create(state), 0);
  EXPECT_EQ(create(state), kInvalidHandle);  // The handle is in use.
  EXPECT_EQ(complete(state), 0);
  const Handle stream = world_.make_stream();
  for (const Handle wrong : {stream, world_.context(), Handle{0}, Handle{1}, ~Handle{0}}) {
    EXPECT_EQ(create(wrong), kInvalidHandle);
    EXPECT_EQ(add(wrong, nullptr, "text"), kInvalidHandle);
    EXPECT_EQ(complete(wrong), kInvalidHandle);
    if (wrong != 0) {
      EXPECT_NE(destroy(wrong), 0);
    }
  }
  // Without a context, or without a waiting caller.
  CallSite site = raw("cuLinkAddData_v2");
  site.context = 0;
  EXPECT_EQ(step(site, input(state, nullptr, "text")), kInvalidHandle);
  site = raw("cuLinkCreate_v2");
  site.context = 0;
  protocol::LinkCreate request;
  request.state = mint();
  EXPECT_EQ(step(site, protocol::pack(request)), kInvalidValue);
  EXPECT_EQ(world_.session().post(world_.lane(), raw("cuLinkComplete"), ByteView()), 0);
  EXPECT_EQ(world_.synchronize(), kInvalidValue);
  // The client reads files.
  EXPECT_EQ(step(raw("cuLinkAddFile_v2"), input(state, nullptr, "/etc/hostname")), kNotSupported);
  const Bytes noise(24, std::byte{0x5d});
  for (const char* symbol : {"cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete"}) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, noise.size() - 1}) {
      EXPECT_EQ(step(raw(symbol), ByteView(noise).first(bytes)), kInvalidValue) << symbol;
    }
  }
  EXPECT_EQ(complete(state), 0);
  EXPECT_EQ(destroy(state), 0);
}

TEST_F(WorkerLinks, NumberOfLinksIsBounded) {
  std::vector<Handle> all;
  for (std::size_t i = 0; i < limits::kLinkStatesMax; ++i) {
    all.push_back(mint());
    ASSERT_EQ(create(all.back()), 0) << i;
  }
  const Handle beyond = mint();
  EXPECT_EQ(create(beyond), kOutOfMemory);
  EXPECT_EQ(destroy(all.back()), 0);
  EXPECT_EQ(create(beyond), 0);
  // WorkerLinks end with their context.
  int ordinal = 0;
  EXPECT_EQ(world_.call("cuDevicePrimaryCtxRelease_v2", {&ordinal}), 0);
  const Handle context = world_.retain_primary_context(0);
  CallSite site = raw("cuLinkCreate_v2");
  site.context = context;
  protocol::LinkCreate request;
  request.state = mint();
  EXPECT_EQ(step(site, protocol::pack(request)), 0);
}

TEST_F(WorkerLinks, InputBytesAreBounded) {
  const Handle state = mint(), other = mint();
  ASSERT_EQ(create(state), 0);
  ASSERT_EQ(create(other), 0);
  // Leaves room for two more inputs. An input counts for more than its bytes.
  server::LinkRegistry& book = state_of_worker->links();
  EXPECT_EQ(book.count_input(state, limits::kLinkBytesMax - 2 * limits::kLinkInputBytesMin), 0);
  EXPECT_EQ(add(other, nullptr, "a"), 0);
  EXPECT_EQ(add(state, nullptr, "b"), 0);
  EXPECT_EQ(add(other, nullptr, "c"), kOutOfMemory);
  EXPECT_EQ(complete(other), 0);
  EXPECT_EQ(destroy(state), 0);
  EXPECT_EQ(add(other, nullptr, "c"), 0);
  EXPECT_EQ(book.count_input(other, limits::kLinkBytesMax), kOutOfMemory);
  EXPECT_EQ(book.count_input(other, ~std::size_t{0}), kOutOfMemory);
  EXPECT_EQ(book.count_input(state, 1), kInvalidHandle);
}

}  // namespace
}  // namespace gpurun::callpath
