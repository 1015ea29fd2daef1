// Handles: stale, foreign and wrong-kind values are recognised, and no handle can be a pointer.
#include "client/log/handles.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace gpurun::client {
namespace {

constexpr int kHandleInvalid = 400;         // CUDA_ERROR_INVALID_HANDLE
constexpr int kHandleContextInvalid = 201;  // CUDA_ERROR_INVALID_CONTEXT

TEST(HandleTable, RejectsStaleAndWrongKindHandles) {
  const auto table = std::make_unique<HandleTable>();
  int object = 0;
  const Handle stream = table->mint(HandleKind::kStream, 9, &object);
  EXPECT_EQ(table->check(stream, HandleKind::kStream), 0);
  EXPECT_EQ(table->check(stream, HandleKind::kEvent), kHandleInvalid);
  EXPECT_EQ(table->check(stream, HandleKind::kContext), kHandleContextInvalid);
  EXPECT_EQ(table->context_of(stream), 9u);
  EXPECT_EQ(table->retire(stream), &object);
  EXPECT_EQ(table->check(stream, HandleKind::kStream), kHandleInvalid);
  EXPECT_EQ(table->retire(stream), nullptr);
  for (const Handle garbage : {Handle{0}, Handle{1}, Handle{2}, ~Handle{0}, stream + 1}) {
    EXPECT_NE(table->check(garbage, HandleKind::kStream), 0);
  }
}

TEST(HandleTable, HandlesNeverRepeatOrLookLikeAddresses) {
  const auto table = std::make_unique<HandleTable>();
  std::set<Handle> seen;
  for (int round = 0; round < 20'000; ++round) {
    const Handle event = table->mint(HandleKind::kEvent, 0, nullptr);
    EXPECT_TRUE(seen.insert(event).second);
    EXPECT_NE(event >> 47, 0u);
    EXPECT_NE(event >> 47, 0x1FFFFu);
    table->retire(event);
  }
  EXPECT_EQ(table->live_count(), 0u);
}

TEST(HandleTable, PoisonedHandleFailsUseButAllowsEnd) {
  const auto table = std::make_unique<HandleTable>();
  const Handle module = table->mint(HandleKind::kModule, 0, nullptr);
  table->poison(module, 209);
  EXPECT_EQ(table->check(module, HandleKind::kModule), 209);
  // Its end is allowed once.
  EXPECT_EQ(table->check_end(module, HandleKind::kModule), 0);
  EXPECT_EQ(table->check_end(module, HandleKind::kStream), kHandleInvalid);
  table->retire(module);
  EXPECT_EQ(table->check_end(module, HandleKind::kModule), kHandleInvalid);
}

TEST(HandleTable, RetainedHandleEndsWithLastRelease) {
  const auto table = std::make_unique<HandleTable>();
  int object = 0;
  const Handle memory = table->mint(HandleKind::kAllocation, 0, &object);
  table->retain(memory);
  EXPECT_EQ(table->release(memory), nullptr);
  EXPECT_EQ(table->check(memory, HandleKind::kAllocation), 0);
  EXPECT_EQ(table->release(memory), &object);
  EXPECT_NE(table->check(memory, HandleKind::kAllocation), 0);
  EXPECT_EQ(table->release(memory), nullptr);
  table->retain(memory);  // No object has it.
  const Handle next = table->mint(HandleKind::kAllocation, 0, &object);
  EXPECT_EQ(table->release(next), &object);
}

TEST(HandleTable, RetiringContextRetiresItsHandles) {
  const auto table = std::make_unique<HandleTable>();
  const Handle context = table->mint(HandleKind::kContext, 0, nullptr);
  const Handle inside = table->mint(HandleKind::kStream, context, nullptr);
  const Handle outside = table->mint(HandleKind::kStream, 0, nullptr);
  table->retire_context(context, nullptr, nullptr);
  EXPECT_NE(table->check(inside, HandleKind::kStream), 0);
  EXPECT_EQ(table->check(outside, HandleKind::kStream), 0);
  EXPECT_EQ(table->check(context, HandleKind::kContext), 0);
}

TEST(HandleTable, EnforcesExactLimit) {
  const auto table = std::make_unique<HandleTable>();
  Handle last = 0;
  for (std::size_t count = 0; count < limits::kHandlesMax; ++count) {
    last = table->mint(HandleKind::kEvent, 0, nullptr);
    ASSERT_NE(last, 0u);
  }
  EXPECT_EQ(table->mint(HandleKind::kEvent, 0, nullptr), 0u);
  table->retire(last);
  EXPECT_NE(table->mint(HandleKind::kEvent, 0, nullptr), 0u);
}

}  // namespace
}  // namespace gpurun::client
