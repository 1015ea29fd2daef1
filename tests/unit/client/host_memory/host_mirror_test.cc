// HostMirror: what the program writes is found, with the kernel's help and without it. What the
// worker sends reaches the program's memory.
#include "client/host_memory/host_mirror.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "client/process/fork_guard.h"
#include "protocol/calls/host_mirror.h"

namespace gpurun::client {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBytes = 64 * kPage;

// Memory of zeros.
class Memory {
 public:
  Memory()
      : start_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(start_, MAP_FAILED);
  }
  ~Memory() { munmap(start_, kBytes); }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(start_); }
  std::byte* start() const { return static_cast<std::byte*>(start_); }
  volatile char& operator[](std::size_t at) { return static_cast<char*>(start_)[at]; }

 private:
  void* const start_;
};

// With the kernel's notes, or by comparison alone.
class HostMirrors : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(fork_guard::arm().ok());
    if (GetParam() && !mirror_.watch().open(0)) {
      GTEST_SKIP() << "this kernel does not note writes (Linux 6.7, userfaultfd)";
    }
  }

  // The addresses of the lines that are sent.
  std::vector<std::uint64_t> sent() {
    std::vector<std::uint64_t> lines;
    EXPECT_TRUE(mirror_.send_written(false, [&](ByteView payload) {
      ++payloads_;
      EXPECT_LE(payload.size(), protocol::kMirrorWriteBytesMax);
      ByteView pieces = payload.subspan(sizeof(protocol::HostMirrorHead));
      protocol::HostMirrorPiece piece;
      ByteView bytes;
      while (!pieces.empty()) {
        EXPECT_TRUE(protocol::next_piece(&pieces, &piece, &bytes));
        for (std::size_t at = 0; at < bytes.size(); at += protocol::kMirrorLineBytes) {
          lines.push_back(piece.address + at);
        }
      }
      return true;
    }));
    return lines;
  }

  Memory memory_;
  HostMirror mirror_;
  int payloads_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Each, HostMirrors, ::testing::Bool(), [](const auto& how) {
  return how.param ? std::string("Noted") : std::string("Compared");
});
using Lines = std::vector<std::uint64_t>;

TEST_P(HostMirrors, EachWriteIsSentOnce) {
  ASSERT_TRUE(mirror_.add(memory_.address(), kBytes, memory_.start(), true));
  mirror_.add_allocation(memory_.address(), kBytes, false);
  EXPECT_EQ(sent(), Lines());
  memory_[5 * kPage + 130] = 1;
  memory_[kBytes - 1] = 2;
  EXPECT_EQ(sent(), (Lines{memory_.address() + 5 * kPage + 128, memory_.address() + kBytes - 64}));
  EXPECT_EQ(sent(), Lines());
  memory_[5 * kPage + 130] = 3;
  EXPECT_EQ(sent(), Lines{memory_.address() + 5 * kPage + 128});
}

// The program has written to pinned memory before a kernel gets a pointer to it.
TEST_P(HostMirrors, WhatWasThereBeforeIsSent) {
  memory_[3 * kPage] = 1;
  ASSERT_TRUE(mirror_.add(memory_.address(), kBytes, memory_.start(), true));
  memory_[9 * kPage] = 1;
  mirror_.add_allocation(memory_.address(), kBytes, false);
  EXPECT_EQ(sent(), (Lines{memory_.address() + 3 * kPage, memory_.address() + 9 * kPage}));
}

TEST_P(HostMirrors, OnlyAllocationsThatTheDeviceReachesAreSent) {
  ASSERT_TRUE(mirror_.add(memory_.address(), kBytes, memory_.start(), true));
  mirror_.add_allocation(memory_.address() + 2 * kPage, kPage, false);
  for (const std::size_t page : {0u, 2u, 3u}) memory_[page * kPage] = 1;
  EXPECT_EQ(sent(), Lines{memory_.address() + 2 * kPage});
  mirror_.remove_allocation(memory_.address() + 2 * kPage);
  memory_[2 * kPage] = 2;
  EXPECT_EQ(sent(), Lines());
}

TEST_P(HostMirrors, ManyChangesTakeSeveralPayloads) {
  std::vector<Memory> more(2);
  for (Memory& each : more) {
    ASSERT_TRUE(mirror_.add(each.address(), kBytes, each.start(), true));
    mirror_.add_allocation(each.address(), kBytes, false);
    for (std::size_t at = 0; at < kBytes; ++at) each[at] = static_cast<char>(at % 100 + 1);
  }
  EXPECT_EQ(sent().size(), 2 * kBytes / protocol::kMirrorLineBytes);
  EXPECT_GE(payloads_, 3);
  for (Memory& each : more) EXPECT_TRUE(mirror_.remove(each.address()));
}

TEST_P(HostMirrors, WhatTheWorkerSendsIsNotSentBack) {
  ASSERT_TRUE(mirror_.add(memory_.address(), kBytes, memory_.start(), true));
  mirror_.add_allocation(memory_.address(), kBytes, false);
  EXPECT_EQ(sent(), Lines());
  alignas(8) std::byte line[protocol::kMirrorLineBytes]{};
  line[3] = std::byte{9};
  Bytes pieces(1024);
  protocol::MirrorWriter writer(pieces);
  ASSERT_TRUE(writer.add(memory_.address() + kPage, line));
  ASSERT_TRUE(writer.add(memory_.address() + 2 * kBytes, line));  // Elsewhere: ignored.
  ASSERT_TRUE(mirror_.take(ByteView(pieces).first(writer.size())));
  EXPECT_EQ(memory_[kPage + 3], 9);
  EXPECT_EQ(sent(), Lines());
  EXPECT_FALSE(mirror_.take(ByteView(pieces).first(writer.size() - 1)));
}

TEST_P(HostMirrors, SystemCallsMayWriteToTheMemory) {
  ASSERT_TRUE(mirror_.add(memory_.address(), kBytes, memory_.start(), true));
  mirror_.add_allocation(memory_.address(), kBytes, false);
  EXPECT_EQ(sent(), Lines());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  ASSERT_EQ(read(ends[0], const_cast<char*>(&memory_[7 * kPage]), 1), 1);
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(sent(), Lines{memory_.address() + 7 * kPage});
}

// Then all pages count as written, and the comparison finds the changes.
TEST_P(HostMirrors, ClosedDescriptorsLoseNoWrite) {
  ASSERT_TRUE(mirror_.add(memory_.address(), kBytes, memory_.start(), true));
  mirror_.add_allocation(memory_.address(), kBytes, false);
  EXPECT_EQ(sent(), Lines());
  for (int fd = 3; fd < 64; ++fd) {
    char target[64] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (readlink(link.c_str(), target, sizeof target - 1) > 0 &&
        std::string(target).find("userfaultfd") != std::string::npos) {
      close(fd);
    }
  }
  memory_[11 * kPage] = 1;
  EXPECT_EQ(sent(), Lines{memory_.address() + 11 * kPage});
}

// A worker may name any line of a block. Only allocations that the device reaches are written, and
// of registered memory not even its neighbours in the first and the last line.
TEST_P(HostMirrors, NothingBesideAnAllocationIsWritten) {
  ASSERT_TRUE(mirror_.add(memory_.address(), kBytes, memory_.start(), true));
  const std::uint64_t at = memory_.address() + kPage;
  mirror_.add_allocation(at, 128, false, 10, 20);
  Bytes pieces(kPage);
  protocol::MirrorWriter writer(pieces);
  alignas(8) std::byte line[protocol::kMirrorLineBytes];
  std::memset(line, 7, sizeof line);
  for (std::uint64_t offset = 0; offset < 4 * 64; offset += 64) {
    ASSERT_TRUE(writer.add(at - 64 + offset, line, offset % 128 == 0));
  }
  ASSERT_TRUE(mirror_.take(ByteView(pieces).first(writer.size())));
  for (std::size_t i = 0; i < 4 * 64; ++i) {
    const bool inside = i >= 64 + 10 && i < 3 * 64 - 20;
    EXPECT_EQ(memory_[kPage - 64 + i], inside ? 7 : 0) << i;
  }
}

// The worker joins neighbouring lines to one piece.
TEST_P(HostMirrors, PieceMayGoThroughSeveralAllocations) {
  ASSERT_TRUE(mirror_.add(memory_.address(), kBytes, memory_.start(), true));
  mirror_.add_allocation(memory_.address() + kPage, kPage, false);
  mirror_.add_allocation(memory_.address() + 2 * kPage, kPage, false);
  mirror_.add_allocation(memory_.address() + 4 * kPage, kPage, false);
  Bytes pieces(7 * kPage);
  protocol::MirrorWriter writer(pieces);
  alignas(8) std::byte line[protocol::kMirrorLineBytes];
  std::memset(line, 7, sizeof line);
  for (std::uint64_t offset = 0; offset < 6 * kPage; offset += sizeof line) {
    ASSERT_TRUE(writer.add(memory_.address() + offset, line));
  }
  ASSERT_EQ(writer.size(), sizeof(protocol::HostMirrorPiece) + 6 * kPage) << "one piece";
  ASSERT_TRUE(mirror_.take(ByteView(pieces).first(writer.size())));
  for (std::size_t page = 0; page < 6; ++page) {
    const bool reached = page == 1 || page == 2 || page == 4;
    EXPECT_EQ(memory_[page * kPage], reached ? 7 : 0) << page;
    EXPECT_EQ(memory_[(page + 1) * kPage - 1], reached ? 7 : 0) << page;
  }
  EXPECT_EQ(sent(), Lines());
}

// The program fills a large buffer, and then sets a flag in a small one.
TEST_P(HostMirrors, WhatWasWrittenBeforeAFlagIsSentBeforeIt) {
  ASSERT_TRUE(mirror_.add(memory_.address(), kBytes, memory_.start(), true));
  const std::uint64_t flag = memory_.address() + 40 * kPage;
  mirror_.add_allocation(memory_.address(), 32 * kPage, false);
  mirror_.add_allocation(flag, kPage, false);
  memory_[5 * kPage] = 1;
  memory_[40 * kPage] = 1;
  std::vector<std::uint64_t> order;
  EXPECT_TRUE(mirror_.send_polled(mirror_.polled(), [&](ByteView payload) {
    protocol::HostMirrorPiece piece;
    ByteView pieces = payload.subspan(sizeof(protocol::HostMirrorHead)), lines;
    EXPECT_TRUE(protocol::next_piece(&pieces, &piece, &lines));
    order.push_back(piece.address);
    return true;
  }));
  EXPECT_EQ(order, (Lines{memory_.address() + 5 * kPage, flag}));
  order.clear();
  memory_[6 * kPage] = 1;
  EXPECT_TRUE(mirror_.send_polled(mirror_.polled(), [&](ByteView) { return false; }));
  EXPECT_EQ(sent(), Lines{memory_.address() + 6 * kPage}) << "without a flag it can wait";
}

TEST_P(HostMirrors, SmallAllocationsArePolled) {
  ASSERT_TRUE(mirror_.add(memory_.address(), kBytes, memory_.start(), true));
  mirror_.add_allocation(memory_.address(), 2 * HostMirror::kPolledAllocationMax, false);
  const std::uint64_t small = memory_.address() + 40 * kPage;
  mirror_.add_allocation(small, kPage, false);
  const auto ranges = mirror_.polled();
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_EQ(ranges[0].address, small);
  memory_[40 * kPage] = 1;
  std::size_t bytes = 0;
  EXPECT_TRUE(mirror_.send_polled(ranges, [&](ByteView payload) {
    bytes += payload.size();
    return true;
  }));
  EXPECT_EQ(bytes, sizeof(protocol::HostMirrorHead) + sizeof(protocol::HostMirrorPiece) + 64);
  EXPECT_EQ(sent(), Lines());
}

}  // namespace
}  // namespace gpurun::client
