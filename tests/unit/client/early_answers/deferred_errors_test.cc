// DeferredErrors: each lane gets a failure once, every call gets a lost context, and the message
// names the call that failed.
#include "client/early_answers/deferred_errors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <string>
#include <vector>

#include "driver_abi/row.h"
#include "tests/unit/client/session/session_under_test.h"

namespace gpurun::client {
namespace {

TEST(DeferredErrors, ReportsErrorOncePerLane) {
  FakeWorker worker;
  auto session = start(worker);
  Lane& lane = *Lane::current();
  std::promise<void> other_begins;
  std::promise<void> other_goes_on;
  std::future<void> go_on = other_goes_on.get_future();
  auto other = std::async(std::launch::async, [&] {
    EXPECT_EQ(session->post(*Lane::current(), site(1), ByteView()), 0);
    other_begins.set_value();
    go_on.wait();
    Reply reply;
    std::vector<int> results;
    for (int i = 0; i < 2; ++i) {
      results.push_back(session->call(*Lane::current(), site(3), ByteView(), &reply));
      EXPECT_EQ(reply.result, 0);
    }
    return results;
  });
  other_begins.get_future().wait();
  worker.next();
  ASSERT_EQ(session->post(lane, site(2), ByteView()), 0);
  worker.call_error(worker.next(), kInvalidImage);

  // Checks the fences of the issuing lane. The worker answers on its own thread.
  auto answer = [&worker](int count) {
    return std::async(std::launch::async, [&worker, count] {
      for (int i = 0; i < count; ++i) worker.reply(worker.next(), 0, text("done"));
    });
  };
  auto answers = answer(2);
  Reply reply;
  EXPECT_EQ(session->call(lane, site(3), ByteView(), &reply), kInvalidImage);
  EXPECT_EQ(reply.result, 0) << "the fence has done its own work";
  EXPECT_EQ(reply.payload.size(), 4u);
  EXPECT_EQ(session->call(lane, site(3), ByteView(), &reply), 0);
  answers.get();

  answers = answer(2);
  other_goes_on.set_value();
  EXPECT_EQ(other.get(), (std::vector<int>{kInvalidImage, 0}));
  answers.get();

  // A later thread does not get it.
  answers = answer(1);
  EXPECT_EQ(call_elsewhere(*session, site(3)).get().returned, 0);
  answers.get();
}

TEST(DeferredErrors, StickyErrorFailsEveryCallOnItsContext) {
  FakeWorker worker;
  auto session = start(worker);
  Lane& lane = *Lane::current();
  ASSERT_EQ(session->post(lane, site(2), ByteView()), 0);
  worker.call_error(worker.next(), kIllegalAddress, true);
  auto fence = call_elsewhere(*session, site(3, kContext + 1));
  worker.reply(worker.next());
  EXPECT_EQ(fence.get().returned, 0) << "another context lives on";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(session->post(lane, site(2), ByteView()), kIllegalAddress);
    EXPECT_EQ(session->health(kContext), kIllegalAddress);
  }
  EXPECT_EQ(session->health(kContext + 1), 0);
  EXPECT_TRUE(session->alive());
}
TEST(DeferredErrors, LogsFailedCallsUpToLimit) {
  constexpr int kTold = 16;
  FakeWorker worker;
  auto session = start(worker);
  const driver_abi::Row* row = driver_abi::find_row("cuStreamWriteValue32_v2");
  ASSERT_NE(row, nullptr);
  testing::internal::CaptureStderr();
  for (int i = 0; i < kTold + 4; ++i) {
    ASSERT_EQ(session->post(*Lane::current(), site(row->opcode), ByteView()), 0);
    worker.call_error(worker.next(), kInvalidImage);
  }
  auto fence = call_elsewhere(*session, site(1));
  worker.reply(worker.next());
  fence.get();  // The session has handled the earlier messages.
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("gpurun: warning: cuStreamWriteValue32_v2 failed with "
                      "CUDA_ERROR_INVALID_IMAGE (200) after it had returned (call 1)\n"),
            0u)
      << said;
  EXPECT_NE(said.find("further failures are logged at level info only"), std::string::npos);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), kTold + 1) << said;
}

}  // namespace
}  // namespace gpurun::client
