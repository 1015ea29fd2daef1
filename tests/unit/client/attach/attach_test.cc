// attach(): opens its connections in parallel, so that together they cost one round trip. Each
// connect() waits here until all have begun. If they were opened one after the other, the first
// would time out.
#include "client/attach/attach.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace {

constexpr int kConnections = 3;

struct Meeting {
  std::mutex mutex;
  std::condition_variable all_here;
  int begun = 0;
  int met = 0;
};
Meeting g_meeting;

}  // namespace

// Replaces the C library's function. It connects nothing, and only notes the calls.
extern "C" int connect(int, const sockaddr*, socklen_t) {
  std::unique_lock lock(g_meeting.mutex);
  ++g_meeting.begun;
  g_meeting.all_here.notify_all();
  if (g_meeting.all_here.wait_for(lock, std::chrono::seconds(10),
                                  [] { return g_meeting.begun >= kConnections; })) {
    ++g_meeting.met;
  }
  errno = ECONNREFUSED;
  return -1;
}

namespace gpurun::client {
namespace {

TEST(Attach, OpensConnectionsInParallel) {
  SessionData session;
  session.servers = {"127.0.0.1:9"};
  AttachOptions options;
  options.bulk_connections = kConnections - 1;
  const Result<Attached> attached = attach(session, options);
  EXPECT_EQ(attached.status().code(), Code::kUnavailable) << attached.status().to_string();
  EXPECT_EQ(g_meeting.met, kConnections);
}

}  // namespace
}  // namespace gpurun::client
