// Copies: the path of their bytes. Small ones travel in records and replies. Larger ones to the
// device travel in their records while little of the log is under way, and otherwise as bulk.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/unit/client/session/session_under_test.h"

namespace gpurun::client {
namespace {

using protocol::Form;

Bytes pattern(std::size_t byte_count) {
  Bytes bytes(byte_count);
  for (std::size_t i = 0; i < byte_count; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 256);
  return bytes;
}

class CopiesTest : public testing::Test {
 protected:
  int copy_in(ByteView source, Session::Reading reading = Session::Reading::kNow) {
    return session_->copy_in(*Lane::current(), CallSite(), 0x1000, source, reading);
  }
  // The form of the record that a copy of `source` sends.
  Form form_of(ByteView source, Session::Reading reading = Session::Reading::kNow) {
    EXPECT_EQ(copy_in(source, reading), 0);
    last_ = worker_.next();
    return last_.header.form;
  }
  bool last_has(ByteView source) const {
    return last_.payload.size() == sizeof(protocol::CopyPayload) + source.size() &&
           std::equal(source.begin(), source.end(),
                      last_.payload.begin() + sizeof(protocol::CopyPayload));
  }
  // Returns after the session has handled the worker's earlier messages.
  void be_heard() {
    auto call = call_elsewhere(*session_, site(7));
    last_ = worker_.next();
    worker_.reply(last_);
    EXPECT_EQ(call.get().returned, 0);
  }

  FakeWorker worker_;
  std::unique_ptr<Session> session_ = start(worker_);
  FakeWorker::Record last_;
};

TEST_F(CopiesTest, SmallCopiesTravelInRecordsAndReplies) {
  const Bytes source = pattern(limits::kInlineBytesMax);
  EXPECT_EQ(form_of(source), Form::kCopyInline);
  EXPECT_TRUE(last_has(source));
  Bytes destination(source.size());
  auto copy = std::async(std::launch::async, [&] {
    return session_->copy_out(*Lane::current(), CallSite(), destination, 0x2000, true);
  });
  const FakeWorker::Record record = worker_.next();
  EXPECT_EQ(record.header.bulk, 0u);
  worker_.reply(record, 0, source);
  EXPECT_EQ(copy.get(), 0);
  EXPECT_EQ(destination, source);
}

TEST_F(CopiesTest, LargerCopiesTravelInRecordsWhileLogIsShort) {
  const Bytes source = pattern(limits::kInlineCopyInBytesMax);
  int inside = 0;
  while (form_of(source) == Form::kCopyInline) {
    EXPECT_TRUE(last_has(source));
    ASSERT_LT(++inside, 64) << "copies fill the log of a worker that acknowledges nothing";
  }
  EXPECT_GE(inside, 8);
  // Small ones still do. Large ones do again after the worker has acknowledged the earlier ones.
  EXPECT_EQ(form_of(pattern(limits::kInlineBytesMax)), Form::kCopyInline);
  worker_.acknowledge(last_.header.sequence);
  be_heard();
  EXPECT_EQ(form_of(source), Form::kCopyInline);
}

TEST_F(CopiesTest, OversizedAndInTurnCopiesTravelAsBulk) {
  EXPECT_EQ(form_of(pattern(limits::kInlineCopyInBytesMax + 1)), Form::kCopyIn);
  static const Bytes source = pattern(limits::kInlineCopyInBytesMax);
  EXPECT_EQ(form_of(source, Session::Reading::kInTurn), Form::kCopyIn);
}

}  // namespace
}  // namespace gpurun::client
