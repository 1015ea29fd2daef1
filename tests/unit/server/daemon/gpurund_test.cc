// gpurund as a program: the addresses that it refuses, and how it reports that it is ready. Its
// workers are processes that inherit nothing of it, and that end with lease and daemon.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "client/attach/attach.h"
#include "client/control/control_link.h"

namespace gpurun {
namespace {

constexpr const char* kSecret = "sixteen bytes at least";
Deadline soon() { return Deadline::in(std::chrono::seconds(20)); }

struct Pipe {
  UniqueFd reading, writing;
  Pipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reading.reset(ends[0]);
    writing.reset(ends[1]);
  }
};

// Reads until the other side closes, or until the deadline.
std::string read_all(int fd) {
  std::string text;
  const Deadline deadline = soon();
  while (true) {
    pollfd ready = {fd, POLLIN, 0};
    if (poll(&ready, 1, deadline.poll_timeout_ms()) <= 0) return text + "(timed out)";
    char piece[512];
    const ssize_t got = read(fd, piece, sizeof piece);
    if (got <= 0) return text;
    text.append(piece, static_cast<std::size_t>(got));
  }
}

bool ends_soon(int pidfd) {
  pollfd ended = {pidfd, POLLIN, 0};
  return poll(&ended, 1, soon().poll_timeout_ms()) == 1;
}

// gpurund with the stand-in worker. Descriptors 3 and 4 are its secret and its readiness pipe.
class Gpurund {
 public:
  explicit Gpurund(std::vector<std::string> options, bool with_secret = true) {
    Pipe secret, ready, errors;
    options.insert(options.begin(),
                   {GPURUND_PATH, "--worker", WORKER_PATH, "--ready-fd", "4", "--cache", "none",
                    "--worker-uids", "none", "--tokens", "none", "--audit", "none"});
    if (with_secret) options.insert(options.end(), {"--secret-fd", "3"});
    std::vector<char*> arguments;
    for (std::string& option : options) arguments.push_back(option.data());
    arguments.push_back(nullptr);
    process_ = fork();
    if (process_ == 0) {
      // Moved first, so that it does not occupy 3 or 4.
      const int in = fcntl(secret.reading.get(), F_DUPFD, 50);
      const int out = fcntl(ready.writing.get(), F_DUPFD, 50);
      dup2(errors.writing.get(), 2);
      dup2(in, 3);
      dup2(out, 4);
      close(in);
      close(out);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    pidfd_.reset(static_cast<int>(syscall(SYS_pidfd_open, process_, 0)));
    EXPECT_EQ(write(secret.writing.get(), kSecret, strlen(kSecret)),
              static_cast<ssize_t>(strlen(kSecret)));
    secret.writing.reset();
    ready.writing.reset();
    errors.writing.reset();
    address_ = read_all(ready.reading.get());
    if (!address_.empty() && address_.back() == '\n') address_.pop_back();
    errors_ = std::move(errors.reading);
  }
  ~Gpurund() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    wait();
  }
  // The address that it reported. Empty when it never was ready.
  const std::string& address() const { return address_; }
  void signal(int number) const { kill(process_, number); }
  // Returns the wait status. -1 when it does not end.
  int wait() {
    int status = -1;
    if (!ends_soon(pidfd_.get())) kill(process_, SIGKILL);
    waitpid(std::exchange(process_, -1), &status, 0);
    return status;
  }
  std::string errors() { return read_all(errors_.get()); }

  std::unique_ptr<client::ControlLink> link() const {
    auto result =
        client::ControlLink::connect(address_, byte_view(kSecret, strlen(kSecret)), soon());
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? *std::move(result) : nullptr;
  }

 private:
  pid_t process_ = -1;
  UniqueFd pidfd_;
  UniqueFd errors_;
  std::string address_;
};

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

client::LeaseRequest ask(unsigned devices) {
  client::LeaseRequest request;
  request.devices = devices;
  return request;
}

// A lease of one GPU with one attached process. The stand-in reports its process number as the
// version.
struct Attachment {
  std::unique_ptr<client::ControlLink> link;
  client::Attached attached;
  UniqueFd worker;  // A pidfd.

  explicit Attachment(const Gpurund& server) : link(server.link()) {
    const auto session = link->request_lease(ask(1));
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    if (!session.ok()) return;
    auto result = client::attach(*session, {});
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    if (!result.ok()) return;
    attached = *std::move(result);
    worker.reset(static_cast<int>(syscall(SYS_pidfd_open, attached.driver_version, 0)));
    EXPECT_TRUE(worker.valid());
  }
};

TEST(GpurundTest, WorkerServesWithoutInheritingDaemonState) {
  ASSERT_EQ(setenv("LD_GPURUN_TEST", "spilt", 1), 0);
  ASSERT_EQ(setenv("GPURUN_SESSION", "spilt", 1), 0);
  ASSERT_EQ(setenv("GPURUN_EMULATED", "passes", 1), 0);
  ASSERT_EQ(setenv("GPURUN_SPIN_US", "17", 1), 0);
  ASSERT_EQ(setenv("CUDA_VISIBLE_DEVICES", "5,7", 1), 0);
  const Gpurund server({"--listen", "127.0.0.1:0", "--driver", "/some/driver.so"});
  for (const char* name : {"LD_GPURUN_TEST", "GPURUN_SESSION", "GPURUN_EMULATED", "GPURUN_SPIN_US",
                           "CUDA_VISIBLE_DEVICES"}) {
    unsetenv(name);
  }
  ASSERT_FALSE(server.address().empty());
  const Attachment first(server);
  const Attachment second(server);
  ASSERT_NE(second.attached.channels.log, nullptr);
  const std::string inherited = text_of(second.attached.snapshot);
  EXPECT_EQ(inherited.find("spilt"), std::string::npos) << inherited;
  EXPECT_NE(inherited.find("driver /some/driver.so\n"), std::string::npos) << inherited;
  EXPECT_NE(inherited.find("GPURUN_EMULATED=passes\n"), std::string::npos) << inherited;
  EXPECT_NE(inherited.find("GPURUN_SPIN_US=17\n"), std::string::npos) << inherited;
  EXPECT_NE(inherited.find("CUDA_VISIBLE_DEVICES=7\n"), std::string::npos) << inherited;
  EXPECT_NE(inherited.find("equal rows\n"), std::string::npos) << inherited;
  EXPECT_NE(inherited.find("fd 3\n"), std::string::npos) << inherited;
  EXPECT_NE(inherited.find("fd 4\n"), std::string::npos) << inherited;  // For its exchange.
  for (int fd = 5; fd < 64; ++fd) {
    EXPECT_EQ(inherited.find("fd " + std::to_string(fd) + "\n"), std::string::npos) << inherited;
  }
  const ByteView part = byte_view("ping", 4);
  ASSERT_TRUE(second.attached.channels.log->send({&part, 1}, soon()).ok());
  std::byte echo[4];
  ASSERT_TRUE(second.attached.channels.log->receive(echo, 4, soon()).ok());
  EXPECT_EQ(memcmp(echo, "ping", 4), 0);
}

TEST(GpurundTest, WorkersOfEmulatedDevicesInheritLedgers) {
  const Gpurund server({"--listen", "127.0.0.1:0", "--driver", "/emulated"});
  ASSERT_FALSE(server.address().empty());
  const auto link = server.link();
  const auto session = link->request_lease(ask(2));
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  const auto attached = client::attach(*session, {});
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  const std::string inherited = text_of(attached->snapshot);
  EXPECT_NE(inherited.find("GPURUN_EMULATED=ledger=5+6\n"), std::string::npos) << inherited;
  for (int fd = 3; fd < 64; ++fd) {
    const bool open = inherited.find("fd " + std::to_string(fd) + "\n") != std::string::npos;
    EXPECT_EQ(open, fd <= 6) << inherited;
  }
}

TEST(GpurundTest, EndingLeaseEndsOnlyItsWorkers) {
  const Gpurund server({"--listen", "127.0.0.1:0", "--driver", "/driver"});
  Attachment first(server);
  Attachment second(server);
  first.link.reset();
  EXPECT_TRUE(ends_soon(first.worker.get()));
  pollfd other = {second.worker.get(), POLLIN, 0};
  EXPECT_EQ(poll(&other, 1, 0), 0);
}

TEST(GpurundTest, WorkerDeathClosesClientConnections) {
  const Gpurund server({"--listen", "127.0.0.1:0", "--driver", "/dies"});
  const auto control = server.link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  const auto attached = client::attach(*session, {});
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  std::byte byte;
  EXPECT_EQ(attached->channels.log->receive({&byte, 1}, 1, soon()).status().code(),
            Code::kPeerGone);
  // The daemon does not keep a copy either.
  EXPECT_EQ(attached->channels.bulk[0]->receive({&byte, 1}, 1, soon()).status().code(),
            Code::kPeerGone);
  EXPECT_TRUE(control->lease_ended().ok());
}

TEST(GpurundTest, WorkersEndWhenDaemonStopsOrDies) {
  for (const int number : {SIGTERM, SIGKILL}) {
    Gpurund server({"--listen", "127.0.0.1:0", "--driver", "/driver"});
    const Attachment attachment(server);
    server.signal(number);
    const int status = server.wait();
    if (number == SIGTERM) {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << server.errors();
    }
    EXPECT_TRUE(ends_soon(attachment.worker.get())) << number;
    const Status ended = attachment.link->lease_ended();
    EXPECT_EQ(ended.code(), number == SIGTERM ? Code::kRefused : Code::kPeerGone);
    const bool told = ended.message().find("stopped by its operator") != std::string::npos;
    EXPECT_EQ(told, number == SIGTERM) << ended.message();
  }
}

// Without a key no client could check the server's identity, so no link could be encrypted.
TEST(GpurundTest, NonLoopbackListenRequiresKeyOrPlaintextOption) {
  ASSERT_EQ(setenv("STATE_DIRECTORY", "/dev/null/state", 1), 0);
  {
    Gpurund silent({"--listen", "0.0.0.0:0", "--driver", "/driver"});
    EXPECT_EQ(silent.address(), "");
    EXPECT_NE(silent.wait(), 0);
    EXPECT_NE(silent.errors().find("TLS: /dev/null/state"), std::string::npos) << silent.errors();
    const Gpurund told({"--listen", "0.0.0.0:0", "--driver", "/driver", "--insecure-plaintext"});
    EXPECT_NE(told.address(), "");
  }
  const std::string folder = testing::TempDir() + "gpurund_test_state";
  ASSERT_EQ(setenv("STATE_DIRECTORY", folder.c_str(), 1), 0);
  const Gpurund known({"--listen", "0.0.0.0:0", "--driver", "/driver"});
  EXPECT_NE(known.address(), "");
  struct stat key = {};
  EXPECT_EQ(stat((folder + "/server-key.pem").c_str(), &key), 0);
  EXPECT_EQ(key.st_mode & 0777, 0600u);
  std::filesystem::remove_all(folder);
  unsetenv("STATE_DIRECTORY");
}

TEST(GpurundTest, BrokenDriverFailsStart) {
  Gpurund server({"--listen", "127.0.0.1:0", "--driver", "/count-fails"});
  EXPECT_EQ(server.address(), "");
  EXPECT_NE(server.wait(), 0);
  EXPECT_NE(server.errors().find("exit status 9"), std::string::npos);
}

}  // namespace
}  // namespace gpurun
