// Memory ledger: processes that share an emulated device share its memory. What one takes the
// others lack, and together they never have more than there is. A killed process's bytes come back.
// A malicious process can take memory and nothing else.
#include "emulated/memory_ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "emulated/settings.h"

namespace gpurun::emulated {
namespace {

constexpr std::uint64_t kTotal = std::uint64_t{8} << 30;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

UniqueFd make_file() { return UniqueFd(memfd_create("ledger", MFD_CLOEXEC)); }

// The number of the kernel's locks that other processes would see. A process has one for each run.
int runs_in(int file) {
  int runs = 0;
  std::uint64_t start = 0;
  while (start < kTotal && runs < 10'000) {
    // Searches from the right, so that the lowest lock is found last.
    struct flock found {};
    std::uint64_t end = kTotal, next = kTotal;
    bool any = false;
    while (true) {
      struct flock asked {};
      asked.l_type = F_WRLCK;
      asked.l_start = static_cast<off_t>(start);
      asked.l_len = static_cast<off_t>(end - start);
      if (end == start || fcntl(file, F_GETLK, &asked) != 0 || asked.l_type == F_UNLCK) break;
      any = true;
      found = asked;
      next = static_cast<std::uint64_t>(found.l_start + found.l_len);
      end = std::max(static_cast<std::uint64_t>(found.l_start), start);
    }
    if (!any) break;
    ++runs;
    start = next;
  }
  return runs;
}

// Another process with a ledger of the same file, controlled by the test.
class Neighbour {
 public:
  explicit Neighbour(int file, std::uint64_t total = kTotal) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    ours_.reset(ends[0]);
    UniqueFd theirs(ends[1]);
    process_ = fork();
    if (process_ == 0) {
      ours_.reset();
      obey(theirs.get(), file, total);
    }
  }
  ~Neighbour() { kill(); }
  bool take(std::uint64_t bytes) { return ask('t', bytes) != 0; }
  void give(std::uint64_t bytes) { ask('g', bytes); }
  std::uint64_t bytes_free() { return ask('f', 0); }
  // Directly, without the ledger: locks [start, end), or to the end of the file if `end` is 0.
  // unlock() releases it.
  bool lock(std::uint64_t start, std::uint64_t end) { return ask('l', start, end) != 0; }
  bool unlock(std::uint64_t start, std::uint64_t end) { return ask('u', start, end) != 0; }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    int status = 0;
    EXPECT_EQ(waitpid(process_, &status, 0), process_);
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
    process_ = -1;
  }

 private:
  struct Order {
    char what = 0;
    std::uint64_t first = 0, second = 0;
  };
  std::uint64_t ask(char what, std::uint64_t first, std::uint64_t second = 0) {
    const Order order{what, first, second};
    std::uint64_t answer = 0;
    EXPECT_EQ(send(ours_.get(), &order, sizeof order, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof order));
    EXPECT_EQ(recv(ours_.get(), &answer, sizeof answer, 0), static_cast<ssize_t>(sizeof answer));
    return answer;
  }
  [[noreturn]] static void obey(int socket, int file, std::uint64_t total) {
    MemoryLedger ledger(file, total);
    Order order;
    while (recv(socket, &order, sizeof order, 0) == static_cast<ssize_t>(sizeof order)) {
      std::uint64_t answer = 1;
      struct flock lock {};
      lock.l_type = order.what == 'l' ? F_WRLCK : F_UNLCK;
      lock.l_start = static_cast<off_t>(order.first);
      lock.l_len = order.second == 0 ? 0 : static_cast<off_t>(order.second - order.first);
      if (order.what == 't') answer = ledger.take(order.first) ? 1 : 0;
      if (order.what == 'g') ledger.give(order.first);
      if (order.what == 'f') answer = ledger.bytes_free();
      if (order.what == 'l' || order.what == 'u') {
        answer = fcntl(file, F_SETLK, &lock) == 0 ? 1 : 0;
      }
      if (send(socket, &answer, sizeof answer, MSG_NOSIGNAL) < 0) break;
    }
    raise(SIGKILL);
    _exit(1);
  }

  UniqueFd ours_;
  pid_t process_ = -1;
};

TEST(MemoryLedger, SettingsAcceptOnlyUsableLedgerFiles) {
  using Descriptors = std::vector<int>;
  EXPECT_EQ(parse_settings("ledger=4+ 17").ledger, (Descriptors{4, 17}));
  for (const char* wrong :
       {"ledger", "ledger=", "ledger=4+", "ledger=4+4", "ledger=2", "ledger=x"}) {
    EXPECT_EQ(parse_settings(wrong).ledger, Descriptors()) << wrong;
  }
  const UniqueFd file = make_file();
  const UniqueFd read_only(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const std::string list =
      "ledger=" + std::to_string(file.get()) + "+" + std::to_string(read_only.get()) + "+100000";
  setenv("GPURUN_EMULATED", list.c_str(), 1);  // Read once, at this point.
  EXPECT_EQ(ledger_file(0), file.get());
  for (const int ordinal : {1, 2, 3, -1}) EXPECT_EQ(ledger_file(ordinal), -1);
}

TEST(MemoryLedger, WithoutFileProcessUsesWholeDevice) {
  MemoryLedger ledger(-1, 1000);
  EXPECT_FALSE(ledger.take(1001));
  EXPECT_TRUE(ledger.take(1000));
  EXPECT_FALSE(ledger.take(1));
  EXPECT_FALSE(ledger.take(~std::uint64_t{0}));
  ledger.give(400);
  EXPECT_EQ(ledger.bytes_free(), 400u);
}

TEST(MemoryLedger, KilledProcessReturnsItsMemory) {
  const UniqueFd file = make_file();
  MemoryLedger ledger(file.get(), kTotal);
  Neighbour neighbour(file.get());
  ASSERT_TRUE(ledger.take(3 * kMiB));
  EXPECT_EQ(neighbour.bytes_free(), kTotal - 3 * kMiB);
  ASSERT_TRUE(neighbour.take(100 * kMiB));
  ASSERT_TRUE(neighbour.take(4096));
  EXPECT_EQ(ledger.bytes_free(), kTotal - 103 * kMiB - 4096);
  EXPECT_EQ(neighbour.bytes_free(), ledger.bytes_free());
  neighbour.give(kMiB);
  EXPECT_EQ(ledger.bytes_free(), kTotal - 102 * kMiB - 4096);
  neighbour.kill();
  EXPECT_EQ(ledger.bytes_free(), kTotal - 3 * kMiB);
}

TEST(MemoryLedger, ProcessesShareMemoryToLastByte) {
  const UniqueFd file = make_file();
  MemoryLedger ledger(file.get(), kTotal);
  Neighbour first(file.get()), second(file.get());
  ASSERT_TRUE(first.take(kTotal / 2 + 1));
  ASSERT_TRUE(second.take(1000));
  EXPECT_FALSE(ledger.take(kTotal / 2 - 1000));
  EXPECT_EQ(ledger.bytes_free(), kTotal / 2 - 1001);  // A failure takes nothing.
  EXPECT_TRUE(ledger.take(kTotal / 2 - 1001));
  EXPECT_EQ(first.bytes_free(), 0u);
  EXPECT_FALSE(first.take(1));
  EXPECT_FALSE(second.take(~std::uint64_t{0}));
  second.kill();
  EXPECT_TRUE(first.take(1000));
  EXPECT_FALSE(ledger.take(1));
  first.kill();
  EXPECT_TRUE(ledger.take(kTotal / 2 + 1001));
}

TEST(MemoryLedger, FragmentedMemoryIsAllocatable) {
  const UniqueFd file = make_file();
  MemoryLedger ledger(file.get(), kTotal);
  Neighbour neighbour(file.get());
  for (std::uint64_t at = kMiB; at < kTotal; at += kTotal / 8) {
    ASSERT_TRUE(neighbour.lock(at, at + kMiB));
  }
  EXPECT_EQ(ledger.bytes_free(), kTotal - 8 * kMiB);
  EXPECT_FALSE(ledger.take(kTotal - 8 * kMiB + 1));
  ASSERT_TRUE(ledger.take(kTotal - 8 * kMiB));
  EXPECT_EQ(ledger.bytes_free(), 0u);
  ledger.give(kTotal / 2);
  EXPECT_EQ(ledger.bytes_free(), kTotal / 2);
}

// Two processes that grow by turns must not split the file into a piece for each allocation. Each
// query to the kernel takes time in proportion to the pieces.
TEST(MemoryLedger, InterleavedGrowthKeepsFewRuns) {
  const UniqueFd file = make_file();
  Neighbour first(file.get()), second(file.get()), third(file.get());
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(first.take(kMiB) && second.take(kMiB) && third.take(kMiB));
    if (i % 3 == 0) second.give(kMiB);
  }
  EXPECT_LE(runs_in(file.get()), 8);
  third.kill();
  second.kill();
  first.kill();
  EXPECT_EQ(runs_in(file.get()), 0);
}

TEST(MemoryLedger, MaliciousProcessCanOnlyTakeMemory) {
  const UniqueFd file = make_file();
  MemoryLedger ledger(file.get(), kTotal);
  ASSERT_TRUE(ledger.take(5 * kMiB));
  Neighbour ill(file.get()), good(file.get());
  // It can neither take nor free what others have.
  EXPECT_FALSE(ill.lock(0, 0));
  EXPECT_FALSE(ill.lock(5 * kMiB - 1, 5 * kMiB));
  EXPECT_TRUE(ill.unlock(0, 0));
  EXPECT_EQ(good.bytes_free(), kTotal - 5 * kMiB);
  // It takes all the rest, as an honest allocation could, and places beyond the end.
  EXPECT_TRUE(ill.lock(5 * kMiB, 0));
  EXPECT_EQ(ledger.bytes_free(), 0u);
  EXPECT_FALSE(good.take(1));
  EXPECT_TRUE(ill.unlock(5 * kMiB, 0));
  EXPECT_EQ(ledger.bytes_free(), kTotal - 5 * kMiB);
  // More runs than the ledger searches. The rest counts as taken, in bounded time.
  for (std::uint64_t at = 6 * kMiB; at < 6 * kMiB + 6000; at += 2) ill.lock(at, at + 1);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_LT(good.bytes_free(), kTotal - 5 * kMiB);
  EXPECT_FALSE(ledger.take(kTotal / 2));
  EXPECT_TRUE(ledger.take(kMiB / 2));  // The part before them is available.
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  ill.kill();
  EXPECT_EQ(good.bytes_free(), kTotal - 5 * kMiB - kMiB / 2);
}

// Counters of the next test's processes, in shared memory.
constexpr int kRacers = 4;
struct Counted {
  std::atomic<std::uint64_t> used{0}, most{0}, taken{0};
  std::atomic<int> waiting{kRacers};
};

[[noreturn]] void take_and_give(int file, unsigned seed, Counted& counted) {
  MemoryLedger ledger(file, 64 * kMiB);
  std::mt19937 random(seed);
  std::vector<std::uint64_t> mine;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // A process that never arrives must not keep the others for
                                     // ever.
  for (--counted.waiting; counted.waiting > 0;) sched_yield();
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t bytes = random() % (10 * kMiB) + 1;
    if (random() % 2 == 0 && ledger.take(bytes)) {
      const std::uint64_t used = counted.used += bytes;
      std::uint64_t most = counted.most;
      while (used > most && !counted.most.compare_exchange_weak(most, used)) {
      }
      ++counted.taken;
      mine.push_back(bytes);
    } else if (!mine.empty()) {
      counted.used -= mine.back();
      ledger.give(mine.back());
      mine.pop_back();
    }
  }
  for (const std::uint64_t bytes : mine) counted.used -= bytes;
  raise(SIGKILL);  // The kill gives them back.
  _exit(1);
}

TEST(MemoryLedger, ConcurrentTakesNeverExceedTotal) {
  const UniqueFd file = make_file();
  void* memory =
      mmap(nullptr, sizeof(Counted), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* counted = new (memory) Counted;
  std::vector<pid_t> processes;
  for (unsigned seed = 1; seed <= kRacers; ++seed) {
    processes.push_back(fork());
    if (processes.back() == 0) take_and_give(file.get(), seed, *counted);
    ASSERT_GT(processes.back(), 0);
  }
  for (const pid_t process : processes) {
    int status = 0;
    EXPECT_EQ(waitpid(process, &status, 0), process);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }
  EXPECT_LE(counted->most, 64 * kMiB);
  EXPECT_GT(counted->most, 48 * kMiB);
  EXPECT_GT(counted->taken, 1000u);
  MemoryLedger ledger(file.get(), 64 * kMiB);
  EXPECT_EQ(ledger.bytes_free(), 64 * kMiB);
  munmap(memory, sizeof(Counted));
}

}  // namespace
}  // namespace gpurun::emulated
