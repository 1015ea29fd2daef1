// ArenaFile: blocks lie exactly where they were asked for, their pages go back to the system, and a
// forked child has copies of its own.
#include "client/host_memory/arena_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <vector>

#include "client/process/fork_guard.h"

namespace gpurun::client {
namespace {

constexpr std::uint64_t kBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kBlock = 64 << 10;

// A new address in the range that the kernel itself uses, so that every sanitizer allows it, but
// far below the mappings that exist.
std::uint64_t free_address() {
  static std::uint64_t next = [] {
    void* const place = mmap(nullptr, kBlock, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(place, MAP_FAILED);
    munmap(place, kBlock);
    constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
    return (reinterpret_cast<std::uint64_t>(place) / kGiB - 300) * kGiB;
  }();
  return next += kBlock;
}

volatile int* word_at(std::uint64_t address) { return reinterpret_cast<volatile int*>(address); }

int status_of_child(const std::function<int()>& run) {
  const pid_t child = fork();
  if (child == 0) _exit(run());
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class ArenaFileTest : public ::testing::Test {
 protected:
  ArenaFileTest() {
    EXPECT_TRUE(fork_guard::arm().ok());
    Result<ArenaFile> made = ArenaFile::make(kBytes, 500);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    file_ = *std::move(made);
  }
  std::uint64_t map(std::uint64_t offset) {
    const std::uint64_t address = free_address();
    const Status mapped = file_.map(address, offset, kBlock);
    EXPECT_TRUE(mapped.ok()) << mapped.to_string();
    return address;
  }
  blkcnt_t pages() const {
    struct stat about = {};
    EXPECT_EQ(fstat(file_.fd(), &about), 0);
    return about.st_blocks;
  }
  ArenaFile file_;
};

TEST_F(ArenaFileTest, BlockIsMemoryOfTheFile) {
  EXPECT_GE(file_.fd(), 500);
  const std::uint64_t address = map(2 * kBlock);
  *word_at(address + 8) = 77;
  int seen = 0;
  ASSERT_EQ(pread(file_.fd(), &seen, sizeof seen, 2 * kBlock + 8), ssize_t{sizeof seen});
  EXPECT_EQ(seen, 77);
  ArenaFile::unmap(address, kBlock);
}

TEST_F(ArenaFileTest, PagesGoBackAndComeAsZeros) {
  const std::uint64_t address = map(0);
  std::memset(reinterpret_cast<void*>(address), 1, kBlock);
  EXPECT_GE(pages(), static_cast<blkcnt_t>(kBlock / 512));
  ArenaFile::unmap(address, kBlock);
  EXPECT_EQ(pages(), 0);
  const std::uint64_t again = map(0);
  EXPECT_EQ(*word_at(again), 0);
  ArenaFile::unmap(again, kBlock);
}

TEST_F(ArenaFileTest, AddressesInUseStayAsTheyAre) {
  void* const taken =
      mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(taken, MAP_FAILED);
  const auto address = reinterpret_cast<std::uint64_t>(taken);
  *word_at(address) = 5;
  EXPECT_EQ(file_.map(address, 0, kBlock).code(), Code::kUnavailable);
  EXPECT_EQ(*word_at(address), 5);
  munmap(taken, kBlock);
}

TEST_F(ArenaFileTest, SizeCannotChange) {
  EXPECT_NE(ftruncate(file_.fd(), 4096), 0);
  EXPECT_NE(ftruncate(file_.fd(), static_cast<off_t>(2 * kBytes)), 0);
}

TEST_F(ArenaFileTest, ChildWritesToCopies) {
  const std::uint64_t first = map(0);
  const std::uint64_t second = map(4 * kBlock);
  *word_at(first) = 1;
  *word_at(second) = 2;
  const int fd = file_.fd();
  EXPECT_EQ(status_of_child([=] {
              const bool kept = *word_at(first) == 1 && *word_at(second) == 2;
              *word_at(first) = 10;
              *word_at(second) = 20;
              return kept && fcntl(fd, F_GETFD) < 0 ? 3 : 4;
            }),
            3);
  EXPECT_EQ(*word_at(first), 1);
  EXPECT_EQ(*word_at(second), 2);
  ArenaFile::unmap(first, kBlock);
  ArenaFile::unmap(second, kBlock);
}

TEST_F(ArenaFileTest, ClosedDescriptorMapsNothing) {
  const int kept = dup(file_.fd());
  const int number = file_.fd();
  ASSERT_EQ(close(number), 0);
  EXPECT_EQ(file_.map(free_address(), 0, kBlock).code(), Code::kResourceExhausted);
  // The program's own file has the number now.
  const int own = open("/dev/zero", O_RDWR);
  ASSERT_EQ(dup2(own, number), number);
  EXPECT_EQ(file_.map(free_address(), 0, kBlock).code(), Code::kResourceExhausted);
  close(own);
  close(number);
  close(kept);
}

TEST_F(ArenaFileTest, BlocksAreBounded) {
  std::vector<std::uint64_t> addresses;
  for (std::size_t i = 0; i < ArenaFile::kBlocksMax; ++i) addresses.push_back(map(i * 4096 * 16));
  EXPECT_EQ(file_.map(free_address(), 0, kBlock).code(), Code::kResourceExhausted);
  for (const std::uint64_t address : addresses) ArenaFile::unmap(address, kBlock);
  ArenaFile::unmap(map(0), kBlock);
}

// Over the limit of file sizes, ftruncate() would end the program by a signal.
TEST_F(ArenaFileTest, LimitsOfTheProcessAreKept) {
  for (const auto resource : {RLIMIT_FSIZE, RLIMIT_AS}) {
    EXPECT_EQ(status_of_child([resource] {
                rlimit limit{};
                getrlimit(resource, &limit);
                limit.rlim_cur = kBytes - 1;
                if (setrlimit(resource, &limit) != 0) return 9;
                const auto made = ArenaFile::make(kBytes, 500);
                return made.status().code() == Code::kResourceExhausted ? 3 : 4;
              }),
              3);
  }
}

}  // namespace
}  // namespace gpurun::client
