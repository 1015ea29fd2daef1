// Link calls: what is packed unpacks the same, and nothing is read beyond the end of a peer's
// bytes, whatever they claim to hold.
#include "protocol/calls/link_calls.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "protocol/limits.h"

namespace gpurun::protocol {
namespace {

const std::string kText = ".version 8.0\n";

LinkCreate some_create() {
  LinkCreate create;
  create.state = 7;
  create.options = {{0, 32}, {12, 1}};
  create.wall_time = true;
  create.info_log_bytes = kJitLogBytesMax;
  create.error_log_bytes = 1;
  return create;
}

LinkInput some_input() {
  LinkInput input;
  input.state = 7;
  input.type = 1;
  input.named = true;
  input.name = "a.ptx";
  input.options = {{7, 4}};
  input.data = byte_view(kText.data(), kText.size());
  return input;
}

LinkReply some_reply() {
  LinkReply reply;
  reply.result = 218;
  reply.wall_time = 0x3f800000;
  reply.info_log_value = 5;
  reply.error_log_value = 9;
  reply.info_log = "info\n";
  reply.error_log = "an error";
  reply.image_bytes = 1000;
  reply.part = byte_view(kText.data(), kText.size());
  return reply;
}

std::string text_of(ByteView bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Shorter and longer payloads are refused.
template <typename Unpack>
void expect_exact_length(Bytes payload, Unpack unpack) {
  for (std::size_t bytes = 0; bytes < payload.size(); ++bytes) {
    EXPECT_FALSE(unpack(ByteView(payload).first(bytes)).ok()) << bytes;
  }
  EXPECT_TRUE(unpack(payload).ok());
  payload.push_back(std::byte{0});
  EXPECT_FALSE(unpack(payload).ok());
}

template <typename T>
void put(Bytes& payload, std::size_t at, T value) {
  std::memcpy(payload.data() + at, &value, sizeof value);
}

TEST(LinkCalls, RoundTripUnchanged) {
  const Bytes created = pack(some_create());
  const auto create = unpack_link_create(created);
  ASSERT_TRUE(create.ok());
  EXPECT_EQ(create->state, 7u);
  EXPECT_TRUE(create->wall_time);
  EXPECT_EQ(create->info_log_bytes, kJitLogBytesMax);
  EXPECT_EQ(create->error_log_bytes, 1u);
  ASSERT_EQ(create->options.size(), 2u);
  EXPECT_EQ(create->options[1].id, 12);
  EXPECT_EQ(create->options[0].value, 32u);

  const Bytes added = pack(some_input());
  const auto input = unpack_link_input(added);
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(input->name, "a.ptx");
  EXPECT_TRUE(input->named);
  EXPECT_EQ(input->type, 1u);
  EXPECT_EQ(text_of(input->data), kText);

  const Bytes replied = pack(some_reply());
  const auto reply = unpack_link_reply(replied);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->result, 218);
  EXPECT_EQ(reply->wall_time, 0x3f800000u);
  EXPECT_EQ(reply->info_log_value, 5u);
  EXPECT_EQ(reply->error_log_value, 9u);
  EXPECT_EQ(reply->info_log, "info\n");
  EXPECT_EQ(reply->error_log, "an error");
  EXPECT_EQ(reply->image_bytes, 1000u);
  EXPECT_EQ(text_of(reply->part), kText);
}

TEST(LinkCalls, RefuseWrongLengths) {
  expect_exact_length(pack(some_create()), unpack_link_create);
  expect_exact_length(pack(some_input()), unpack_link_input);
  expect_exact_length(pack(some_reply()), unpack_link_reply);
  const LinkComplete complete{7, 9};
  const ByteView bytes = bytes_of(complete);
  expect_exact_length(Bytes(bytes.begin(), bytes.end()), unpack_link_complete);
}

TEST(LinkCalls, RefuseValuesOverBounds) {
  LinkCreate create = some_create();
  create.options.resize(kJitOptionsMax + 1);
  EXPECT_FALSE(unpack_link_create(pack(create)).ok());
  create = some_create();
  create.info_log_bytes = kJitLogBytesMax + 1;
  EXPECT_FALSE(unpack_link_create(pack(create)).ok());

  LinkInput input = some_input();
  input.name.assign(limits::kStringBytesMax - 1, 'n');
  EXPECT_TRUE(unpack_link_input(pack(input)).ok());
  input.name += "n";
  EXPECT_FALSE(unpack_link_input(pack(input)).ok());
  input.name = std::string("a\0b", 3);
  EXPECT_FALSE(unpack_link_input(pack(input)).ok());

  LinkReply reply = some_reply();
  reply.image_bytes = kText.size() - 1;  // Less than its part.
  EXPECT_FALSE(unpack_link_reply(pack(reply)).ok());
  reply.image_bytes = limits::kImageBytesMax + 1;
  EXPECT_FALSE(unpack_link_reply(pack(reply)).ok());
  reply = some_reply();
  reply.info_log.assign(kJitLogBytesMax + 1, 'l');
  EXPECT_FALSE(unpack_link_reply(pack(reply)).ok());
}

// False counts, at each place of a count, overflow no sum.
TEST(LinkCalls, RefuseFalseCounts) {
  for (const std::uint32_t lie : {0x7fff'ffffu, 0x8000'0000u, 0xffff'ffffu}) {
    Bytes payload = pack(some_create());
    put(payload, 8, lie);
    EXPECT_FALSE(unpack_link_create(payload).ok());
    for (const std::size_t at :
         {std::size_t{12}, std::size_t{20}, std::size_t{24}, std::size_t{28}}) {
      payload = pack(some_input());
      put(payload, at, lie);
      EXPECT_FALSE(unpack_link_input(payload).ok()) << at;
    }
    for (const std::size_t at :
         {std::size_t{16}, std::size_t{20}, std::size_t{32}, std::size_t{36}}) {
      payload = pack(some_reply());
      put(payload, at, lie);
      EXPECT_FALSE(unpack_link_reply(payload).ok()) << at;
    }
  }
}

TEST(LinkCalls, LargestPartFillsReply) {
  LinkReply reply = some_reply();
  const std::size_t most = link_part_bytes_max(reply);
  const Bytes image(most);
  reply.image_bytes = most;
  reply.part = image;
  EXPECT_EQ(pack(reply).size(), kReplyPayloadBytesMax);
}

}  // namespace
}  // namespace gpurun::protocol
