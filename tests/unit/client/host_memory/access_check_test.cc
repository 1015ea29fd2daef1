// AccessCheck: an access to managed memory is reported once for each work that may use it, wherever
// the memory begins in its pages. The program goes on, and a forked child has all access.
#include "client/host_memory/access_check.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "client/process/fork_guard.h"

namespace gpurun::client {
namespace {

constexpr std::size_t kPage = 4096;
constexpr AccessCheck::Stream kStream{7, 8};

// A stream with work, and two variables in its first page. The second goes into the next page.
class AccessChecks : public ::testing::Test {
 protected:
  AccessChecks()
      : memory_(static_cast<char*>(
            mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    check_.add(address(64), 8);
    check_.add(address(128), kPage);
  }
  ~AccessChecks() override {
    busy_ = false;
    check_.remove(address(64));
    check_.remove(address(128));
    munmap(memory_, 2 * kPage);
  }
  std::uint64_t address(std::size_t at) const {
    return reinterpret_cast<std::uint64_t>(memory_) + at;
  }
  void issue() {
    check_.note_work(kStream, "kernel some");
    check_.begin_work();
  }
  // Writes there, and returns how many lines were logged.
  int reports(std::size_t at) {
    testing::internal::CaptureStderr();
    static_cast<volatile char*>(memory_)[at] = 1;
    const std::string said = testing::internal::GetCapturedStderr();
    int lines = 0;
    for (const char each : said) lines += each == '\n' ? 1 : 0;
    if (lines != 0) {
      EXPECT_NE(said.find("managed memory at 0x"), std::string::npos) << said;
      EXPECT_NE(said.find("while kernel some may use it"), std::string::npos) << said;
    }
    return lines;
  }

  static inline bool busy_ = true;
  char* const memory_;
  AccessCheck& check_ = AccessCheck::begin({[](const void*, AccessCheck::Stream stream) {
                                              return busy_ && stream.context == kStream.context &&
                                                     stream.stream == kStream.stream;
                                            },
                                            nullptr});
};

TEST_F(AccessChecks, EachVariableIsReportedOnceForEachWork) {
  busy_ = true;
  EXPECT_EQ(reports(64), 0) << "nothing was issued";
  for (int round = 0; round < 2; ++round) {
    issue();
    EXPECT_EQ(reports(kPage + 3), 1);
    EXPECT_EQ(reports(130), 0) << "the same variable";
    EXPECT_EQ(reports(kPage + 100), 0);
  }
  issue();
  EXPECT_EQ(reports(65), 1) << "a page of two variables";
  EXPECT_EQ(reports(kPage + 100), 1) << "the other variable's own page";
}

TEST_F(AccessChecks, AccessIsAllowedWhereNoWorkIsUnderWay) {
  busy_ = false;
  issue();
  EXPECT_EQ(reports(64), 0);
  EXPECT_EQ(reports(kPage), 0);
}

TEST_F(AccessChecks, OwnAccessIsNotReported) {
  busy_ = true;
  issue();
  check_.begin_own_access();
  check_.attach(address(64), AccessCheck::Attachment::kGlobal, kStream);
  EXPECT_EQ(reports(64), 0);
  EXPECT_EQ(reports(kPage), 0);
  check_.end_own_access();
  EXPECT_EQ(reports(kPage), 1);
}

TEST_F(AccessChecks, ForkedChildHasAllAccess) {
  ASSERT_TRUE(fork_guard::arm().ok());  // As a session does.
  busy_ = true;
  issue();
  const pid_t child = fork();
  if (child == 0) {
    static_cast<volatile char*>(memory_)[64] = 1;
    static_cast<volatile char*>(memory_)[kPage + 100] = 1;
    _exit(AccessCheck::active() == nullptr ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(reports(kPage + 100), 1) << "the parent's check goes on";
}

}  // namespace
}  // namespace gpurun::client
