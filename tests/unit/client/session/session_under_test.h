// Session under test: a session without timers in the way, and calls on separate threads, shared by
// the session tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>

#include "client/session/session.h"
#include "tests/unit/client/session/fake_worker.h"

namespace gpurun::client {

inline constexpr Handle kContext = 0x5D00'0000'0000'0001;
inline constexpr int kInvalidImage = 200;
inline constexpr int kIllegalAddress = 700;

inline CallSite site(std::uint16_t opcode, Handle context = kContext) {
  CallSite result;
  result.opcode = opcode;
  result.context = context;
  return result;
}

// Options with which no timer of the session fires during a test.
inline SessionOptions quiet() {
  SessionOptions options;
  options.heartbeat = std::chrono::hours(1);
  options.silence_deadline = std::chrono::hours(2);
  return options;
}

inline std::unique_ptr<Session> start(FakeWorker& worker, const SessionOptions& options = quiet()) {
  auto session = Session::start(worker.channels(), options);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  return session.ok() ? *std::move(session) : nullptr;
}

struct Called {
  int returned = -1;
  int result = -1;
  std::string payload;
};

// Makes a call on a new thread, with that thread's lane.
inline std::future<Called> call_elsewhere(Session& session, const CallSite& what) {
  return std::async(std::launch::async, [&session, what] {
    Called called;
    Reply reply;
    called.returned = session.call(*Lane::current(), what, ByteView(), &reply);
    called.result = reply.result;
    if (called.returned == 0) {
      called.payload.assign(reinterpret_cast<const char*>(reply.payload.data()),
                            reply.payload.size());
    }
    return called;
  });
}

inline ByteView text(const char* from) { return byte_view(from, std::strlen(from)); }

}  // namespace gpurun::client
