// Direct copies: the worker's RDMA device reads large pinned sources straight into device memory
// (docs/adr/0055). The bytes are right whatever refuses or fails, the stream's order holds, and the
// memory leaves the RDMA device before the driver frees it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "server/bulk/bulk_pulls.h"
#include "tests/callpath/pulling.h"

namespace gpurun::callpath {
namespace {

using client::Session;
using server::BulkPulls;
using transport::test::VerbsDouble;

constexpr std::size_t kBytes = 8 * kMiB + 12'345;  // Fits into the slots.
constexpr std::uint64_t kDirectReads = 9;          // Of 1 MiB.
constexpr std::uint64_t kSlotReads = 17;           // Of 512 KiB.

// A session of which the device memory can be read into.
struct Direct : Pulling {
  explicit Direct(const std::string& devices = "rdma0") : Pulling(devices, options()) {}
  static Options options() {
    Options options;
    options.driver = CHANGED_DEVICE;
    options.direct = true;
    return options;
  }
  // The driver refuses the next `calls` calls of `function`.
  static void refuse(const char* function, int calls) {
    auto* library = dlopen(CHANGED_DEVICE, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    reinterpret_cast<void (*)(const char*, int, int)>(dlsym(library, "gpurun_test_refuse"))(
        function, 801, calls);
  }
  int free(std::uint64_t address) { return world->call("cuMemFree_v2", {&address}); }
};

// What the worker's device has done since.
class Counted {
 public:
  std::uint64_t reads() const { return now().posted_read - before_.posted_read; }
  std::uint64_t read_bytes() const { return now().read_bytes - before_.read_bytes; }
  std::uint64_t dma_bufs() const { return now().dma_bufs - before_.dma_bufs; }
  std::uint64_t registrations() const { return now().registrations - before_.registrations; }
  std::uint64_t deregistrations() const { return now().deregistrations - before_.deregistrations; }

 private:
  static verbs_double_counts now() { return VerbsDouble::counts(); }
  const verbs_double_counts before_ = now();
};

static_assert(BulkPulls::kDirectReadBytes == kMiB && kBytes <= BulkPulls::kStagingBytes &&
              kBytes >= limits::kDirectBytesMin);

TEST(DirectCopies, DeviceReadsIntoDeviceMemory) {
  Direct direct;
  const Bytes source = random_bytes(kBytes, 1);
  const std::uint64_t device = direct.world->allocate(2 * kBytes);
  ASSERT_TRUE(direct.may_pull(source));
  const Counted counted;
  ASSERT_EQ(direct.copy(device + 4321, source), 0);
  direct.session().await_read(source);
  EXPECT_EQ(direct.world->synchronize(), 0);
  EXPECT_EQ(counted.reads(), kDirectReads);
  EXPECT_EQ(counted.read_bytes(), kBytes);
  EXPECT_EQ(counted.dma_bufs(), 1U);
  EXPECT_EQ(direct.direct().registered(), 1U);
  EXPECT_TRUE(direct.back(device + 4321, kBytes) == source);
  // The allocation stays with the RDMA device.
  const Counted again;
  ASSERT_EQ(direct.copy(device, source), 0);
  EXPECT_EQ(direct.world->synchronize(), 0);
  EXPECT_EQ(again.reads(), kDirectReads);
  EXPECT_EQ(again.registrations(), 0U);
  EXPECT_TRUE(direct.back(device, kBytes) == source);
  EXPECT_EQ(direct.session().pulls().sent, 0U);
  EXPECT_EQ(direct.session().pulls().direct_bytes, 2 * kBytes);
}

// A copy of less costs more by the way of its notices.
TEST(DirectCopies, SmallCopyTakesSlots) {
  Direct direct;
  const Bytes source = random_bytes(limits::kDirectBytesMin, 2);
  const std::uint64_t device = direct.world->allocate(source.size());
  ASSERT_TRUE(direct.may_pull(source));
  const Counted less;
  ASSERT_EQ(direct.copy(device, ByteView(source).first(source.size() - 1)), 0);
  EXPECT_EQ(direct.world->synchronize(), 0);
  EXPECT_EQ(less.dma_bufs(), 0U);
  const Counted enough;
  ASSERT_EQ(direct.copy(device, source), 0);
  EXPECT_EQ(direct.world->synchronize(), 0);
  EXPECT_EQ(enough.dma_bufs(), 1U);
  EXPECT_TRUE(direct.back(device, source.size()) == source);
}

TEST(DirectCopies, OperatorMaySayNo) {
  Pulling::Options options;
  options.driver = CHANGED_DEVICE;
  Pulling pulling("rdma0", options);
  const Bytes source = random_bytes(kBytes, 3);
  const std::uint64_t device = pulling.world->allocate(kBytes);
  ASSERT_TRUE(pulling.may_pull(source));
  const Counted counted;
  ASSERT_EQ(pulling.copy(device, source), 0);
  EXPECT_EQ(pulling.world->synchronize(), 0);
  EXPECT_EQ(counted.reads(), kSlotReads);
  EXPECT_EQ(counted.dma_bufs(), 0U);
}

// Without dma-buf the kernel may know the address by itself.
TEST(DirectCopies, PeerMemoryServesWhereDmaBufDoesNot) {
  for (const bool by_driver : {false, true}) {
    Direct direct(by_driver ? "rdma0" : "rdma0 dmabuf=0");
    if (by_driver) Direct::refuse("cuMemGetHandleForAddressRange", 1);
    const Bytes source = random_bytes(kBytes, 4);
    const std::uint64_t device = direct.world->allocate(kBytes);
    ASSERT_TRUE(direct.may_pull(source));
    const Counted counted;
    ASSERT_EQ(direct.copy(device, source), 0);
    EXPECT_EQ(direct.world->synchronize(), 0);
    EXPECT_EQ(counted.reads(), kDirectReads) << by_driver;
    EXPECT_EQ(counted.dma_bufs(), 0U);
    EXPECT_EQ(direct.direct().registered(), 1U);
    EXPECT_TRUE(direct.back(device, kBytes) == source);
  }
}

// Nothing is lost by a refusal: the same copy takes slots, and the client notices nothing.
TEST(DirectCopies, RefusedCopyTakesSlots) {
  for (const char* faults : {"dmabuf_fails error=EOPNOTSUPP; mr_fails at=2 error=EFAULT",
                             "dmabuf_fails error=ENOMEM; mr_fails at=2 error=ENOMEM"}) {
    Direct direct;
    const Bytes source = random_bytes(kBytes, 5);
    const std::uint64_t device = direct.world->allocate(kBytes);
    ASSERT_TRUE(direct.may_pull(source));
    // The first registration is that of the slots.
    VerbsDouble::inject(faults);
    const Counted counted;
    for (int round = 0; round < 2; ++round) {
      ASSERT_EQ(direct.copy(device, source), 0);
      EXPECT_EQ(direct.world->synchronize(), 0);
      EXPECT_TRUE(direct.back(device, kBytes) == source) << faults;
    }
    EXPECT_EQ(counted.reads(), 2 * kSlotReads) << faults;
    EXPECT_EQ(counted.registrations(), 1U) << faults << ": asked again after a first refusal";
    EXPECT_EQ(direct.direct().registered(), 0U);
    EXPECT_EQ(direct.session().pulls().sent, 0U);
  }
}

// After a first success a refusal is about one allocation, such as one beyond a GPU's BAR.
TEST(DirectCopies, LaterRefusalIsAboutOneAllocation) {
  Direct direct;
  const Bytes source = random_bytes(kBytes, 6);
  const std::uint64_t first = direct.world->allocate(kBytes);
  const std::uint64_t second = direct.world->allocate(kBytes);
  ASSERT_TRUE(direct.may_pull(source));
  VerbsDouble::inject("dmabuf_fails at=2 error=ENOMEM");
  const Counted counted;
  for (const std::uint64_t device : {first, second, first}) {
    ASSERT_EQ(direct.copy(device, source), 0);
    EXPECT_EQ(direct.world->synchronize(), 0);
    EXPECT_TRUE(direct.back(device, kBytes) == source);
  }
  EXPECT_EQ(counted.reads(), 2 * kDirectReads + kSlotReads);
  EXPECT_EQ(direct.session().pulls().sent, 0U);
}

// The client still has the bytes while the flush has not succeeded.
TEST(DirectCopies, FlushThatFailsBringsBytesAgain) {
  Direct direct;
  const Bytes source = random_bytes(kBytes, 7);
  const std::uint64_t device = direct.world->allocate(kBytes);
  ASSERT_TRUE(direct.may_pull(source));
  Direct::refuse("cuFlushGPUDirectRDMAWrites", 1);
  ASSERT_EQ(direct.copy(device, source), 0);
  direct.session().await_read(source);
  EXPECT_EQ(direct.world->synchronize(), 0);
  EXPECT_EQ(direct.session().pulls().sent, 1U);
  EXPECT_TRUE(direct.back(device, kBytes) == source);
}

TEST(DirectCopies, CopyEndsRightWhenTheQueuePairFails) {
  for (const char* fault :
       {"completes_with at=1 kind=read status=10", "completes_with at=9 kind=read status=12",
        "post_fails at=5 kind=read error=ENOMEM", "breaks_qp bytes=3000000",
        "cuts_qp bytes=2000000", "port_down port=1 bytes=2000000",
        "loses_completion at=9 kind=read", "stops_qp bytes=3000000"}) {
    Direct direct;
    const Bytes source = random_bytes(kBytes, 8);
    const std::uint64_t device = direct.world->allocate(kBytes);
    ASSERT_TRUE(direct.may_pull(source));
    VerbsDouble::inject(fault);
    ASSERT_EQ(direct.copy(device, source), 0);
    direct.session().await_read(source);
    EXPECT_EQ(direct.world->synchronize(), 0) << fault;
    EXPECT_TRUE(direct.back(device, kBytes) == source) << fault;
    EXPECT_EQ(direct.session().pulls().sent, 1U) << fault;
    // Reads of a lost fabric write nothing any more.
    EXPECT_EQ(direct.free(device), 0) << fault;
  }
}

// As a program frees memory behind a copy into it.
TEST(DirectCopies, MemoryLeavesTheRdmaDeviceBeforeTheDriverFreesIt) {
  Direct direct;
  VerbsDouble::inject("delays us=1000");
  const Bytes source = random_bytes(kBytes, 9);
  ASSERT_TRUE(direct.may_pull(source));
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t device = direct.world->allocate(kBytes);
    const Counted counted;
    ASSERT_EQ(direct.copy(device, source), 0);
    EXPECT_EQ(direct.free(device), 0);
    EXPECT_EQ(counted.reads(), kDirectReads) << "the free has passed the copy";
    EXPECT_EQ(counted.deregistrations(), 1U);
    EXPECT_EQ(direct.direct().registered(), 0U);
  }
  EXPECT_EQ(direct.session().pulls().sent, 0U);
}

// A program that frees memory while another of its contexts is copied into may not crash others.
TEST(DirectCopies, RemovalWaitsForReadsUnderWay) {
  Direct direct;
  const Bytes source = random_bytes(kBytes, 10);
  const std::uint64_t device = direct.world->allocate(kBytes);
  ASSERT_TRUE(direct.may_pull(source));
  VerbsDouble::inject("delays us=20000");
  const Counted counted;
  ASSERT_EQ(direct.copy(device, source), 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (counted.reads() == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  direct.direct().remove(device);
  EXPECT_EQ(counted.deregistrations(), 1U);
  // The rest takes the socket, because the place in device memory is gone for reads.
  EXPECT_EQ(direct.world->synchronize(), 0);
  EXPECT_TRUE(direct.back(device, kBytes) == source);
}

TEST(DirectCopies, SourceInTurnIsReadDirectlyOnceItsStreamHasReachedIt) {
  Direct direct;
  const Bytes source = random_bytes(kBytes, 11);
  const std::uint64_t device = direct.world->allocate(kBytes);
  ASSERT_TRUE(direct.may_pull(source));
  const Counted counted;
  ASSERT_EQ(direct.copy(device, source, Session::Reading::kPulledInTurn), 0);
  EXPECT_EQ(direct.world->synchronize(), 0);
  EXPECT_EQ(counted.reads(), kDirectReads);
  EXPECT_TRUE(direct.back(device, kBytes) == source);
}

// Addresses come from the client.
TEST(DirectCopies, CopyBeyondAnAllocationFailsAsTheDriverSays) {
  Direct direct;
  const Bytes source = random_bytes(kBytes, 12);
  const std::uint64_t device = direct.world->allocate(kBytes);
  ASSERT_TRUE(direct.may_pull(source));
  const Counted counted;
  ASSERT_EQ(direct.copy(device + 4096, source), 0);
  direct.session().await_read(source);
  EXPECT_NE(direct.world->synchronize(), 0);
  EXPECT_EQ(counted.dma_bufs(), 0U);
}

TEST(DirectCopies, StreamsCopyAtOnce) {
  Direct direct;
  constexpr std::size_t kStreams = 4;
  Bytes sources[kStreams];
  std::uint64_t devices[kStreams];
  for (unsigned i = 0; i < kStreams; ++i) {
    sources[i] = random_bytes((33 + 3 * i) * kMiB + i, i);  // Larger than the slots.
    devices[i] = direct.world->allocate(sources[i].size());
    ASSERT_TRUE(direct.may_pull(sources[i]));
  }
  const Counted counted;
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < kStreams; ++i) {
      const client::CallSite site =
          direct.world->site("cuMemcpyHtoDAsync_v2", direct.world->make_stream());
      ASSERT_EQ(direct.session().copy_in(direct.world->lane(), site, devices[i], sources[i],
                                         Session::Reading::kPulledSoon),
                0);
    }
  }
  EXPECT_EQ(direct.world->synchronize(), 0);
  EXPECT_EQ(counted.dma_bufs(), kStreams);
  for (std::size_t i = 0; i < kStreams; ++i) {
    EXPECT_TRUE(direct.back(devices[i], sources[i].size()) == sources[i]) << i;
  }
  EXPECT_EQ(direct.session().pulls().sent, 0U);
}

}  // namespace
}  // namespace gpurun::callpath
