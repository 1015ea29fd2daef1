// Device memory that an RDMA device reads into: whole allocations, a bounded number of them, and
// none that the driver has freed.
#include "server/driver/direct_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace gpurun::server {
namespace {

using transport::RemoteMemory;

// Remembers the device memory that it has.
class CountingMemory final : public RemoteMemory {
 public:
  bool works() const noexcept override { return true; }
  Result<std::uint32_t> lend(ByteView) override { return Status(Code::kUnavailable, "not here"); }
  void take_back(std::uint32_t) noexcept override {}
  Status enroll(MutableBytes) override { return {}; }
  void withdraw() noexcept override {}
  Result<std::uint32_t> enroll_device(const DeviceMemory& memory) override {
    if (enrolls_.valid()) {
      begun_ = true;
      enrolls_.wait_for(std::chrono::seconds(20));
    }
    const std::lock_guard lock(mutex_);
    if (refused_.count(memory.address) != 0) return Status(Code::kResourceExhausted, "no room");
    has_.insert(++last_);
    asked_.push_back(memory);
    return last_;
  }
  bool withdraw_device(std::uint32_t key) noexcept override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(has_.erase(key), 1U) << "taken back twice";
    return true;
  }
  std::size_t read_bytes_max() const noexcept override { return 1 << 20; }
  Began begin_read(const Read&) noexcept override { return Began::kFailed; }
  std::size_t await_reads(std::span<Ended>, Deadline) noexcept override { return 0; }
  void give_up() noexcept override {}

  std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return has_.size();
  }
  std::set<std::uint64_t> refused_;   // Addresses.
  std::shared_future<void> enrolls_;  // enroll_device() waits for it.
  std::atomic<bool> begun_{false};    // enroll_device() has begun to wait.
  std::vector<DeviceMemory> asked_;

 private:
  mutable std::mutex mutex_;
  std::set<std::uint32_t> has_;
  std::uint32_t last_ = 0;
};

CudaDriver& driver() {
  static CudaDriver* const opened = [] {
    auto driver = CudaDriver::open(EMULATED_DEVICE);
    EXPECT_TRUE(driver.ok()) << driver.status().to_string();
    EXPECT_TRUE((*driver)->initialize().ok());
    return driver->release();
  }();
  return *opened;
}

class DirectMemoryTest : public ::testing::Test {
 protected:
  DirectMemoryTest() {
    EXPECT_EQ(GPURUN_DRIVER(driver(), cuDevicePrimaryCtxRetain, &context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(GPURUN_DRIVER(driver(), cuCtxSetCurrent, context_), CUDA_SUCCESS);
    direct_.allow();
    direct_.begin(&remote_);
  }
  ~DirectMemoryTest() override {
    direct_.end();
    EXPECT_EQ(remote_.count(), 0U) << "memory stays with the device";
    for (const CUdeviceptr each : memory_) free(each);
    (void)GPURUN_DRIVER(driver(), cuDevicePrimaryCtxRelease_v2, 0);
  }

  CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(GPURUN_DRIVER(driver(), cuMemAlloc_v2, &memory, bytes), CUDA_SUCCESS);
    return memory;
  }
  static void free(CUdeviceptr memory) {
    EXPECT_EQ(GPURUN_DRIVER(driver(), cuMemFree_v2, memory), CUDA_SUCCESS);
  }
  // As a copy does it.
  bool prepare(std::uint64_t address, std::uint64_t bytes) {
    return direct_.reaches(address, bytes) && direct_.prepare(context_, address, bytes);
  }

  CUcontext context_ = nullptr;
  CountingMemory remote_;
  DirectMemory direct_{driver()};
  std::vector<CUdeviceptr> memory_;  // Freed at the end.
};

constexpr std::size_t kBytes = std::size_t{60} << 20;

TEST_F(DirectMemoryTest, WholeAllocationIsRegisteredOnce) {
  const CUdeviceptr memory = memory_.emplace_back(allocate(kBytes + 5));
  ASSERT_TRUE(prepare(memory + 100, 1000));
  ASSERT_TRUE(prepare(memory + kBytes, 5));
  ASSERT_EQ(remote_.asked_.size(), 1U);
  EXPECT_EQ(remote_.asked_[0].address, memory);
  EXPECT_EQ(remote_.asked_[0].bytes, kBytes + 4096) << "a dma-buf has whole pages";
  EXPECT_GE(remote_.asked_[0].dma_buf, 0);
  EXPECT_EQ(direct_.begin_use(memory + kBytes, 4096).bytes, 5U) << "beyond the allocation";
  direct_.end_use(memory + kBytes);
  EXPECT_FALSE(direct_.reaches(memory + 6, kBytes));
  EXPECT_FALSE(direct_.reaches(memory, ~std::uint64_t{0}));
}

// The client names the addresses.
TEST_F(DirectMemoryTest, OtherMemoryIsLeftOut) {
  int on_host = 0;
  EXPECT_FALSE(direct_.reaches(reinterpret_cast<std::uint64_t>(&on_host), sizeof on_host));
  EXPECT_FALSE(direct_.reaches(0, 4096));
  CUdeviceptr pooled = 0;
  ASSERT_EQ(GPURUN_DRIVER(driver(), cuMemAllocAsync, &pooled, std::size_t{1} << 20, nullptr),
            CUDA_SUCCESS);
  EXPECT_FALSE(direct_.reaches(pooled, 4096));
  void* pinned = nullptr;
  ASSERT_EQ(GPURUN_DRIVER(driver(), cuMemHostAlloc, &pinned, std::size_t{1} << 20, 0U),
            CUDA_SUCCESS);
  EXPECT_FALSE(direct_.reaches(reinterpret_cast<std::uint64_t>(pinned), 4096));
  (void)GPURUN_DRIVER(driver(), cuMemFreeHost, pinned);
  (void)GPURUN_DRIVER(driver(), cuMemFreeAsync, pooled, nullptr);
}

// The device maps the bytes of the old allocation, which is another one at the same addresses.
TEST_F(DirectMemoryTest, AllocationThatEndedWithoutNoticeIsForgotten) {
  const CUdeviceptr memory = allocate(kBytes);
  ASSERT_TRUE(prepare(memory, kBytes));
  direct_.release(memory, kBytes);
  free(memory);
  EXPECT_FALSE(direct_.reaches(memory, kBytes));
  CUdeviceptr again = 0;
  for (int tries = 0; tries < 1000 && again != memory; ++tries) {
    if (again != 0) free(again);
    again = allocate(kBytes);
  }
  memory_.push_back(again);
  ASSERT_EQ(again, memory) << "the addresses are not used again";
  ASSERT_TRUE(prepare(memory, kBytes));
  EXPECT_EQ(remote_.asked_.size(), 2U);
  EXPECT_EQ(remote_.count(), 1U);
}

TEST_F(DirectMemoryTest, NumberOfRegistrationsIsBounded) {
  constexpr std::size_t kMore = 8;
  for (std::size_t i = 0; i < DirectMemory::kRegisteredMax + kMore; ++i) {
    memory_.push_back(allocate(4096));
    ASSERT_TRUE(prepare(memory_.back(), 4096)) << i;
    // A copy into the first one goes on all the time.
    if (i != 0) direct_.release(memory_.back(), 4096);
    ASSERT_LE(direct_.registered(), DirectMemory::kRegisteredMax);
    ASSERT_LE(remote_.count(), DirectMemory::kRegisteredMax);
  }
  const std::size_t asked = remote_.asked_.size();
  EXPECT_NE(direct_.begin_use(memory_[0], 1).bytes, 0U) << "it had to make room while in use";
  direct_.end_use(memory_[0]);
  EXPECT_EQ(direct_.begin_use(memory_[1], 1).bytes, 0U) << "the oldest one makes room";
  ASSERT_TRUE(prepare(memory_[1], 1));
  EXPECT_EQ(remote_.asked_.size(), asked + 1);
}

TEST_F(DirectMemoryTest, AllHeldRegistrationsRefuseAnother) {
  for (std::size_t i = 0; i < DirectMemory::kRegisteredMax; ++i) {
    memory_.push_back(allocate(4096));
    ASSERT_TRUE(prepare(memory_.back(), 4096)) << i;
  }
  memory_.push_back(allocate(4096));
  EXPECT_FALSE(prepare(memory_.back(), 4096));
  direct_.release(memory_[5], 4096);
  EXPECT_TRUE(prepare(memory_.back(), 4096));
}

TEST_F(DirectMemoryTest, RemovalWaitsForReads) {
  const CUdeviceptr memory = memory_.emplace_back(allocate(kBytes));
  ASSERT_TRUE(prepare(memory, kBytes));
  ASSERT_NE(direct_.begin_use(memory + 4096, 4096).bytes, 0U);
  std::atomic<bool> ending{false};
  auto removal = std::async(std::launch::async, [&] {
    direct_.remove(memory);
    EXPECT_TRUE(ending) << "a read was under way";
  });
  // The removal has begun once no further read may begin.
  while (direct_.begin_use(memory, 1).bytes != 0) direct_.end_use(memory);
  EXPECT_EQ(remote_.count(), 1U);
  ending = true;
  direct_.end_use(memory + 4096);
  removal.get();
  EXPECT_EQ(remote_.count(), 0U);
}

TEST_F(DirectMemoryTest, AbandonTakesAllMemoryFromTheDevice) {
  const CUdeviceptr memory = memory_.emplace_back(allocate(kBytes));
  ASSERT_TRUE(prepare(memory, kBytes));
  ASSERT_NE(direct_.begin_use(memory, 4096).bytes, 0U);
  direct_.abandon();
  EXPECT_EQ(remote_.count(), 0U);
  EXPECT_FALSE(direct_.reaches(memory, kBytes));
  EXPECT_EQ(direct_.begin_use(memory, 4096).bytes, 0U);
  direct_.remove(memory);  // Does not wait for the read without an end.
}

// The kernel takes its time to find the pages. Memory that it has found too late would stay with
// the device.
TEST_F(DirectMemoryTest, RemovalWaitsForRegistration) {
  const CUdeviceptr memory = memory_.emplace_back(allocate(kBytes));
  std::promise<void> registers;
  remote_.enrolls_ = registers.get_future().share();
  ASSERT_TRUE(direct_.reaches(memory, kBytes));
  auto preparing =
      std::async(std::launch::async, [&] { return direct_.prepare(context_, memory, kBytes); });
  while (!remote_.begun_) std::this_thread::yield();
  std::atomic<bool> removed{false};
  auto removal = std::async(std::launch::async, [&] {
    direct_.remove(memory);
    removed = true;
  });
  // The removal has begun once no further copy may go there.
  while (!removed && direct_.reaches(memory, kBytes)) std::this_thread::yield();
  EXPECT_FALSE(removed) << "a registration was under way";
  registers.set_value();
  removal.get();
  static_cast<void>(preparing.get());
  EXPECT_EQ(remote_.count(), 0U);
  EXPECT_EQ(direct_.registered(), 0U);
}

TEST_F(DirectMemoryTest, RegistrationThatEndsBehindAbandonIsOfNoUse) {
  const CUdeviceptr memory = memory_.emplace_back(allocate(kBytes));
  std::promise<void> registers;
  remote_.enrolls_ = registers.get_future().share();
  ASSERT_TRUE(direct_.reaches(memory, kBytes));
  auto preparing =
      std::async(std::launch::async, [&] { return direct_.prepare(context_, memory, kBytes); });
  while (!remote_.begun_) std::this_thread::yield();
  direct_.abandon();
  registers.set_value();
  EXPECT_FALSE(preparing.get());
  EXPECT_EQ(direct_.registered(), 0U);
}

TEST_F(DirectMemoryTest, EndOfContextEndsItsMemory) {
  memory_ = {allocate(kBytes), allocate(kBytes)};
  for (const CUdeviceptr each : memory_) ASSERT_TRUE(prepare(each, kBytes));
  direct_.context_ends(&remote_);  // Another one.
  EXPECT_EQ(remote_.count(), 2U);
  direct_.context_ends(context_);
  EXPECT_EQ(remote_.count(), 0U);
}

// Pieces of a window are next to each other, and each is an allocation.
TEST_F(DirectMemoryTest, PiecesAreRegisteredOneByOne) {
  constexpr std::uint64_t kPiece = std::uint64_t{2} << 20;
  CUdeviceptr window = 0;
  ASSERT_EQ(GPURUN_DRIVER(driver(), cuMemAddressReserve, &window, 4 * kPiece, 0U, 0U, 0ULL),
            CUDA_SUCCESS);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle pieces[3] = {};
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(GPURUN_DRIVER(driver(), cuMemCreate, &pieces[i], kPiece, &properties, 0ULL),
              CUDA_SUCCESS);
    ASSERT_EQ(GPURUN_DRIVER(driver(), cuMemMap, window + i * kPiece, kPiece, 0U, pieces[i], 0ULL),
              CUDA_SUCCESS);
    direct_.add_piece(0, window + i * kPiece, kPiece);
  }
  EXPECT_FALSE(direct_.reaches(window, 4 * kPiece));
  remote_.refused_ = {window + 2 * kPiece};
  ASSERT_TRUE(prepare(window + 5, 2 * kPiece - 10));
  EXPECT_EQ(remote_.count(), 2U);
  EXPECT_EQ(direct_.begin_use(window + 10, kPiece).bytes, kPiece - 10) << "one range for each read";
  direct_.end_use(window + 10);
  EXPECT_FALSE(prepare(window, 3 * kPiece));
  EXPECT_FALSE(direct_.reaches(window, 3 * kPiece)) << "asked again";
  EXPECT_TRUE(direct_.reaches(window, 2 * kPiece));
  direct_.remove(window);
  EXPECT_EQ(remote_.count(), 1U);
  EXPECT_FALSE(direct_.reaches(window, 2 * kPiece));
  EXPECT_TRUE(prepare(window + kPiece, kPiece));
  for (std::uint64_t i = 0; i < 3; ++i) {
    direct_.remove(window + i * kPiece);
    (void)GPURUN_DRIVER(driver(), cuMemUnmap, window + i * kPiece, kPiece);
    (void)GPURUN_DRIVER(driver(), cuMemRelease, pieces[i]);
  }
  (void)GPURUN_DRIVER(driver(), cuMemAddressFree, window, 4 * kPiece);
}

// The client shows the reason to a person.
TEST_F(DirectMemoryTest, RefusalHasTheReason) {
  const CUdeviceptr memory = memory_.emplace_back(allocate(kBytes));
  const CUdeviceptr other = memory_.emplace_back(allocate(kBytes));
  EXPECT_EQ(direct_.why_refused(), "");
  ASSERT_TRUE(prepare(memory, kBytes));
  EXPECT_EQ(direct_.why_refused(), "");
  remote_.refused_ = {other};
  EXPECT_FALSE(prepare(other, kBytes));
  EXPECT_NE(direct_.why_refused().find("no room"), std::string::npos) << direct_.why_refused();
}

TEST_F(DirectMemoryTest, NothingIsReadIntoUnlessAllowed) {
  const CUdeviceptr memory = memory_.emplace_back(allocate(kBytes));
  DirectMemory other(driver());
  other.begin(&remote_);
  EXPECT_FALSE(other.reaches(memory, kBytes));
  other.end();
}

}  // namespace
}  // namespace gpurun::server
