// Host boxes: a box copy names host memory of the client only if a block holds all of it. Whatever
// else a client names goes to the driver as an address of the device, which refuses it. So no copy
// reads or writes other memory of the worker.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "protocol/calls/host_arena.h"
#include "server/handlers/memory/host_arena.h"
#include "tests/callpath/world.h"

namespace gpurun::callpath {
namespace {

constexpr std::uint64_t kBlock = 64 << 10;

class HostBoxes : public ::testing::Test {
 protected:
  static WorldOptions on_changed_device() {
    WorldOptions options;
    options.driver = CHANGED_DEVICE;
    return options;
  }

  HostBoxes() : world_(on_changed_device()) {
    UniqueFd file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(limits::kHostArenaBytes)), 0);
    EXPECT_TRUE(world_.state().host_arena().adopt(std::move(file)).ok());
    void* const place =
        mmap(nullptr, 2 * kBlock, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(place, MAP_FAILED);
    munmap(place, 2 * kBlock);
    constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
    // Far below the mappings that exist.
    at_ = (reinterpret_cast<std::uint64_t>(place) / kGiB - 300) * kGiB;
    const protocol::HostBlock block{protocol::HostBlockKind::kMap, 0, at_, 0, kBlock, 2 * kBlock};
    client::CallSite site = world_.site("cuMemHostAlloc");
    site.form = protocol::Form::kRaw;
    site.order = protocol::Order::kContext;
    client::Reply reply;
    EXPECT_EQ(world_.session().call(world_.lane(), site, bytes_of(block), &reply), 0);
    memory_ = world_.allocate(kBlock);
    std::memset(reinterpret_cast<void*>(at_), 0x5a, kBlock);
  }

  // A box of 16 x 4 x 2 bytes from the block, changed by `change`, in the legacy stream.
  template <typename Change>
  int copied(Change change) {
    protocol::BoxCopyPayload box;
    box.copy.destination = memory_;
    box.copy.source = at_;
    box.width = 16;
    box.lines = 4;
    box.slices = 2;
    box.copy.bytes = 16 * 4 * 2;
    box.source.line_pitch = box.destination.line_pitch = 32;
    box.source.slice_lines = box.destination.slice_lines = 8;
    change(box);
    client::CallSite site = world_.site("cuMemcpy3DAsync_v2", protocol::kStreamLegacy);
    site.order = protocol::Order::kStream;
    site.form = protocol::Form::kCopyDevice;
    site.flags = protocol::kFlagBox;
    client::Reply reply;
    reply.result = -1;
    (void)world_.session().call(world_.lane(), site, bytes_of(box), &reply);
    return reply.result;
  }

  World world_;
  std::uint64_t at_ = 0;
  std::uint64_t memory_ = 0;
};

TEST_F(HostBoxes, OnlyBoxesInsideOneBlockAreCopied) {
  using Box = protocol::BoxCopyPayload;
  EXPECT_EQ(copied([](Box&) {}), 0);
  EXPECT_EQ(copied([](Box& box) { std::swap(box.copy.source, box.copy.destination); }), 0);
  EXPECT_EQ(world_.synchronize(), 0);
  const auto refused = [&](auto change, const char* what) { EXPECT_NE(copied(change), 0) << what; };
  refused([](Box& box) { box.source.x = kBlock; }, "a position in bytes");
  refused([](Box& box) { box.source.y = 1 << 20; }, "a position in lines");
  refused([](Box& box) { box.source.z = 1 << 20; }, "a position in slices");
  refused([](Box& box) { box.copy.source += kBlock - 16; }, "the end of the block");
  refused([](Box& box) { box.source.line_pitch = 8; }, "a pitch below the width");
  refused([](Box& box) { box.source.line_pitch = std::uint64_t{1} << 62; }, "an overflow");
  refused([this](Box& box) { box.copy.source = reinterpret_cast<std::uint64_t>(this); },
          "other memory of the worker");
}

}  // namespace
}  // namespace gpurun::callpath
