// Handle table: the worker trusts no handle. It checks kind, lifetime and form, and returns
// failures of creations. A value that the driver has reused belongs to its newest owner.
#include "server/worker/execution/handles.h"

#include <gtest/gtest.h>

#include "protocol/calls/handle_form.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {
namespace {

std::uint64_t handle(HandleKind kind, std::uint64_t index) {
  return protocol::kHandleTag << protocol::kHandleTagShift |
         static_cast<std::uint64_t>(kind) << protocol::kHandleKindShift |
         std::uint64_t{1} << protocol::kHandleGenerationShift | index;
}

const std::uint64_t kEventHandle = handle(HandleKind::kEvent, 7);

TEST(ServerHandles, FindsAndErasesBoundHandle) {
  HandleTable table;
  ASSERT_EQ(table.bind(kEventHandle, HandleKind::kEvent, 0x1234), 0);
  EXPECT_EQ(table.find(kEventHandle, HandleKind::kEvent).value, 0x1234U);
  EXPECT_EQ(table.client_handle_of(0x1234, HandleKind::kEvent), kEventHandle);
  EXPECT_EQ(table.client_handle_of(0x1234, HandleKind::kStream), 0U);
  const HandleTable::Found erased = table.erase(kEventHandle, HandleKind::kEvent);
  EXPECT_EQ(erased.result, 0);
  EXPECT_EQ(erased.value, 0x1234U);
  EXPECT_EQ(table.find(kEventHandle, HandleKind::kEvent).result, kErrorInvalidHandle);
  EXPECT_EQ(table.erase(kEventHandle, HandleKind::kEvent).result, kErrorInvalidHandle);
  EXPECT_EQ(table.client_handle_of(0x1234, HandleKind::kEvent), 0U);
  EXPECT_EQ(table.size(), 0U);
}

TEST(ServerHandles, RefusesWrongKind) {
  HandleTable table;
  ASSERT_EQ(table.bind(kEventHandle, HandleKind::kEvent, 1), 0);
  EXPECT_EQ(table.find(kEventHandle, HandleKind::kStream).result, kErrorInvalidHandle);
  EXPECT_EQ(table.find(kEventHandle, HandleKind::kContext).result, kErrorInvalidContext);
  EXPECT_EQ(table.erase(kEventHandle, HandleKind::kStream).result, kErrorInvalidHandle);
  EXPECT_EQ(table.find(kEventHandle, HandleKind::kEvent).result, 0);
}

TEST(ServerHandles, RefusesHandlesThatClientCannotMint) {
  HandleTable table;
  EXPECT_EQ(table.bind(0x7f0000001000, HandleKind::kEvent, 1), kErrorInvalidHandle);
  EXPECT_EQ(table.bind(kEventHandle, HandleKind::kStream, 1), kErrorInvalidHandle);
  EXPECT_EQ(table.bind(0, HandleKind::kNone, 1), kErrorInvalidHandle);
  const auto texture = handle(HandleKind::kTextureObject, 1);
  EXPECT_EQ(table.bind(texture, HandleKind::kTextureObject, 1), kErrorInvalidHandle);
  ASSERT_EQ(table.bind(kEventHandle, HandleKind::kEvent, 1), 0);
  EXPECT_EQ(table.bind(kEventHandle, HandleKind::kEvent, 2), kErrorInvalidHandle);
  EXPECT_EQ(table.poison(kEventHandle, HandleKind::kEvent, 2), kErrorInvalidHandle);
  EXPECT_EQ(table.find(kEventHandle, HandleKind::kEvent).value, 1U);
}

TEST(ServerHandles, PoisonedHandleReturnsItsFailure) {
  HandleTable table;
  ASSERT_EQ(table.poison(kEventHandle, HandleKind::kEvent, kErrorOutOfMemory), 0);
  EXPECT_EQ(table.find(kEventHandle, HandleKind::kEvent).result, kErrorOutOfMemory);
  EXPECT_EQ(table.client_handle_of(0, HandleKind::kEvent), 0U);
  EXPECT_EQ(table.erase(kEventHandle, HandleKind::kEvent).result, kErrorOutOfMemory);
  EXPECT_EQ(table.find(kEventHandle, HandleKind::kEvent).result, kErrorInvalidHandle);
}

TEST(ServerHandles, ForgetPoisonedErasesOnlyPoisonedHandle) {
  HandleTable table;
  const auto live = handle(HandleKind::kEvent, 8);
  ASSERT_EQ(table.poison(kEventHandle, HandleKind::kEvent, kErrorOutOfMemory), 0);
  ASSERT_EQ(table.bind(live, HandleKind::kEvent, 5), 0);
  EXPECT_FALSE(table.forget_poisoned(kEventHandle, HandleKind::kStream));
  EXPECT_TRUE(table.forget_poisoned(kEventHandle, HandleKind::kEvent));
  EXPECT_FALSE(table.forget_poisoned(kEventHandle, HandleKind::kEvent));
  EXPECT_FALSE(table.forget_poisoned(live, HandleKind::kEvent));
  EXPECT_EQ(table.size(), 1u);
}

TEST(ServerHandles, ReusedValueBelongsToNewestOwner) {
  HandleTable table;
  const auto younger = handle(HandleKind::kEvent, 8);
  ASSERT_EQ(table.bind(kEventHandle, HandleKind::kEvent, 5), 0);
  ASSERT_EQ(table.bind(younger, HandleKind::kEvent, 5), 0);
  EXPECT_EQ(table.client_handle_of(5, HandleKind::kEvent), younger);
  EXPECT_EQ(table.erase(kEventHandle, HandleKind::kEvent).result, 0);
  EXPECT_EQ(table.client_handle_of(5, HandleKind::kEvent), younger);
}

TEST(ServerHandles, LastReleaseErasesRetainedHandle) {
  HandleTable table;
  const auto memory = handle(HandleKind::kAllocation, 3);
  ASSERT_EQ(table.bind(memory, HandleKind::kAllocation, 5), 0);
  table.retain(memory);
  table.release(memory, HandleKind::kEvent);  // Another kind, so it has no effect.
  table.release(memory, HandleKind::kAllocation);
  EXPECT_EQ(table.find(memory, HandleKind::kAllocation).value, 5u);
  table.release(memory, HandleKind::kAllocation);
  EXPECT_NE(table.find(memory, HandleKind::kAllocation).result, 0);
  EXPECT_EQ(table.client_handle_of(5, HandleKind::kAllocation), 0u);
}

TEST(ServerHandles, LimitsNumberOfHandles) {
  HandleTable table;
  for (std::uint64_t i = 0; i < limits::kHandlesMax; ++i) {
    ASSERT_EQ(table.poison(handle(HandleKind::kEvent, i), HandleKind::kEvent, 1), 0);
  }
  const auto stream = handle(HandleKind::kStream, 0);
  EXPECT_EQ(table.bind(stream, HandleKind::kStream, 1), kErrorOutOfMemory);
  ASSERT_EQ(table.erase(kEventHandle, HandleKind::kEvent).result, 1);
  EXPECT_EQ(table.bind(stream, HandleKind::kStream, 1), 0);
}

// A session that makes graph after graph would run out of handles, and a value that the driver uses
// again would be known by a handle that is no more.
TEST(ServerHandles, EndOfGraphEndsItsNodesAndTheirGraphs) {
  HandleTable table;
  const auto graph = handle(HandleKind::kGraph, 1), body = handle(HandleKind::kGraph, 2);
  const auto node = handle(HandleKind::kGraphNode, 3), inner = handle(HandleKind::kGraphNode, 4);
  const auto failed = handle(HandleKind::kGraphNode, 5), other = handle(HandleKind::kGraphNode, 6);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    ASSERT_EQ(table.bind(graph, HandleKind::kGraph, 101), 0);
    ASSERT_EQ(table.bind(node, HandleKind::kGraphNode, 103, graph), 0);
    ASSERT_EQ(table.bind(body, HandleKind::kGraph, 102, node), 0);
    ASSERT_EQ(table.bind(inner, HandleKind::kGraphNode, 104, body), 0);
    ASSERT_EQ(table.poison(failed, HandleKind::kGraphNode, 1, graph), 0);
    ASSERT_EQ(table.bind(other, HandleKind::kGraphNode, 106), 0);
    EXPECT_EQ(table.owner_of(inner), body);
    if (round == 1) {
      EXPECT_EQ(table.erase(graph, HandleKind::kGraph).value, 101U);
    } else if (round == 2) {
      EXPECT_EQ(table.end_owned(graph), std::vector<DriverValue>{102});
      EXPECT_EQ(table.size(), 2U);
      EXPECT_EQ(table.find(graph, HandleKind::kGraph).value, 101U);
      (void)table.erase(graph, HandleKind::kGraph);
    } else {
      (void)table.erase(node, HandleKind::kGraphNode);
      EXPECT_NE(table.find(inner, HandleKind::kGraphNode).result, 0);
      EXPECT_EQ(table.find(failed, HandleKind::kGraphNode).result, 1) << "it ends with the graph";
      (void)table.erase(graph, HandleKind::kGraph);
    }
    EXPECT_EQ(table.client_handle_of(104, HandleKind::kGraphNode), 0U);
    EXPECT_EQ(table.size(), 1U);
    (void)table.erase(other, HandleKind::kGraphNode);
  }
}

// Members that end before their owner take no room.
TEST(ServerHandles, OwnerThatLivesLongForgetsEndedMembers) {
  protocol::OwnedHandles owned;
  for (std::uint64_t member = 10; member < 100'000; ++member) {
    owned.add(1, member, [member](std::uint64_t each) { return each + 5 > member; });
  }
  EXPECT_LT(owned.take(1).size(), 200U);
  EXPECT_TRUE(owned.take(1).empty());
}

}  // namespace
}  // namespace gpurun::server
