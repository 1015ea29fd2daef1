// MemoryAdvice: advice holds for whole pages, ends with its allocation, and an attribute of a range
// is what all of its pages have in common.
#include "driver_abi/state/memory_advice.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpurun::driver_abi {
namespace {

constexpr std::uint64_t kBase = 0x10'0000'0000, kPage = MemoryAdvice::kPageBytes;
constexpr std::uint64_t kBytes = 8 * kPage;
constexpr int kDevices = 2;

CUmemLocation device(int id) { return location_of(id); }

class MemoryAdviceTest : public ::testing::Test {
 protected:
  MemoryAdviceTest() {
    advice_.add(kBase, kBytes);
    advice_.add(kBase + kBytes, kBytes);  // A neighbour.
  }
  CUresult advise(std::uint64_t page, std::uint64_t pages, CUmem_advise what,
                  CUmemLocation location = {}) {
    return advice_.advise(kBase + page * kPage, pages * kPage, what, location, kDevices);
  }
  int value(CUmem_range_attribute which, std::uint64_t page, std::uint64_t pages) const {
    int value = -99;
    EXPECT_EQ(advice_.attribute(&value, sizeof value, which, kBase + page * kPage, pages * kPage),
              CUDA_SUCCESS);
    return value;
  }
  std::vector<int> accessed_by(std::uint64_t page, std::uint64_t pages) const {
    std::vector<int> devices(4, -99);
    EXPECT_EQ(advice_.attribute(devices.data(), 4 * sizeof(int), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
                                kBase + page * kPage, pages * kPage),
              CUDA_SUCCESS);
    return devices;
  }
  MemoryAdvice advice_;
};

constexpr int kNone = CU_DEVICE_INVALID, kCpu = CU_DEVICE_CPU;

TEST_F(MemoryAdviceTest, AttributeIsWhatAllPagesHaveInCommon) {
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, 8), 0);
  EXPECT_EQ(advise(2, 3, CU_MEM_ADVISE_SET_READ_MOSTLY), CUDA_SUCCESS);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 2, 3), 1);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 3, 1), 1);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 1, 2), 0);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 4, 2), 0);
  EXPECT_EQ(advise(0, 8, CU_MEM_ADVISE_SET_READ_MOSTLY), CUDA_SUCCESS);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, 8), 1);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 8, 8), 0) << "of the neighbour";
  EXPECT_EQ(advise(3, 1, CU_MEM_ADVISE_UNSET_READ_MOSTLY), CUDA_SUCCESS);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, 8), 0);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 4, 4), 1);
}

TEST_F(MemoryAdviceTest, PartOfPageCountsAsPage) {
  EXPECT_EQ(advice_.advise(kBase + kPage + 100, 8, CU_MEM_ADVISE_SET_READ_MOSTLY, {}, kDevices),
            CUDA_SUCCESS);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 1, 1), 1);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, 1), 0);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 2, 1), 0);
}

TEST_F(MemoryAdviceTest, LocationsAreDevicesOrTheHost) {
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 0, 8), kNone);
  EXPECT_EQ(advise(0, 8, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device(1)), CUDA_SUCCESS);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 0, 8), 1);
  EXPECT_EQ(advise(4, 1, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location_of(CU_DEVICE_CPU)),
            CUDA_SUCCESS);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 4, 1), kCpu);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 0, 8), kNone);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, 0, 4),
            CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, 0, 4), 1);
  EXPECT_EQ(advise(0, 8, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION), CUDA_SUCCESS);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 0, 8), kNone);

  EXPECT_EQ(advice_.prefetch(kBase, kBytes, device(0), 0, kDevices), CUDA_SUCCESS);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 0, 8), 0);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 8, 8), kNone);
}

TEST_F(MemoryAdviceTest, DevicesThatAccessAreListed) {
  EXPECT_EQ(advise(0, 8, CU_MEM_ADVISE_SET_ACCESSED_BY, device(1)), CUDA_SUCCESS);
  EXPECT_EQ(advise(0, 4, CU_MEM_ADVISE_SET_ACCESSED_BY, device(0)), CUDA_SUCCESS);
  EXPECT_EQ(advise(0, 4, CU_MEM_ADVISE_SET_ACCESSED_BY, device(0)), CUDA_SUCCESS);
  EXPECT_EQ(accessed_by(0, 4), (std::vector<int>{1, 0, kNone, kNone}));
  EXPECT_EQ(accessed_by(0, 8), (std::vector<int>{1, kNone, kNone, kNone}));
  EXPECT_EQ(advise(0, 8, CU_MEM_ADVISE_UNSET_ACCESSED_BY, device(1)), CUDA_SUCCESS);
  EXPECT_EQ(accessed_by(0, 4), (std::vector<int>{0, kNone, kNone, kNone}));
}

TEST_F(MemoryAdviceTest, RefusesWrongArguments) {
  const auto prefetch = [this](std::uint64_t at, std::uint64_t bytes, CUmemLocation to,
                               unsigned flags = 0) {
    return advice_.prefetch(at, bytes, to, flags, kDevices);
  };
  EXPECT_EQ(prefetch(kBase, 0, device(0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(prefetch(kBase - 1, 2, device(0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(prefetch(kBase, kBytes + 1, device(0)), CUDA_ERROR_INVALID_VALUE) << "two allocations";
  EXPECT_EQ(prefetch(kBase, ~std::uint64_t{0}, device(0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(prefetch(kBase + 2 * kBytes, 1, device(0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(prefetch(kBase, 1, device(0), 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(prefetch(kBase, 1, device(kDevices)), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(prefetch(kBase, 1, device(-5)), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(prefetch(kBase, 1, CUmemLocation{}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(advise(0, 1, static_cast<CUmem_advise>(0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(advise(0, 1, static_cast<CUmem_advise>(7)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(advise(0, 1, CU_MEM_ADVISE_SET_ACCESSED_BY, device(9)), CUDA_ERROR_INVALID_DEVICE);
  int two[2];
  const auto attribute = [this](void* out, std::size_t bytes, CUmem_range_attribute which) {
    return advice_.attribute(out, bytes, which, kBase, 1);
  };
  EXPECT_EQ(attribute(two, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(attribute(two, 6, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(attribute(two, 0, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(attribute(nullptr, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(attribute(two, 4, static_cast<CUmem_range_attribute>(0)), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryAdviceTest, BatchPrefetchesEachRangeToItsLocation) {
  const CUdeviceptr at[] = {kBase, kBase + 2 * kPage, kBase + 4 * kPage};
  const std::size_t sizes[] = {kPage, kPage, kPage}, starts[] = {0, 2};
  CUmemLocation host{};
  host.type = CU_MEM_LOCATION_TYPE_HOST;
  const CUmemLocation places[] = {device(1), host};
  const MemoryAdvice::Batch batch{at, sizes, 3, places, starts, 2, 0};
  EXPECT_EQ(advice_.prefetch(batch, kDevices), CUDA_SUCCESS);
  constexpr auto kWhere = CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;
  EXPECT_EQ(value(kWhere, 0, 1), 1);
  EXPECT_EQ(value(kWhere, 1, 1), CU_DEVICE_INVALID);
  EXPECT_EQ(value(kWhere, 2, 1), 1);
  EXPECT_EQ(value(kWhere, 4, 1), CU_DEVICE_CPU);
  EXPECT_EQ(advice_.discard({at, sizes, 3}), CUDA_SUCCESS);
}

TEST_F(MemoryAdviceTest, WrongBatchChangesNothing) {
  const CUdeviceptr at[] = {kBase, kBase + 2 * kPage}, outside[] = {kBase, kBase + 9 * kBytes};
  const std::size_t sizes[] = {kPage, kPage}, starts[] = {0, 1}, late[] = {1, 1}, same[] = {0, 0},
                    beyond[] = {0, 2};
  const CUmemLocation places[] = {device(0), device(0)}, wrong[] = {device(0), device(9)};
  using Batch = MemoryAdvice::Batch;
  const Batch right{at, sizes, 2, places, starts, 2, 0};
  const auto changed = [&](auto change) {
    Batch batch = right;
    change(batch);
    return advice_.prefetch(batch, kDevices);
  };
  constexpr CUresult kInvalid = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(changed([&](Batch& of) { of.addresses = outside; }), kInvalid);
  EXPECT_EQ(changed([](Batch& of) { of.addresses = nullptr; }), kInvalid);
  EXPECT_EQ(changed([](Batch& of) { of.sizes = nullptr; }), kInvalid);
  EXPECT_EQ(changed([](Batch& of) { of.count = 1; }), kInvalid) << "more locations than ranges";
  EXPECT_EQ(changed([](Batch& of) { of.location_count = 0; }), kInvalid);
  EXPECT_EQ(changed([](Batch& of) { of.locations = nullptr; }), kInvalid);
  EXPECT_EQ(changed([](Batch& of) { of.starts = nullptr; }), kInvalid);
  for (const std::size_t* each : {late, same, beyond}) {
    EXPECT_EQ(changed([&](Batch& of) { of.starts = each; }), kInvalid);
  }
  EXPECT_EQ(changed([](Batch& of) { of.flags = 1; }), kInvalid);
  EXPECT_EQ(changed([&](Batch& of) { of.locations = wrong; }), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(advice_.discard({outside, sizes, 2}), kInvalid);
  EXPECT_EQ(advice_.discard({at, sizes, 2, nullptr, nullptr, 0, 1}), kInvalid);
  EXPECT_EQ(advice_.discard({}), kInvalid);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 0, 1), CU_DEVICE_INVALID);
}

TEST_F(MemoryAdviceTest, AdviceEndsWithItsAllocation) {
  EXPECT_EQ(advise(1, 2, CU_MEM_ADVISE_SET_READ_MOSTLY), CUDA_SUCCESS);
  EXPECT_EQ(advise(9, 2, CU_MEM_ADVISE_SET_READ_MOSTLY), CUDA_SUCCESS);
  advice_.remove(kBase);
  EXPECT_FALSE(advice_.holds(kBase + kPage, 1));
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 9, 2), 1) << "of the neighbour";
  advice_.add(kBase, kBytes);
  EXPECT_EQ(value(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 1, 2), 0);
}

}  // namespace
}  // namespace gpurun::driver_abi
