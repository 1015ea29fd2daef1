// Host arena: the worker maps the client's memory exactly where the client says, if nothing lies
// there. It trusts nothing: it checks the file, each block, and each end of a block.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "protocol/calls/host_arena.h"
#include "server/handlers/memory/host_arena.h"
#include "tests/callpath/world.h"

namespace gpurun::callpath {
namespace {

using protocol::HostBlock;
using protocol::HostBlockKind;
using protocol::Order;

constexpr std::uint64_t kBlock = 64 << 10;

UniqueFd memory_file(std::uint64_t bytes) {
  UniqueFd file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  return file;
}

// The addresses of `count` blocks in the range that the kernel itself uses, so that every sanitizer
// allows them, but far below the mappings that exist.
std::uint64_t free_addresses(std::uint64_t count) {
  void* const place =
      mmap(nullptr, count * kBlock, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(place, MAP_FAILED);
  munmap(place, count * kBlock);
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  return (reinterpret_cast<std::uint64_t>(place) / kGiB - 300) * kGiB;
}

class HostArenas : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kPlaceBlocks = limits::kHostBlocksMax + 1;
  static constexpr std::uint64_t kSpan = kPlaceBlocks * kBlock;

  HostArenas() : file_(memory_file(limits::kHostArenaBytes)), base_(free_addresses(kPlaceBlocks)) {
    EXPECT_TRUE(world_.state().host_arena().adopt(UniqueFd(dup(file_.get()))).ok());
  }
  ~HostArenas() override {
    for (const HostBlock& each : mapped_) (void)unmap(each);
    munmap(reinterpret_cast<void*>(base_), kSpan);
  }

  client::CallSite site_of(const char* symbol, Order order) {
    client::CallSite site = world_.site(symbol);
    site.form = protocol::Form::kRaw;
    site.order = order;
    site.flags = protocol::kFlagPassesStreams;
    return site;
  }
  int call(const client::CallSite& site, const HostBlock& block) {
    client::Reply reply;
    reply.result = -1;
    (void)world_.session().call(world_.lane(), site, bytes_of(block), &reply);
    return reply.result;
  }
  int map(const HostBlock& block) {
    const int result = call(site_of("cuMemHostAlloc", Order::kContext), block);
    if (result == 0) mapped_.push_back(block);
    return result;
  }
  int unmap(HostBlock block) {
    block.kind = HostBlockKind::kUnmap;
    return call(site_of("cuMemFreeHost", Order::kOrderedHost), block);
  }
  // The block at `offset` of the place.
  HostBlock block(std::uint64_t offset = 0, std::uint64_t bytes = kBlock) const {
    return {HostBlockKind::kMap, 0, base_ + offset, offset, bytes, kSpan};
  }
  void copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
    protocol::CopyPayload payload{to, from, bytes};
    client::CallSite site = world_.site("cuMemcpyAsync", protocol::kStreamLegacy);
    site.order = Order::kStream;
    site.form = protocol::Form::kCopyDevice;
    EXPECT_EQ(world_.session().post(world_.lane(), site, bytes_of(payload)), 0);
  }

  World world_;
  const UniqueFd file_;
  const std::uint64_t base_;
  std::vector<HostBlock> mapped_;
};

TEST_F(HostArenas, BlockIsTheFilesMemoryAtItsAddress) {
  const HostBlock mine = block(3 * kBlock);
  ASSERT_EQ(map(mine), 0);
  const std::vector<char> sent(kBlock, 0x5a);
  ASSERT_EQ(pwrite(file_.get(), sent.data(), kBlock, 3 * kBlock), static_cast<ssize_t>(kBlock));
  const std::uint64_t memory = world_.allocate(kBlock);
  copy(memory, mine.address, kBlock);
  copy(mine.address + 4096, memory + 8192, 4096);
  ASSERT_EQ(world_.synchronize(), 0);
  std::vector<char> seen(kBlock);
  ASSERT_EQ(pread(file_.get(), seen.data(), kBlock, 3 * kBlock), static_cast<ssize_t>(kBlock));
  EXPECT_EQ(seen, sent);
}

// So that a pointer that the driver still has meets no other memory of the worker.
TEST_F(HostArenas, AddressesStayReservedWithoutAccess) {
  const HostBlock mine = block(kBlock);
  ASSERT_EQ(map(mine), 0);
  mapped_.clear();
  ASSERT_EQ(unmap(mine), 0);
  for (const std::uint64_t at : {base_, mine.address, base_ + kSpan - kBlock}) {
    auto* const place = reinterpret_cast<void*>(at);
    EXPECT_EQ(msync(place, kBlock, MS_ASYNC), 0) << "not reserved";
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    EXPECT_LT(write(pipe_ends[1], place, 1), 0) << "readable";
    close(pipe_ends[0]);
    close(pipe_ends[1]);
  }
  EXPECT_EQ(map(mine), 0) << "again";
}

TEST_F(HostArenas, RefusesUnsoundBlocks) {
  HostBlock reserved = block();
  reserved.reserved = 1;
  HostBlock ends = block();
  ends.kind = HostBlockKind::kUnmap;
  const auto with = [](std::uint64_t address, std::uint64_t offset, std::uint64_t bytes,
                       std::uint64_t span) {
    return HostBlock{HostBlockKind::kMap, 0, address, offset, bytes, span};
  };
  constexpr std::uint64_t kNoPart = ~std::uint64_t{4095};
  for (const HostBlock& wrong :
       {with(0, 0, kBlock, kSpan), with(kBlock, kBlock, kBlock, kSpan),
        with(base_ + 1, 0, kBlock, kSpan), with(base_, 8, kBlock, kSpan), block(0, 0),
        block(0, 100), block(kSpan), block(kSpan - 4096), with(base_, kNoPart, kBlock, kSpan),
        with(kNoPart, 0, kBlock, kSpan), with(base_, 0, kBlock, 0), with(base_, 0, kBlock, 4096),
        with(base_, 0, kBlock, limits::kHostArenaBytes + 4096), with(base_, 0, kBlock, kSpan + 1),
        with(base_, 0, limits::kHostBlockBytesMax + 4096, limits::kHostArenaBytes), reserved,
        ends}) {
    EXPECT_EQ(map(wrong), CUDA_ERROR_INVALID_VALUE);
  }
  client::CallSite site = site_of("cuMemHostAlloc", Order::kContext);
  site.context = 0;
  EXPECT_EQ(call(site, block()), CUDA_ERROR_INVALID_VALUE);
  const std::uint32_t half = 1;
  client::Reply reply;
  EXPECT_EQ(world_.session().call(world_.lane(), site_of("cuMemHostAlloc", Order::kContext),
                                  bytes_of(half), &reply),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(map(block()), 0);
  EXPECT_EQ(map(with(base_ + kSpan, 0, kBlock, kSpan)), CUDA_ERROR_INVALID_VALUE)
      << "another place than the first";
  EXPECT_EQ(map(with(base_ + kBlock, kBlock, kBlock, kSpan - kBlock)), CUDA_ERROR_INVALID_VALUE)
      << "another span";
}

TEST_F(HostArenas, NothingOfTheWorkerIsReplaced) {
  auto* const taken = reinterpret_cast<char*>(base_ + 5 * kBlock);
  ASSERT_EQ(mmap(taken, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), taken);
  std::memset(taken, 7, kBlock);
  EXPECT_EQ(map(block()), CUDA_ERROR_ALREADY_MAPPED);
  EXPECT_EQ(taken[kBlock - 1], 7);
  munmap(taken, kBlock);
  EXPECT_EQ(map(block()), 0) << "once it is free";
}

TEST_F(HostArenas, BlocksNeverOverlap) {
  ASSERT_EQ(map(block(4 * kBlock, 2 * kBlock)), 0);
  for (const auto& [offset, bytes] : {std::pair{4 * kBlock, 2 * kBlock},
                                      {4 * kBlock, kBlock},
                                      {5 * kBlock, kBlock},
                                      {3 * kBlock, kBlock + 4096},
                                      {3 * kBlock, 4 * kBlock},
                                      {6 * kBlock - 4096, kBlock}}) {
    EXPECT_EQ(map(block(offset, bytes)), CUDA_ERROR_INVALID_VALUE) << offset;
  }
  EXPECT_EQ(map(block(3 * kBlock)), 0);
  EXPECT_EQ(map(block(6 * kBlock)), 0);
}

TEST_F(HostArenas, BlockEndsOnlyAsItBegan) {
  const HostBlock mine = block(kBlock);
  ASSERT_EQ(map(mine), 0);
  HostBlock shorter = mine;
  shorter.bytes -= 4096;
  EXPECT_EQ(unmap(shorter), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(unmap(block(kBlock + 4096, kBlock - 4096)), CUDA_ERROR_INVALID_VALUE);
  HostBlock ends = mine;
  ends.kind = HostBlockKind::kUnmap;
  EXPECT_EQ(call(site_of("cuMemFreeHost", Order::kContext), ends), CUDA_ERROR_INVALID_VALUE);
  mapped_.clear();
  EXPECT_EQ(unmap(mine), 0);
  EXPECT_EQ(unmap(mine), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostArenas, BlocksAreBounded) {
  const std::uint64_t count = limits::kHostBlocksMax;
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(map(block(i * kBlock)), 0) << i;
  EXPECT_EQ(map(block(count * kBlock)), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(HostArenas, TakesOneFileOfTheRightSize) {
  server::HostArena& arena = world_.state().host_arena();
  EXPECT_EQ(arena.adopt(memory_file(limits::kHostArenaBytes)).code(), Code::kInvalidArgument)
      << "the second file";
  server::HostArena fresh(world_.state().driver());
  EXPECT_EQ(fresh.adopt(memory_file(limits::kHostArenaBytes - 4096)).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(fresh.adopt(UniqueFd(open("/dev/zero", O_RDWR | O_CLOEXEC))).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(fresh.map(block(), 1), CUDA_ERROR_INVALID_VALUE) << "no file";
  EXPECT_TRUE(fresh.adopt(memory_file(limits::kHostArenaBytes)).ok());
}

// A copy must not read other memory of the worker, whatever address the client names.
TEST(HostMemoryTest, CoversOnlyWholeBlocks) {
  server::HostMemory memory;
  EXPECT_FALSE(memory.covers(0x10000, 1));
  memory.add(0x10000, 0x4000);
  memory.add(0x20000, 0x4000);
  EXPECT_TRUE(memory.covers(0x10000, 0x4000));
  EXPECT_TRUE(memory.covers(0x13fff, 1));
  EXPECT_FALSE(memory.covers(0x13fff, 2));
  EXPECT_FALSE(memory.covers(0xffff, 2));
  EXPECT_FALSE(memory.covers(0x18000, 1)) << "between two blocks";
  EXPECT_FALSE(memory.covers(0x10000, ~std::uint64_t{0}));
  using server::HostSide;
  EXPECT_TRUE(memory.covers(HostSide{0x10000, 16, 4, 2, 32, 256}));
  EXPECT_TRUE(memory.covers(HostSide{0x10000, 0x4000})) << "one line has no pitch";
  EXPECT_FALSE(memory.covers(HostSide{0x10000, 0})) << "no bytes";
  EXPECT_FALSE(memory.covers(HostSide{0x10000, 16, 4, 1, 8, 0})) << "lines overlap";
  EXPECT_FALSE(memory.covers(HostSide{0x10000, 16, 4, 2, 32, 64})) << "slices overlap";
  EXPECT_FALSE(memory.covers(HostSide{0x10000, 16, 2, 1, 0x4000, 0})) << "the last line is outside";
  EXPECT_FALSE(memory.covers(HostSide{0x10000, 16, 5, 1, std::uint64_t{1} << 62, 0}));
  EXPECT_FALSE(memory.covers(HostSide{0x10000, 16, 1, 5, 16, std::uint64_t{1} << 62}));
  memory.remove(0x10000);
  EXPECT_FALSE(memory.covers(0x10000, 1));
  EXPECT_TRUE(memory.covers(0x20000, 1));
}

}  // namespace
}  // namespace gpurun::callpath
