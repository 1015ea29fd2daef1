// WorkerExitPage: the process that lost its worker finds the death, and no other process does.
// gpurun knows which deaths were reported. Nothing that a process writes to the page does harm.
#include "client/session/worker_exit_page.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tools/gpurun/deaths.h"

namespace gpurun::client {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kNow{0};
constexpr protocol::Id kMine = {1};
constexpr protocol::Id kOther = {2};

// gpurun's view and a process's view of the same board.
struct Boards {
  Boards() {
    Result<UniqueFd> made = WorkerExitPage::create();
    EXPECT_TRUE(made.ok());
    fd = *std::move(made);
    gpurun = WorkerExitPage::map(fd.get());
    process = WorkerExitPage::open("/proc/self/fd/" + std::to_string(fd.get()));
    EXPECT_TRUE(gpurun != nullptr && process != nullptr && gpurun != process);
  }
  UniqueFd fd;
  WorkerExitPage* gpurun = nullptr;
  WorkerExitPage* process = nullptr;
};

TEST(WorkerExitPage, ReportsWorkerExitOnlyToItsProcess) {
  const Boards boards;
  const unsigned number = boards.gpurun->worker_died(kMine, "signal 9");
  EXPECT_EQ(boards.process->ask(kOther, kNow), "");
  EXPECT_FALSE(boards.gpurun->told(number));
  EXPECT_EQ(boards.process->ask(kMine, kNow), "signal 9");
  EXPECT_TRUE(boards.gpurun->told(number));
}

TEST(WorkerExitPage, AskWaitsForLaterServerExit) {
  const Boards boards;
  std::thread later([&] { boards.gpurun->server_ended("it ended"); });
  EXPECT_EQ(boards.process->ask(kMine, std::chrono::seconds(30)), "it ended");
  later.join();
  EXPECT_EQ(boards.process->ask(kOther, kNow), "it ended");  // All processes have lost the server.
  EXPECT_TRUE(boards.gpurun->told(0));
}

TEST(WorkerExitPage, EvictsOldestExit) {
  const Boards boards;
  std::vector<unsigned> numbers;
  for (std::uint8_t i = 0; i < 100; ++i) {
    numbers.push_back(boards.gpurun->worker_died({i}, "signal " + std::to_string(i)));
  }
  EXPECT_TRUE(boards.gpurun->told(numbers.front()));  // No process can ask for it any more.
  EXPECT_EQ(boards.process->ask({0}, kNow), "");
  EXPECT_EQ(boards.process->ask({99}, kNow), "signal 99");
}

TEST(WorkerExitPage, SanitisesTextOfCorruptedExitPage) {
  const Boards boards;
  static_cast<void>(boards.gpurun->server_ended(std::string(5000, 'x')));
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, boards.fd.get(), 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_LT(boards.process->ask(kMine, kNow).size(), 128U);
  std::memset(page, 0x1b, 4096);
  for (const char each : boards.process->ask(kMine, kNow)) EXPECT_EQ(each, ' ');
  static_cast<void>(boards.gpurun->server_ended("a\u009b2Jb\x9b"));
  EXPECT_EQ(boards.process->ask(kMine, kNow), "a 2Jb ");
  static_cast<void>(boards.gpurun->told(7));
  munmap(page, 4096);
  ASSERT_EQ(ftruncate(boards.fd.get(), 100), 0);
  EXPECT_EQ(WorkerExitPage::map(boards.fd.get()), nullptr);  // An access beyond the end would give
                                                             // SIGBUS.
}

TEST(WorkerExitPage, RecordsAttach) {
  const Boards boards;
  EXPECT_FALSE(boards.gpurun->somebody_attached());
  boards.process->note_attach();
  EXPECT_TRUE(boards.gpurun->somebody_attached());
  EXPECT_EQ(boards.process->ask(kMine, kNow), "");
}

// gpurun reports each death once, unless a process has reported it.
TEST(Deaths, ReportsEachWorkerExitOnce) {
  const Boards boards;
  std::vector<std::string> said;
  tools::Deaths deaths(boards.gpurun, [&](const std::string& text) { said.push_back(text); });
  EXPECT_EQ(deaths.tick(), -1);
  deaths.worker_died({kMine, "signal 9"});
  deaths.worker_died({kOther, "signal 11"});
  EXPECT_GT(deaths.tick(), 0);
  EXPECT_NE(boards.process->ask(kMine, kNow).find("signal 9"), std::string::npos);
  deaths.finish();
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said[0].find("signal 11"), std::string::npos);
  deaths.finish();
  EXPECT_EQ(said.size(), 1U);
}

TEST(Deaths, ReportsPrivateServerExitInsteadOfLeaseLoss) {
  std::vector<std::string> said;
  tools::Deaths deaths(nullptr, [&](const std::string& text) { said.push_back(text); });
  deaths.lease_ended("a:1", Status(Code::kPeerGone, "server a:1 ended the lease: closed"), true);
  EXPECT_GT(deaths.tick(), 0);
  deaths.server_ended("signal 9");
  EXPECT_EQ(deaths.tick(), -1);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said[0].find("private server has ended (signal 9)"), std::string::npos);
  // The same in the opposite order.
  deaths.lease_ended("a:1", Status(Code::kPeerGone, "server a:1 ended the lease: closed"), true);
  EXPECT_EQ(deaths.tick(), -1);
  deaths.finish();
  EXPECT_EQ(said.size(), 1U);
}

}  // namespace
}  // namespace gpurun::client
