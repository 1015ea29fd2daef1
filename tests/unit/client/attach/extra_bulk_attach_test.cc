// Late attach: a bulk connection that opens during a session belongs to this process alone. A child
// that the program forks at any moment has none of its descriptors. A connection that is no longer
// wanted is given up at once, whatever it waits for. The server is a separate process that accepts
// connections and answers nothing. Only the test's time limit, far below the limit of an opening,
// ends a wait.
#include "client/attach/extra_bulk_attach.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bitset>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "client/process/fork_guard.h"
#include "client/process/opening_descriptor.h"
#include "tests/support/full_server.h"

namespace gpurun::client {
namespace {

constexpr int kFdMin = 500;
constexpr int kNumbers = 1000;
using Numbers = std::bitset<kNumbers>;

// The open sockets. Safe in a forked child of a process with threads.
Numbers sockets() {
  Numbers found;
  for (int fd = 0; fd < kNumbers; ++fd) {
    int type = 0;
    socklen_t size = sizeof type;
    // ThreadSanitizer does not treat this call as a use of a descriptor that another thread may
    // close.
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0) {
      found.set(static_cast<std::size_t>(fd));
    }
  }
  return found;
}

// Whether a child that is forked now has only sockets that this process had at `before`.
bool child_has_only(const Numbers& before) {
  const pid_t child = fork();
  if (child == 0) _exit((sockets() & ~before).none() ? 0 : 1);
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

// Accepts connections and reports the first bytes of one. Keeps it until it is told to close, or
// with `hangs_up` closes at once. It is a separate process, so that its ends are not ours.
class Server {
 public:
  explicit Server(bool hangs_up) {
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    int heard[2];
    int told[2];
    if (bind(listener.get(), name, bytes) != 0 || listen(listener.get(), 64) != 0 ||
        getsockname(listener.get(), name, &bytes) != 0 || pipe(heard) != 0 || pipe(told) != 0) {
      throw std::runtime_error("no server");
    }
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    child_ = fork();
    if (child_ == 0) {
      close(heard[0]);
      close(told[1]);
      serve(listener.get(), hangs_up, heard[1], told[0]);
      _exit(0);
    }
    close(heard[1]);
    close(told[0]);
    heard_ = UniqueFd(heard[0]);
    told_ = UniqueFd(told[1]);
  }
  ~Server() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& address() const { return address_; }
  void await_first_bytes() const {
    char word = 0;
    ASSERT_EQ(read(heard_.get(), &word, 1), 1);
  }
  void hang_up() const { ASSERT_EQ(write(told_.get(), "", 1), 1); }

 private:
  static void serve(int listener, bool hangs_up, int heard, int told) {
    for (;;) {
      const int taken = accept(listener, nullptr, nullptr);
      char word[4096];
      if (taken < 0 || read(taken, word, sizeof word) < 0) continue;
      if (!hangs_up && (write(heard, "", 1) != 1 || read(told, word, 1) != 1)) return;
      close(taken);
    }
  }

  std::string address_;
  pid_t child_ = -1;
  UniqueFd heard_;
  UniqueFd told_;
};

ExtraBulkAttach late_attach(const std::string& server) {
  protocol::Attach words;
  words.count = 2;
  const AttachConnection like{
      server, {}, {}, words, {}, {}, kFdMin, -1, Deadline::never(), Deadline::never(), {}};
  return ExtraBulkAttach(std::make_shared<LateAttach>(like));
}

Code open(const std::string& server, OpeningDescriptor& opening) {
  return late_attach(server).open(opening).status().code();
}

class ExtraBulkAttachTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(fork_guard::arm().ok());
    rlimit limit = {};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, kNumbers);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
};

TEST_F(ExtraBulkAttachTest, ChildForkedDuringHandshakeInheritsNoSocket) {
  const Server server(false);
  const Numbers before = sockets();
  OpeningDescriptor opening;
  Code code = Code::kOk;
  std::thread opener([&] { code = open(server.address(), opening); });
  server.await_first_bytes();
  EXPECT_NE(sockets(), before) << "here there is one";
  EXPECT_TRUE(child_has_only(before));
  server.hang_up();
  opener.join();
  EXPECT_EQ(code, Code::kPeerGone);
}

TEST_F(ExtraBulkAttachTest, ChildForkedAtAnyTimeInheritsNoSocket) {
  const Server server(true);
  const Numbers before = sockets();
  std::atomic<bool> stop{false};
  std::atomic<int> opened{0};
  std::thread opener([&] {
    while (!stop) {
      OpeningDescriptor opening;
      if (open(server.address(), opening) == Code::kPeerGone) ++opened;
    }
  });
  int leaks = 0;
  for (int forks = 0; forks < 400; ++forks) leaks += child_has_only(before) ? 0 : 1;
  while (opened == 0) std::this_thread::yield();
  stop = true;
  opener.join();
  EXPECT_EQ(leaks, 0) << "of 400, beside " << opened << " openings";
}

TEST_F(ExtraBulkAttachTest, ForkClosesKeptDescriptorUntilForgotten) {
  const Numbers before = sockets();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd far(ends[1]);
  const UniqueFd near(ends[0]);
  Numbers with_far = before;
  with_far.set(static_cast<std::size_t>(far.get()));
  int kept = -1;
  {
    OpeningDescriptor opening;
    opening.before_change();
    opening.after_change(near.get());
    kept = opening.keep_watched();
  }
  EXPECT_EQ(kept, near.get());
  EXPECT_TRUE(child_has_only(with_far));
  fork_guard::forget(kept);
  EXPECT_FALSE(child_has_only(with_far));
}

TEST_F(ExtraBulkAttachTest, GivingUpEndsWaitForServer) {
  const Server server(false);
  OpeningDescriptor opening;
  Code code = Code::kOk;
  std::thread opener([&] { code = open(server.address(), opening); });
  server.await_first_bytes();
  opening.give_up();
  opener.join();
  EXPECT_EQ(code, Code::kPeerGone);
}

// The queue is full, so the kernel answers no connect. The attempt is given up before, during and
// after it.
TEST_F(ExtraBulkAttachTest, GivingUpEndsWaitForConnect) {
  const FullServer full;
  const Numbers before = sockets();
  for (int times = 0; times < 50; ++times) {
    OpeningDescriptor opening;
    Code code = Code::kOk;
    std::thread opener([&] { code = open(full.address(), opening); });
    // From before the thread runs until it waits.
    for (int turns = 0; turns < times; ++turns) std::this_thread::yield();
    while (times >= 40 && sockets() == before) std::this_thread::yield();
    opening.give_up();
    opener.join();
    EXPECT_EQ(code, Code::kUnavailable);
  }
}

}  // namespace
}  // namespace gpurun::client
