// Exchange: shared objects go only to workers of the same lease, and only while their giver runs
// and shares them. No worker can fill the daemon with descriptors, make it wait, or make it read an
// invalid message.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "server/exchange/exchange_book.h"
#include "server/exchange/exchange_client.h"

namespace gpurun::server {
namespace {

protocol::Id lease(std::uint8_t number) {
  protocol::Id id{};
  id[0] = number;
  return id;
}

// A worker's end, and the daemon's end, which answers on its own thread.
class Served {
 public:
  Served(ExchangeRegistry& book, std::mutex& mutex, std::uint8_t of_lease)
      : book_(book), mutex_(mutex), lease_(lease(of_lease)) {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    raw_ = pair[1];
    daemon_.reset(pair[0]);
    client_ = std::make_unique<ExchangeClient>(UniqueFd(pair[1]));
    thread_ = std::thread([this] { serve(); });
  }
  ~Served() {
    client_.reset();
    shutdown(daemon_.get(), SHUT_RDWR);
    thread_.join();
    const std::lock_guard lock(mutex_);
    book_.forget(this);
  }
  ExchangeClient* operator->() { return client_.get(); }
  int raw() const { return raw_; }
  bool refused() const { return refused_; }

 private:
  void serve() {
    for (char byte = 0; recv(daemon_.get(), &byte, 1, MSG_PEEK) > 0;) {
      const std::lock_guard lock(mutex_);
      if (book_.serve(daemon_.get(), this, lease_)) continue;
      refused_ = true;
      shutdown(daemon_.get(), SHUT_RDWR);
      return;
    }
  }

  ExchangeRegistry& book_;
  std::mutex& mutex_;
  const protocol::Id lease_;
  UniqueFd daemon_;
  int raw_ = -1;
  std::unique_ptr<ExchangeClient> client_;
  std::atomic<bool> refused_{false};
  std::thread thread_;
};

class Exchange : public ::testing::Test {
 protected:
  // A file with the contents `text`.
  static UniqueFd file(const char* text) {
    UniqueFd made(memfd_create("exchange-test", MFD_CLOEXEC));
    EXPECT_EQ(write(made.get(), text, std::strlen(text)), static_cast<ssize_t>(std::strlen(text)));
    return made;
  }
  static std::string text_of(const UniqueFd& fd) {
    char text[64] = "";
    EXPECT_GT(pread(fd.get(), text, sizeof text - 1, 0), 0);
    return text;
  }
  protocol::SharingHandle given(Served& by, const char* text) {
    const UniqueFd memory = file(text);
    protocol::SharingHandle handle{};
    EXPECT_TRUE(by->put(byte_view(text, 3), {memory.get()}, &handle));
    return handle;
  }
  bool gets(Served& who, const protocol::SharingHandle& handle) {
    return who->get(handle, &content_, &files_);
  }

  ExchangeLimits limits_{4, 6, 8};
  ExchangeRegistry book_{limits_};
  std::mutex mutex_;
  Bytes content_;
  std::vector<UniqueFd> files_;
};

TEST_F(Exchange, SharesObjectsOnlyWithinLease) {
  Served giver(book_, mutex_, 1), friendly(book_, mutex_, 1), stranger(book_, mutex_, 2);
  const protocol::SharingHandle handle = given(giver, "abc and more");
  ASSERT_TRUE(gets(friendly, handle));
  ASSERT_EQ(files_.size(), 1u);
  EXPECT_EQ(text_of(files_[0]), "abc and more");
  EXPECT_EQ(std::memcmp(content_.data(), "abc", 3), 0);
  EXPECT_FALSE(gets(stranger, handle));
  EXPECT_FALSE(stranger.refused());  // It was allowed to ask.
  for (std::size_t changed = 0; changed < handle.size(); ++changed) {
    protocol::SharingHandle guess = handle;
    guess[changed] ^= 1;
    EXPECT_FALSE(gets(friendly, guess));
  }
  EXPECT_FALSE(gets(friendly, {}));
}

TEST_F(Exchange, ObjectEndsWhenGiverExitsOrDropsIt) {
  Served friendly(book_, mutex_, 1);
  protocol::SharingHandle handle{};
  {
    Served giver(book_, mutex_, 1);
    handle = given(giver, "first");
    friendly->drop(handle);  // It belongs to another worker.
    EXPECT_TRUE(gets(friendly, handle));
    giver->drop(handle);
    EXPECT_FALSE(gets(friendly, handle));
    handle = given(giver, "second");
    EXPECT_TRUE(gets(friendly, handle));
  }
  EXPECT_FALSE(gets(friendly, handle));
  EXPECT_EQ(book_.entries(), 0u);
}

TEST_F(Exchange, LimitsEntriesDescriptorsAndContent) {
  Served giver(book_, mutex_, 1), other(book_, mutex_, 1), stranger(book_, mutex_, 2);
  protocol::SharingHandle handle{};
  const UniqueFd memory = file("memory");
  const int fd = memory.get();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(giver->put({}, {}, &handle));
  EXPECT_FALSE(giver->put({}, {}, &handle));  // Too many entries of a worker.
  EXPECT_TRUE(other->put({}, {fd, fd, fd, fd, fd, fd}, &handle));
  EXPECT_FALSE(other->put({}, {fd}, &handle));  // Too many descriptors of a lease.
  EXPECT_TRUE(stranger->put({}, {fd, fd}, &handle));
  EXPECT_FALSE(stranger->put({}, {fd}, &handle));  // Too many of all together.
  const Bytes much(kExchangeContentBytes + 1);
  EXPECT_FALSE(stranger->put(much, {}, &handle));
  const std::vector<int> many(kExchangeDescriptorsMax + 1, fd);
  EXPECT_FALSE(stranger->put({}, many, &handle));
}

// The last close of a lingering socket blocks. Here the daemon would make it.
TEST_F(Exchange, AcceptsOnlyMemoryDescriptors) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd one(pair[0]), other(pair[1]);
  const linger hour = {1, 3600};
  ASSERT_EQ(setsockopt(pair[0], SOL_SOCKET, SO_LINGER, &hour, sizeof hour), 0);
  ASSERT_EQ(pipe2(pair, O_CLOEXEC), 0);
  const UniqueFd from(pair[0]), to(pair[1]);
  const UniqueFd memory = file("memory");
  for (const int wrong : {one.get(), from.get()}) {
    Served worker(book_, mutex_, 1);
    protocol::SharingHandle handle{};
    EXPECT_FALSE(worker->put({}, {memory.get(), wrong}, &handle));
    EXPECT_TRUE(worker.refused());
  }
  linger now = {1, 1};
  socklen_t length = sizeof now;
  EXPECT_EQ(getsockopt(one.get(), SOL_SOCKET, SO_LINGER, &now, &length), 0);
  EXPECT_EQ(now.l_onoff, 0);
  EXPECT_EQ(book_.entries(), 0u);
}

TEST_F(Exchange, InvalidMessageEndsService) {
  const char rubbish[] = "what is this";
  {
    Served worker(book_, mutex_, 1);
    EXPECT_EQ(send(worker.raw(), rubbish, sizeof rubbish, 0), ssize_t{sizeof rubbish});
    protocol::SharingHandle handle{};
    EXPECT_FALSE(worker->put({}, {}, &handle));
    EXPECT_TRUE(worker.refused());
  }
  ExchangeMessage words;
  for (const std::uint32_t wrong : {0u, 4u, ~0u}) {
    Served worker(book_, mutex_, 1);
    words.step = static_cast<ExchangeStep>(wrong);
    EXPECT_TRUE(send_words(worker.raw(), words, {}, Wait::kYes).ok());
    protocol::SharingHandle handle{};
    EXPECT_FALSE(worker->put({}, {}, &handle));
    EXPECT_TRUE(worker.refused());
  }
  Served worker(book_, mutex_, 1);
  words = {};
  words.content_bytes = kExchangeContentBytes + 1;
  EXPECT_TRUE(send_words(worker.raw(), words, {}, Wait::kYes).ok());
  protocol::SharingHandle handle{};
  EXPECT_FALSE(worker->put({}, {}, &handle));
}

// A report has no answer, so a worker never waits for it. Its numbers are bounded, and its text
// changes no terminal.
TEST(TransportReports, AreHeardAndChecked) {
  std::vector<TransportReport> heard;
  ExchangeRegistry book(
      {}, [&](ExchangeRegistry::Owner, const TransportReport& report) { heard.push_back(report); });
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd daemon(pair[0]);
  ExchangeClient client{UniqueFd(pair[1])};
  TransportReport report;
  report.connections = 3;
  report.over_rdma = 2;
  report.left_rdma = 1;
  put_text("rdma0:1 to \x1brdma1:1", &report.ports);
  put_text(std::string(1000, 'w'), &report.why_left);
  EXPECT_TRUE(client.report(report));
  EXPECT_TRUE(book.serve(daemon.get(), &client, lease(1)));
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].over_rdma, 2u);
  EXPECT_EQ(text_of(heard[0].ports), "rdma0:1 to ?rdma1:1");
  EXPECT_EQ(text_of(heard[0].why_left).size(), report.why_left.size());
  char answer = 0;
  EXPECT_LT(recv(pair[1], &answer, 1, MSG_DONTWAIT), 0);
  for (const auto& [connections, over, left] :
       {std::array<std::uint32_t, 3>{1, 2, 0}, {2, 1, 2}, {2, 1, ~0U}, {~0U, 1, 1}}) {
    report.connections = connections;
    report.over_rdma = over;
    report.left_rdma = left;
    EXPECT_TRUE(client.report(report));
    EXPECT_FALSE(book.serve(daemon.get(), &client, lease(1)));
  }
  EXPECT_EQ(heard.size(), 1u);
  // A daemon that does not read keeps no worker.
  report = {};
  bool sent = true;
  for (int i = 0; sent && i < 100000; ++i) sent = client.report(report);
  EXPECT_FALSE(sent);
}

}  // namespace
}  // namespace gpurun::server
