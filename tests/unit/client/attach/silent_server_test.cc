// Silent server: when a server goes silent during an attach, the process waits a bounded time, and
// the error names the server and what it did. Peers on the loopback interface accept connections
// and answer nothing or too little, or accept none.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "client/attach/attach.h"
#include "tests/support/full_server.h"
#include "transport/transport.h"

namespace gpurun::client {
namespace {

using std::chrono::milliseconds;

// Far below the product's waits, far above the delays of a busy machine.
constexpr milliseconds kShort{200};
constexpr milliseconds kBound{15'000};

struct Outcome {
  Status status;
  milliseconds took{0};
};

Outcome attach_to(const std::string& server, const AttachOptions& options) {
  SessionData session;
  session.servers = {server};
  const auto start = std::chrono::steady_clock::now();
  const Result<Attached> attached = attach(session, options);
  return {attached.status(),
          std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start)};
}

void expect_bounded(const Outcome& outcome, const char* said) {
  EXPECT_EQ(outcome.status.code(), Code::kDeadline) << outcome.status.to_string();
  EXPECT_NE(outcome.status.message().find(said), std::string::npos) << outcome.status.to_string();
  EXPECT_GE(outcome.took, kShort);
  EXPECT_LT(outcome.took, kBound);
}

TEST(AttachTimeouts, AttachTimesOutWhenServerDoesNotAnswer) {
  const auto listener = transport::listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  AttachOptions options;
  options.deadline = kShort;
  expect_bounded(attach_to((*listener)->address(), options), "not answered within 200 ms");
}

TEST(AttachTimeouts, AttachTimesOutWhenAnswerIsIncomplete) {
  const auto listener = transport::listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  std::thread server([&] {
    std::vector<std::unique_ptr<transport::Connection>> taken;
    for (int i = 0; i < 2; ++i) {
      auto connection = (*listener)->accept(Deadline::in(kBound));
      if (!connection.ok()) continue;
      const std::byte start_of_a_frame[4] = {};
      const ByteView parts[] = {start_of_a_frame};
      static_cast<void>((*connection)->send(parts, Deadline::in(kBound)));
      taken.push_back(*std::move(connection));
    }
    std::byte heard[256];
    for (const auto& connection : taken) {  // Until the client has closed.
      while (connection->receive(heard, 1, Deadline::in(kBound)).ok()) continue;
    }
  });
  AttachOptions options;
  options.deadline = kShort;
  expect_bounded(attach_to((*listener)->address(), options), "not answered within 200 ms");
  server.join();
}

// The queue is full already, so the kernel answers no connect.
TEST(AttachTimeouts, AttachTimesOutWhenConnectIsNotAccepted) {
  const FullServer full;
  AttachOptions options;
  options.connect_deadline = kShort;
  const Outcome outcome = attach_to(full.address(), options);
  expect_bounded(outcome, "no answer");
}

// As the manual page says (docs/man/gpurun.1.md, "Times").
TEST(AttachTimeouts, DefaultTimesMatchManual) {
  EXPECT_EQ(AttachOptions().connect_deadline, std::chrono::seconds(10));
  EXPECT_EQ(AttachOptions().deadline, std::chrono::seconds(60));
  EXPECT_EQ(limits::kHeartbeatS, 5);
  EXPECT_EQ(limits::kSilenceDeadlineS, 30);
}

}  // namespace
}  // namespace gpurun::client
