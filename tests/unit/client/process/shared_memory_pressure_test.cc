// SharedMemoryPressure: processes that share a device see the idle memory of the others and ask for
// it. The asker waits for processes that can answer, and only for a bounded time for the others.
#include "client/process/shared_memory_pressure.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "client/session/worker_exit_page.h"

namespace gpurun::client {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{20'000};
constexpr milliseconds kShort{50};

// A process that lives until the test ends it.
class Other {
 public:
  Other() {
    EXPECT_EQ(pipe(ends_), 0);
    pid_ = fork();
    if (pid_ != 0) return;
    close(ends_[1]);
    char byte;
    _exit(read(ends_[0], &byte, 1) == 0 ? 0 : 1);
  }
  ~Other() {
    if (!ended_) end();
    waitpid(pid_, nullptr, 0);
  }
  std::uint32_t number() const { return static_cast<std::uint32_t>(pid_); }
  // The status is not collected, so the process stays a zombie.
  void end() {
    close(ends_[0]);
    close(ends_[1]);
    siginfo_t how;
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid_), &how, WEXITED | WNOWAIT), 0);
    ended_ = true;
  }

 private:
  int ends_[2] = {-1, -1};
  pid_t pid_ = 0;
  bool ended_ = false;
};

class SharedMemoryPressureTest : public ::testing::Test {
 protected:
  SharedMemoryPressureTest()
      : file_(*WorkerExitPage::create()), board_(SharedMemoryPressure::map(file_.get())) {}
  UniqueFd file_;
  SharedMemoryPressure* board_;
  const std::uint32_t self_ = static_cast<std::uint32_t>(getpid());
};

TEST_F(SharedMemoryPressureTest, IdleBytesCountOnlyLivingPeers) {
  Other other;
  const int own = board_->join(self_), theirs = board_->join(other.number());
  ASSERT_TRUE(own >= 0 && theirs >= 0 && own != theirs);
  board_->say_idle(own, 1, 5);
  board_->say_idle(theirs, 1, 7);
  board_->say_idle(theirs, SharedMemoryPressure::kDevices, 9);
  EXPECT_EQ(board_->idle_elsewhere(own, 1), 7u);
  EXPECT_EQ(board_->idle_elsewhere(theirs, 1), 5u);
  EXPECT_EQ(board_->idle_elsewhere(own, 0), 0u);
  EXPECT_EQ(board_->idle_elsewhere(own, SharedMemoryPressure::kDevices), 0u);
  EXPECT_FALSE(board_->some_just_died(own, kLong));
  other.end();
  EXPECT_EQ(board_->idle_elsewhere(own, 1), 0u);
  EXPECT_TRUE(board_->some_just_died(own, kLong));
  EXPECT_FALSE(board_->some_just_died(own, milliseconds(0)));
  EXPECT_FALSE(board_->some_just_died(own, kLong)) << "its place is free again";
  EXPECT_FALSE(board_->ask(own, kLong)) << "nobody is left";
  // After exec() the new program takes over the process's place.
  EXPECT_EQ(board_->join(self_), own);
}

// For NVML: the used memory of a device, and the processes that use it.
TEST_F(SharedMemoryPressureTest, ListsLivingUsersOfDevice) {
  Other other;
  const int own = board_->join(self_), theirs = board_->join(other.number());
  SharedMemoryPressure::User users[3];
  EXPECT_EQ(board_->users(1, users, 3), 0u);
  board_->say_used(theirs, 1, 7);
  board_->say_contexts(own, 1, true);
  board_->say_used(own, SharedMemoryPressure::kDevices, 9);
  ASSERT_EQ(board_->users(1, users, 3), 2u);
  std::sort(users, users + 2, [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  EXPECT_EQ(users[0].process, self_);
  EXPECT_EQ(users[0].bytes, 0u) << "a context alone";
  EXPECT_EQ(users[1].process, other.number());
  EXPECT_EQ(users[1].bytes, 7u);
  EXPECT_EQ(board_->users(1, users, 1), 1u) << "no more than there is room for";
  EXPECT_EQ(board_->users(0, users, 3), 0u);
  EXPECT_EQ(board_->users(-1, users, 3), 0u);
  board_->say_contexts(own, 1, false);
  other.end();
  EXPECT_EQ(board_->users(1, users, 3), 0u);
}

TEST_F(SharedMemoryPressureTest, AskSkipsProcessThatCannotAnswer) {
  const int own = board_->join(self_);
  Other silent;
  board_->stay_silent(board_->join(silent.number()));
  EXPECT_FALSE(board_->ask(own, kLong));
}

TEST_F(SharedMemoryPressureTest, AskWaitsForAnswer) {
  Other other;
  const int own = board_->join(self_), theirs = board_->join(other.number());
  std::atomic<bool> given{false};
  std::thread answers([&] {
    const std::uint32_t question = board_->await_question(theirs, 0);
    given = true;
    board_->answer(theirs, question);
  });
  EXPECT_TRUE(board_->ask(own, kLong));
  EXPECT_TRUE(given);
  answers.join();
}

// A process that joins is not asked earlier questions again. A question from before it listens is
// not lost.
TEST_F(SharedMemoryPressureTest, JoiningProcessAnswersOnlyLaterQuestions) {
  Other other;
  const int own = board_->join(self_), theirs = board_->join(other.number());
  EXPECT_TRUE(board_->ask(own, kShort));
  board_->answer(theirs, board_->await_question(theirs, board_->answered(theirs)));
  Other late;
  const int place = board_->join(late.number());
  EXPECT_EQ(board_->answered(place), board_->answered(theirs));
  EXPECT_TRUE(board_->ask(own, kShort));
  EXPECT_NE(board_->await_question(place, board_->answered(place)), board_->answered(place));
}

// The asker has returned its idle memory before it asks, and continues to work meanwhile.
TEST_F(SharedMemoryPressureTest, AskDoesNotNotifyAsker) {
  Other other;
  const int own = board_->join(self_), theirs = board_->join(other.number());
  std::atomic<bool> asked{false};
  std::thread waits([&] {
    const std::uint32_t question = board_->await_question(own, 0);
    EXPECT_TRUE(asked) << "of the own question";
    board_->answer(own, question);
  });
  EXPECT_TRUE(board_->ask(own, kShort));
  asked = true;
  EXPECT_TRUE(board_->ask(theirs, kLong));
  waits.join();
}

TEST_F(SharedMemoryPressureTest, WaitsOnlyOnceForUnresponsivePeer) {
  Other other;
  const int own = board_->join(self_), theirs = board_->join(other.number());
  EXPECT_TRUE(board_->ask(own, kShort));
  EXPECT_FALSE(board_->ask(own, kLong));
  board_->answer(theirs, 1);
  EXPECT_TRUE(board_->ask(own, kShort));
}

TEST_F(SharedMemoryPressureTest, MapRefusesPageFileOfWrongSize) {
  EXPECT_NE(board_, nullptr);
  ASSERT_EQ(ftruncate(file_.get(), SharedMemoryPressure::kOffset), 0);
  EXPECT_EQ(SharedMemoryPressure::map(file_.get()), nullptr);
  EXPECT_EQ(SharedMemoryPressure::open(""), nullptr);
}

}  // namespace
}  // namespace gpurun::client
