// Two processes over the verbs double: data both ways, a peer that dies, and shared counters.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>

#include "tests/drivers/verbs/test_endpoint.h"

#if defined(__has_feature) && !defined(__SANITIZE_THREAD__)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1  // As g++ has it.
#endif
#endif

namespace gpurun::verbs_double {
namespace {

// A child process with a socket to it. The child ends with the result of `work` as its status.
class Child {
 public:
  explicit Child(const std::function<int(int socket)>& work) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    process_ = fork();
    if (process_ == 0) {
      close(ends[0]);
      _exit(work(ends[1]));
    }
    close(ends[1]);
    socket = ends[0];
  }
  ~Child() {
    close(socket);
    if (process_ > 0) end(SIGKILL);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  // Waits for its end. Returns its status, or -1 if a signal ended it.
  int end(int signal = 0) {
    if (signal != 0) kill(process_, signal);
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  int socket = -1;

 private:
  pid_t process_ = -1;
};

void put(int socket, const Numbers& numbers) {
  ASSERT_EQ(write(socket, &numbers, sizeof(numbers)), static_cast<ssize_t>(sizeof(numbers)));
}

Numbers take(int socket) {
  Numbers numbers;
  EXPECT_EQ(recv(socket, &numbers, sizeof(numbers), MSG_WAITALL),
            static_cast<ssize_t>(sizeof(numbers)));
  return numbers;
}

// The child: it answers each immediate with a write of the doubled number, and one more.
int answer(int socket) {
  Endpoint end;
  put(socket, end.numbers());
  const Numbers peer = take(socket);
  end.connect(peer);
  for (std::uint64_t i = 0; i < 8; ++i) end.receive(i, 0, 0);
  put(socket, end.numbers());  // Ready.
  for (std::uint32_t round = 0;;) {
    const ibv_wc wc = end.next();
    if (wc.status != IBV_WC_SUCCESS) return 1;
    if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) continue;
    std::uint32_t number = 0;
    std::memcpy(&number, end.memory.data() + 64, sizeof(number));
    if (number != round || ntohl(wc.imm_data) != round) return 2;
    if (number == 200) return 0;
    number *= 2;
    std::memcpy(end.memory.data() + 128, &number, sizeof(number));
    end.receive(0, 0, 0);
    end.write(1, 128, sizeof(number), peer, 256, 0);
    end.write(2, 0, 0, peer, 0, IBV_SEND_SIGNALED, htonl(round++));
  }
}

TEST(VerbsProcesses, ExchangeWritesWithImmediates) {
  const Settings settings;
  Child child(answer);
  Endpoint end;
  const Numbers peer = take(child.socket);
  put(child.socket, end.numbers());
  end.connect(peer);
  take(child.socket);
  for (std::uint32_t round = 0; round <= 200; ++round) {
    ASSERT_EQ(end.receive(0, 0, 0), 0);
    std::memcpy(end.memory.data(), &round, sizeof(round));
    ASSERT_EQ(end.write(3, 0, sizeof(round), peer, 64, IBV_SEND_SIGNALED, htonl(round)), 0);
    if (round == 200) break;
    ibv_wc wc = end.next();
    while (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE) wc = end.next();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << round;
    std::uint32_t number = 0;
    std::memcpy(&number, end.memory.data() + 256, sizeof(number));
    ASSERT_EQ(number, 2 * round);
  }
  EXPECT_EQ(child.end(), 0);
}

TEST(VerbsProcesses, PeerThatDiesEndsRequestsAfterTheTimeout) {
  const Settings settings;
  Child child(answer);
  EndpointOptions options;
  options.timeout = 8;
  options.retries = 1;
  Endpoint end(options);
  const Numbers peer = take(child.socket);
  put(child.socket, end.numbers());
  end.connect(peer);
  take(child.socket);
  ASSERT_EQ(end.receive(4, 0, 0), 0);
  ASSERT_EQ(end.read(1, 0, 8, peer, 0), 0);
  EXPECT_EQ(end.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(child.end(SIGKILL), -1);
  EXPECT_TRUE(end.quiet());  // A receiver notices nothing.
  ASSERT_EQ(end.read(2, 0, 8, peer, 0), 0);
  ASSERT_EQ(end.read(3, 0, 8, peer, 0), 0);
  EXPECT_EQ(end.next().status, IBV_WC_RETRY_EXC_ERR);
  // The second read may be posted before or after the QP goes to ERR.
  const ibv_wc flushed[] = {end.next(), end.next()};
  EXPECT_EQ(flushed[0].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed[1].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed[0].wr_id + flushed[1].wr_id, 3U + 4U);
}

TEST(VerbsProcesses, ProcessMayExitWithOpenObjects) {
  const Settings settings;
  Child child([](int) -> int {
    auto* end = new Endpoint;
    end->to_init();
    std::exit(end->state() == IBV_QPS_INIT ? 0 : 1);
  });
  EXPECT_EQ(child.end(), 0);
}

#ifndef __SANITIZE_THREAD__  // ThreadSanitizer allows no thread in a child of several threads.
TEST(VerbsProcesses, ChildOfForkOpensDevicesOfItsOwn) {
  const Settings settings;
  Endpoint a;
  Endpoint b;
  connect(a, b);
  const auto exchange = [](Endpoint& from, Endpoint& to) {
    return to.receive(1, 0, 1) == 0 && from.send(2, 0, 1) == 0 &&
           to.next().status == IBV_WC_SUCCESS && from.next().status == IBV_WC_SUCCESS;
  };
  EXPECT_TRUE(exchange(a, b));
  Child child([&](int) {
    Endpoint c;
    Endpoint d;
    connect(c, d);
    return exchange(c, d) ? 0 : 1;
  });
  EXPECT_EQ(child.end(), 0);
  EXPECT_TRUE(exchange(a, b));
}
#endif

TEST(VerbsProcesses, CountersOfProcessesAddUpInAFile) {
  char path[] = "/tmp/verbs_double_XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  for (int i = 0; i < 2; ++i) {
    Child child([&](int) -> int {
      setenv("VERBS_DOUBLE_COUNTERS", path, 1);
      dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
      execl("/proc/self/exe", "verbs_double_test",
            "--gtest_filter=VerbsCounters.CountPostsBytesAndDoorbells", nullptr);
      return 1;
    });
    EXPECT_EQ(child.end(), 0);
  }
  verbs_double_counts counts{};
  EXPECT_EQ(read(file, &counts, sizeof(counts)), static_cast<ssize_t>(sizeof(counts)));
  EXPECT_EQ(counts.posted_write, 2U);
  EXPECT_EQ(counts.posted_bytes, 240U);
  close(file);
  unlink(path);
}

TEST(VerbsProcesses, FolderOfSocketFilesIsEmptyAfterwards) {
  char folder[] = "/tmp/verbs_double_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  {
    const Settings settings;
    setenv("VERBS_DOUBLE_FABRIC", folder, 1);
    Endpoint a;
    Endpoint b;
    EXPECT_FALSE(std::filesystem::is_empty(folder));
    connect(a, b);
    ASSERT_EQ(b.receive(1, 0, 0), 0);
    ASSERT_EQ(a.send(2, 0, 0), 0);
    EXPECT_EQ(b.next().status, IBV_WC_SUCCESS);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gpurun::verbs_double
