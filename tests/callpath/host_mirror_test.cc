// Host mirror: the worker's copy of host memory is what the device reads and writes. The worker
// takes the client's changes ahead of the next record, and returns the device's. It trusts nothing:
// it checks each block, each piece and each range.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "protocol/calls/host_arena.h"
#include "protocol/calls/host_mirror.h"
#include "tests/callpath/mirror_lines.h"
#include "tests/callpath/world.h"

namespace gpurun::callpath {
namespace {

using protocol::HostBlock;
using protocol::HostBlockKind;
using protocol::HostMirrorChanges;
using protocol::HostMirrorHead;
using protocol::HostMirrorPiece;
using protocol::HostMirrorRange;
using protocol::HostMirrorStep;
using protocol::Order;

constexpr std::uint64_t kBlock = 64 << 10;
constexpr std::uint64_t kSpan = 16 * kBlock;

// As in host_arena_test.cc.
std::uint64_t free_addresses() {
  void* const place =
      mmap(nullptr, kSpan, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(place, MAP_FAILED);
  munmap(place, kSpan);
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  return (reinterpret_cast<std::uint64_t>(place) / kGiB - 400) * kGiB;
}

class HostMirrors : public ::testing::Test {
 protected:
  HostMirrors() : base_(free_addresses()) {}
  ~HostMirrors() override {
    for (const HostBlock& each : mapped_) (void)unmap(each);
    munmap(reinterpret_cast<void*>(base_), kSpan);
  }

  int call(const char* symbol, Order order, std::span<const ByteView> parts, Bytes* answer) {
    client::CallSite site = world_.site(symbol);
    site.form = protocol::Form::kRaw;
    site.order = order;
    site.flags = order == Order::kImmediate ? 0 : protocol::kFlagPassesStreams;
    client::Reply reply;
    reply.result = -1;
    (void)world_.session().call(world_.lane(), site, parts, &reply);
    if (answer != nullptr) answer->assign(reply.payload.begin(), reply.payload.end());
    return reply.result;
  }
  int map(const HostBlock& block) {
    const ByteView payload = bytes_of(block);
    const int result = call("cuMemAllocManaged", Order::kContext, {&payload, 1}, nullptr);
    if (result == 0) mapped_.push_back(block);
    return result;
  }
  int unmap(HostBlock block) {
    block.kind = HostBlockKind::kUnmap;
    const ByteView payload = bytes_of(block);
    return call("cuMemFreeHost", Order::kOrderedHost, {&payload, 1}, nullptr);
  }
  int exchange(std::span<const ByteView> parts, Bytes* answer = nullptr) {
    return call("cuMemHostGetDevicePointer_v2", Order::kImmediate, parts, answer);
  }
  int write(std::uint64_t address, const std::vector<std::byte>& lines) {
    const HostMirrorHead head{HostMirrorStep::kWrite, 0, 0};
    const HostMirrorPiece piece{address, static_cast<std::uint32_t>(lines.size()), 0};
    const ByteView parts[] = {bytes_of(head), bytes_of(piece), lines};
    return exchange(parts);
  }
  int ask(std::uint64_t from, const std::vector<HostMirrorRange>& ranges, Bytes* answer,
          HostMirrorStep step = HostMirrorStep::kCollect) {
    const HostMirrorHead head{step, 0, from};
    const ByteView parts[] = {bytes_of(head),
                              byte_view(ranges.data(), ranges.size() * sizeof ranges[0])};
    return exchange(parts, answer);
  }
  HostBlock block(std::uint64_t offset, std::uint64_t bytes = kBlock) const {
    return {HostBlockKind::kMirror, 0, base_ + offset, offset, bytes, kSpan};
  }
  void copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
    protocol::CopyPayload payload{to, from, bytes};
    client::CallSite site = world_.site("cuMemcpyAsync", protocol::kStreamLegacy);
    site.order = Order::kStream;
    site.form = protocol::Form::kCopyDevice;
    EXPECT_EQ(world_.session().post(world_.lane(), site, bytes_of(payload)), 0);
  }
  void fill(std::uint64_t to, std::uint32_t value, std::uint64_t words) {
    const protocol::MemsetPayload payload{to, 0, words, 1, value, 4};
    client::CallSite site = world_.site("cuMemsetD32Async", protocol::kStreamLegacy);
    site.order = Order::kStream;
    site.form = protocol::Form::kMemset;
    EXPECT_EQ(world_.session().post(world_.lane(), site, bytes_of(payload)), 0);
  }
  // What a kCollect answers, by address of the line.
  std::map<std::uint64_t, std::uint32_t> first_words(const Bytes& answer) {
    std::map<std::uint64_t, std::uint32_t> words;
    for (const auto& [address, line] : mirror_lines(answer)) {
      std::memcpy(&words[address], line.data(), sizeof words[address]);
    }
    return words;
  }

  World world_;
  const std::uint64_t base_;
  std::vector<HostBlock> mapped_;
};

TEST_F(HostMirrors, DeviceReadsWhatTheClientHasWritten) {
  ASSERT_EQ(map(block(kBlock)), 0);
  const std::uint64_t at = base_ + kBlock + 128;
  ASSERT_EQ(write(at, std::vector<std::byte>(64, std::byte{0x5a})), 0);
  const std::uint64_t memory = world_.allocate(kBlock);
  copy(memory, at, 64);
  std::vector<std::byte> seen(64);
  client::CallSite site = world_.site("cuMemcpyDtoH_v2", protocol::kStreamLegacy);
  ASSERT_EQ(world_.session().copy_out(world_.lane(), site, seen, memory, true), 0);
  EXPECT_EQ(seen, std::vector<std::byte>(64, std::byte{0x5a}));
}

TEST_F(HostMirrors, DeviceWritesAreReturnedOnce) {
  ASSERT_EQ(map(block(0)), 0);
  ASSERT_EQ(map(block(2 * kBlock)), 0);
  fill(base_ + 4096, 7, 16);
  fill(base_ + 2 * kBlock + 64, 8, 1);
  ASSERT_EQ(world_.synchronize(), 0);
  const std::vector<HostMirrorRange> all = {{base_, kBlock}, {base_ + 2 * kBlock, kBlock}};
  for (const HostMirrorStep step : {HostMirrorStep::kCollect, HostMirrorStep::kPoll}) {
    Bytes answer;
    ASSERT_EQ(ask(0, all, &answer, step), 0);
    const bool first = step == HostMirrorStep::kCollect;
    EXPECT_EQ(first_words(answer).size(), first ? 2u : 0u);
    if (!first) continue;
    EXPECT_EQ(first_words(answer)[base_ + 4096], 7u);
    EXPECT_EQ(first_words(answer)[base_ + 2 * kBlock + 64], 8u);
  }
  fill(base_ + 4096, 9, 1);
  ASSERT_EQ(world_.synchronize(), 0);
  Bytes answer;
  ASSERT_EQ(ask(0, {{base_ + 2 * kBlock, kBlock}}, &answer, HostMirrorStep::kPoll), 0);
  EXPECT_TRUE(first_words(answer).empty()) << "outside the ranges";
  ASSERT_EQ(ask(0, all, &answer, HostMirrorStep::kPoll), 0);
  EXPECT_EQ(first_words(answer)[base_ + 4096], 9u);
}

TEST_F(HostMirrors, ManyChangesTakeSeveralAnswers) {
  constexpr std::uint64_t kMany = 8 * kBlock;
  ASSERT_EQ(map(block(0, kMany)), 0);
  fill(base_, 3, kMany / 4);
  ASSERT_EQ(world_.synchronize(), 0);
  std::size_t lines = 0;
  std::uint64_t from = 0;
  int answers = 0;
  do {
    Bytes answer;
    ASSERT_EQ(ask(from, {{base_, kMany}}, &answer), 0);
    lines += first_words(answer).size();
    HostMirrorChanges changes;
    std::memcpy(&changes, answer.data(), sizeof changes);
    ASSERT_TRUE(changes.next == 0 || changes.next > from);
    from = changes.next;
    ++answers;
  } while (from != 0);
  EXPECT_EQ(lines, kMany / protocol::kMirrorLineBytes);
  EXPECT_GE(answers, 3);
}

TEST_F(HostMirrors, BytesThatTheDeviceWritesMeanwhileAreKept) {
  ASSERT_EQ(map(block(0)), 0);
  fill(base_, 0x01010101, 1);
  ASSERT_EQ(world_.synchronize(), 0);
  std::vector<std::byte> line(64);
  line[8] = std::byte{5};  // As the client has it: it knows nothing of the fill.
  ASSERT_EQ(write(base_, line), 0);
  Bytes answer;
  ASSERT_EQ(ask(0, {{base_, 64}}, &answer), 0);
  EXPECT_EQ(first_words(answer)[base_], 0x01010101u);
}

TEST_F(HostMirrors, EndOfBlockEndsItsTraffic) {
  const HostBlock mine = block(0);
  ASSERT_EQ(map(mine), 0);
  mapped_.clear();
  ASSERT_EQ(unmap(mine), 0);
  EXPECT_EQ(write(base_, std::vector<std::byte>(64)), 0) << "ignored, inside the place";
  Bytes answer;
  EXPECT_EQ(ask(0, {{base_, kBlock}}, &answer), 0);
  EXPECT_TRUE(first_words(answer).empty());
  ASSERT_EQ(map(mine), 0);
  fill(base_, 4, 1);
  ASSERT_EQ(world_.synchronize(), 0);
  ASSERT_EQ(ask(0, {{base_, kBlock}}, &answer), 0);
  EXPECT_EQ(first_words(answer).size(), 1u);
}

TEST_F(HostMirrors, MalformedExchangesAreRefused) {
  EXPECT_EQ(write(base_, std::vector<std::byte>(64)), CUDA_ERROR_INVALID_VALUE) << "no place yet";
  ASSERT_EQ(map(block(0)), 0);
  const std::vector<std::byte> line(64);
  EXPECT_EQ(write(base_ + kSpan, line), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(write(base_ - 64, line), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(write(base_ + 1, line), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(write(base_, std::vector<std::byte>(63)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(write(reinterpret_cast<std::uint64_t>(&world_) & ~63ull, line),
            CUDA_ERROR_INVALID_VALUE);
  Bytes answer;
  EXPECT_EQ(ask(0, {}, &answer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(3, {{base_, 64}}, &answer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(0, {{base_, 3}}, &answer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(0, {{base_, 64, 2}}, &answer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(0, {{base_ + 64, 64}, {base_, 64}}, &answer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(0, {{~std::uint64_t{63}, 128}}, &answer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(0, std::vector<HostMirrorRange>(protocol::kMirrorRangesMax + 1), &answer),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(0, {{base_, 64}}, &answer, static_cast<HostMirrorStep>(9)),
            CUDA_ERROR_INVALID_VALUE);
  // Other memory of the worker is neither read nor written.
  std::vector<std::uint64_t> mine(64, 1);
  const std::uint64_t here = (reinterpret_cast<std::uint64_t>(mine.data()) + 63) & ~63ull;
  EXPECT_EQ(ask(0, {{here, 128}}, &answer), 0);
  EXPECT_TRUE(first_words(answer).empty());
}

TEST_F(HostMirrors, BlocksAreCheckedAsSharedOnesAre) {
  EXPECT_EQ(map(block(0, kBlock - 1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(map(block(kSpan)), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(map(block(0)), 0);
  EXPECT_EQ(map(block(0)), CUDA_ERROR_INVALID_VALUE) << "overlaps";
  HostBlock shared = block(kBlock);
  shared.kind = HostBlockKind::kMap;
  EXPECT_EQ(map(shared), CUDA_ERROR_INVALID_VALUE) << "no file";
}

}  // namespace
}  // namespace gpurun::callpath
