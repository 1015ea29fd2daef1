// GraphShadows: memory for graphs' copies is registered once, kept for the next copy of its
// context, and unregistered when no graph has a copy any more. It is never used in a context that
// has ended.
#include "server/handlers/graphs/graph_shadows.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <set>

#include "protocol/calls/graph_host.h"
#include "tests/unit/server/worker/execution/executor_under_test.h"

namespace gpurun::server {
namespace {

constexpr int kRefused = 304;  // CUDA_ERROR_OPERATING_SYSTEM.
constexpr std::size_t kMany = std::size_t{64} << 20;

// A driver that only registers memory. The test may block its unregistration.
struct Registry {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<void*, void*> in;  // Memory -> its context.
  int registered = 0, unregistered = 0, refuses = 0;
  bool holds = false, held = false;
};
Registry* registry = nullptr;

int register_memory(void* memory, std::size_t, unsigned) {
  const std::lock_guard lock(registry->mutex);
  if (registry->refuses != 0) return registry->refuses;
  EXPECT_EQ(registry->in.count(memory), 0u);
  registry->in[memory] = current_context;
  ++registry->registered;
  return 0;
}
int unregister_memory(void* memory) {
  std::unique_lock lock(registry->mutex);
  const auto found = registry->in.find(memory);
  EXPECT_NE(found, registry->in.end());
  if (found == registry->in.end()) return 713;
  EXPECT_EQ(found->second, current_context);
  registry->held = registry->holds;
  registry->changed.notify_all();
  registry->changed.wait_for(lock, kWait, [] { return !registry->holds; });
  registry->in.erase(memory);
  ++registry->unregistered;
  registry->changed.notify_all();
  return 0;
}

class GraphShadowsTest : public ExecutorTest {
 protected:
  using ShadowPtr = std::shared_ptr<GraphShadows::Shadow>;

  void SetUp() override {
    registry = &registry_;
    ExecutorTest::SetUp();
    options_.driver.cuMemHostRegister = register_memory;
    options_.driver.cuMemHostUnregister = unregister_memory;
    start();
    shadows_.set_executor(executor_.get());
  }
  void TearDown() override { end(); }
  void end() {
    shadows_.set_executor(nullptr);
    executor_.reset();  // All helpers have run by then.
  }
  ShadowPtr make(std::uint64_t bytes, void* context) {
    current_context = context;
    ShadowPtr made;
    EXPECT_EQ(shadows_.make(bytes, context, &made), 0);
    if (made != nullptr) EXPECT_EQ(made->size(), bytes);
    return made;
  }
  bool unregistered(int count) {
    std::unique_lock lock(registry_.mutex);
    return registry_.changed.wait_for(lock, kWait, [&] { return registry_.unregistered >= count; });
  }
  int registered() {
    const std::lock_guard lock(registry_.mutex);
    return registry_.registered;
  }

  Registry registry_;
  GraphShadows shadows_;
  void* const one_ = reinterpret_cast<void*>(11);
  void* const other_ = reinterpret_cast<void*>(12);
};

TEST_F(GraphShadowsTest, ReusesMemoryWithinContextUntilLastCopyEnds) {
  ShadowPtr stays = make(100'000, one_);
  ShadowPtr first = make(kMany, one_);
  std::byte* const place = first->data();
  first.reset();
  ShadowPtr second = make(kMany - 4, one_);  // A new one, a little smaller.
  EXPECT_EQ(second->data(), place);
  EXPECT_EQ(registered(), 2);
  second.reset();
  EXPECT_NE(make(kMany, other_)->data(), place) << "it is registered in another context";
  EXPECT_NE(make(kMany / 4, one_)->data(), place) << "much too large";
  EXPECT_EQ(registered(), 4);
  {
    const std::lock_guard lock(registry_.mutex);
    EXPECT_EQ(registry_.unregistered, 0);
  }
  stays.reset();
  EXPECT_TRUE(unregistered(4));
  end();
  EXPECT_NE(make(protocol::kGraphShadowBytesMax, one_), nullptr) << "all has been given back";
}

TEST_F(GraphShadowsTest, UnregistersUnusedMemoryOverLimit) {
  const ShadowPtr stays = make(1, one_);
  std::vector<ShadowPtr> many;
  for (int i = 0; i < 5; ++i) many.push_back(make(kMany, one_));
  for (int i = 0; i < 4; ++i) many.pop_back();
  {
    const std::lock_guard lock(registry_.mutex);
    EXPECT_EQ(registry_.unregistered, 0);
  }
  many.pop_back();
  EXPECT_TRUE(unregistered(5));
}

// Spare memory takes no room from a copy that needs it.
TEST_F(GraphShadowsTest, RequestOverLimitReturnsOutOfMemory) {
  const ShadowPtr most = make(protocol::kGraphShadowBytesMax - kMany, one_);
  (void)make(kMany, one_);
  const ShadowPtr rest = make(kMany / 4, one_);
  EXPECT_NE(rest, nullptr);
  ShadowPtr none;
  EXPECT_EQ(shadows_.make(kMany, one_, &none), kErrorOutOfMemory);
  EXPECT_EQ(shadows_.make(0, one_, &none), kErrorOutOfMemory);
  EXPECT_EQ(shadows_.make(~std::uint64_t{0}, one_, &none), kErrorOutOfMemory);
  EXPECT_EQ(none, nullptr);
}

TEST_F(GraphShadowsTest, DriverRefusalIsReturnedAndUsesNoQuota) {
  for (int i = 0; i < 64; ++i) {  // 4 GiB.
    registry_.refuses = kRefused;
    ShadowPtr none;
    EXPECT_EQ(shadows_.make(kMany, one_, &none), kRefused);
    EXPECT_EQ(none, nullptr);
  }
  registry_.refuses = 0;
  EXPECT_NE(make(protocol::kGraphShadowBytesMax, one_), nullptr);
}

TEST_F(GraphShadowsTest, DoesNotUnregisterMemoryOfEndedContext) {
  ShadowPtr stays = make(1, other_);
  ShadowPtr living = make(kMany, one_);
  std::byte* const place = living->data();
  std::byte* const spare = make(kMany, one_)->data();
  shadows_.context_ends(one_);
  living.reset();
  // A new context may have the old one's address.
  ShadowPtr anew = make(kMany, one_);
  EXPECT_NE(anew->data(), place);
  EXPECT_NE(anew->data(), spare);
  stays.reset();
  anew.reset();
  EXPECT_TRUE(unregistered(2));
  end();
  EXPECT_EQ(registry_.in.size(), 2u);
  EXPECT_EQ(registry_.in.count(place) + registry_.in.count(spare), 2u);
}

TEST_F(GraphShadowsTest, ContextEndWaitsForRunningUnregistration) {
  registry_.holds = true;
  (void)make(kMany, one_);
  {
    std::unique_lock lock(registry_.mutex);
    ASSERT_TRUE(registry_.changed.wait_for(lock, kWait, [&] { return registry_.held; }));
  }
  std::atomic<bool> ended{false};
  std::thread ends([&] {
    shadows_.context_ends(one_);
    ended = true;
  });
  // Time to make the mistake.
  for (int i = 0; i < 10'000 && !ended; ++i) std::this_thread::yield();
  EXPECT_FALSE(ended);
  {
    const std::lock_guard lock(registry_.mutex);
    registry_.holds = false;
  }
  registry_.changed.notify_all();
  ends.join();
  EXPECT_EQ(registry_.unregistered, 1);
}

}  // namespace
}  // namespace gpurun::server
