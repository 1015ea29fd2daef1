// Staging: memory is registered with the driver part by part, each once, and only as far as it is
// used. The driver is asked once for a part that it refuses. A part that ends with its context is
// registered again.
#include "server/bulk/staging.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "protocol/limits.h"

namespace gpurun::server {
namespace {

constexpr std::size_t kPart = Staging::kPartBytes;
constexpr std::size_t kPartSlots = kPart / limits::kBulkChunkBytes;
constexpr unsigned kPortable = 1;  // CU_MEMHOSTREGISTER_PORTABLE (cuda.h).

// The driver's registrations, and its answer.
struct Asked {
  std::vector<const std::byte*> parts;
  int answer = 0;
  void (*meanwhile)(Staging& staging) = nullptr;
  Staging* staging = nullptr;
} asked;

class StagingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    asked = {};
    asked.staging = &staging_;
    driver_.cuMemHostRegister = [](void* memory, std::size_t bytes, unsigned flags) {
      EXPECT_EQ(bytes, kPart);
      EXPECT_EQ(flags, kPortable);
      asked.parts.push_back(static_cast<const std::byte*>(memory));
      if (asked.meanwhile != nullptr) asked.meanwhile(*asked.staging);
      return asked.answer;
    };
  }
  // Uses staging memory as a copy in `context` does. Returns the number of registrations.
  // `refused_` is the driver's answer.
  std::size_t use(void* context, bool ahead = false, int entered = 0) {
    const std::size_t before = asked.parts.size();
    refused_ = 0;
    if (!staging_.begin_registering(context, ahead)) return 0;
    Staging::Went went = Staging::Went::kOn;
    while (went == Staging::Went::kOn) {
      int refused = 0;
      went = staging_.register_next(driver_, entered, &refused);
      if (refused != 0) refused_ = refused;
    }
    return asked.parts.size() - before;
  }
  std::vector<std::byte*> take(std::size_t slots) {
    std::vector<std::byte*> taken;
    while (taken.size() < slots) taken.push_back(staging_.take());
    return taken;
  }

  void* const one_ = reinterpret_cast<void*>(std::uintptr_t{11});
  void* const other_ = reinterpret_cast<void*>(std::uintptr_t{12});
  DriverFunctions driver_;
  Staging staging_{4 * kPart};
  int refused_ = 0;
};

TEST_F(StagingTest, RegistersEachUsedPartOnce) {
  const std::byte* start = staging_.next();
  EXPECT_FALSE(staging_.settled(start));
  EXPECT_EQ(use(one_), 1u);
  EXPECT_TRUE(staging_.settled(start));
  EXPECT_FALSE(staging_.settled(start + kPart));
  // The same few slots repeatedly.
  for (std::size_t i = 0; i < 4 * kPartSlots; ++i) {
    std::byte* slot = staging_.take();
    EXPECT_EQ(use(i % 2 == 0 ? one_ : other_), 0u);
    staging_.give_back(slot);
  }
  // All of the first part. The next slot is in another part.
  take(kPartSlots);
  EXPECT_EQ(staging_.next(), start + kPart);
  EXPECT_EQ(use(other_), 1u);
  EXPECT_TRUE(staging_.settled(staging_.next()));
  EXPECT_EQ(use(one_, true), 1u);  // One part ahead.
  EXPECT_EQ(use(one_, true), 0u);
  take(3 * kPartSlots);
  EXPECT_EQ(staging_.next(), nullptr);
  EXPECT_EQ(use(one_, true), 1u);
  EXPECT_EQ(use(one_, true), 0u);
  const std::vector<const std::byte*> all = {start, start + kPart, start + 2 * kPart,
                                             start + 3 * kPart};
  EXPECT_EQ(asked.parts, all);
}

TEST_F(StagingTest, ActiveRegistrationCoversConcurrentRequests) {
  ASSERT_TRUE(staging_.begin_registering(one_, false));
  take(kPartSlots);
  EXPECT_FALSE(staging_.begin_registering(other_, true));
  int refused = 0;
  EXPECT_EQ(staging_.register_next(driver_, 0, &refused), Staging::Went::kOn);
  EXPECT_EQ(staging_.register_next(driver_, 0, &refused), Staging::Went::kOn);
  EXPECT_EQ(staging_.register_next(driver_, 0, &refused), Staging::Went::kOver);
  EXPECT_EQ(asked.parts.size(), 3u);
}

TEST_F(StagingTest, StopsRegisteringAfterDriverRefusal) {
  asked.answer = 801;
  const std::byte* start = staging_.next();
  EXPECT_EQ(use(one_, true), 1u);
  EXPECT_EQ(refused_, 801);
  EXPECT_TRUE(staging_.settled(start + 3 * kPart));  // No copy waits for a part that will not be
                                                     // registered.
  take(3 * kPartSlots);
  EXPECT_EQ(use(one_, true), 0u);
  EXPECT_EQ(use(other_), 0u);
}

TEST_F(StagingTest, ReportsFailureToEnterContextAsRefusal) {
  EXPECT_EQ(use(one_, false, 201), 0u);
  EXPECT_EQ(refused_, 201);
  EXPECT_TRUE(staging_.settled(staging_.next()));
  staging_.context_ended(one_);  // The context ended. Others may be entered.
  EXPECT_EQ(use(other_), 1u);
  EXPECT_EQ(refused_, 0);
}

TEST_F(StagingTest, RegistersPartAgainAfterItsContextEnds) {
  const std::byte* start = staging_.next();
  EXPECT_EQ(use(one_), 1u);
  take(kPartSlots);
  EXPECT_EQ(use(other_), 1u);
  staging_.context_ended(nullptr);  // Another context's.
  EXPECT_EQ(use(other_), 0u);
  staging_.context_ended(one_);
  EXPECT_FALSE(staging_.settled(start));
  ASSERT_EQ(use(other_), 1u);
  EXPECT_EQ(asked.parts.back(), start);  // Not the one of the other context.
  EXPECT_TRUE(staging_.settled(start + kPart));
  // A driver that keeps registrations reports it.
  staging_.context_ended(other_);
  asked.answer = 712;  // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED.
  EXPECT_EQ(use(one_), 2u);
  EXPECT_EQ(refused_, 0);
  EXPECT_TRUE(staging_.settled(start + kPart));
}

TEST_F(StagingTest, ContextEndDuringRegistrationLeavesPartUnregistered) {
  asked.answer = 709;  // CUDA_ERROR_CONTEXT_IS_DESTROYED.
  asked.meanwhile = [](Staging& staging) {
    staging.context_ended(reinterpret_cast<void*>(std::uintptr_t{11}));
  };
  EXPECT_EQ(use(one_, true), 1u);
  EXPECT_EQ(refused_, 0);
  EXPECT_FALSE(staging_.settled(staging_.next()));
  asked.answer = 0;
  asked.meanwhile = nullptr;
  EXPECT_EQ(use(other_, true), 2u);
  EXPECT_TRUE(staging_.settled(staging_.next()));
}

// Otherwise the driver would take later memory at this address for the registered one.
TEST_F(StagingTest, RegisteredMemoryStaysMapped) {
  const auto is_mapped = [](std::byte* place) { return msync(place, 4096, MS_ASYNC) == 0; };
  for (const int answer : {0, 1}) {
    auto staging = std::make_unique<Staging>(kPart);
    std::byte* place = staging->take();
    asked.answer = answer;
    int refused = 0;
    ASSERT_TRUE(staging->begin_registering(one_, false));
    while (staging->register_next(driver_, 0, &refused) == Staging::Went::kOn) continue;
    staging.reset();
    EXPECT_EQ(is_mapped(place), answer == 0);
  }
}

}  // namespace
}  // namespace gpurun::server
