// Lacking rows: with an older server or driver, a call that cannot be served is refused in the
// client with one message, and sends nothing. Every other call works.
#include <capnp/message.h>
#include <capnp/serialize.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/interpose/call/forward.h"
#include "client/interpose/call/process.h"
#include "client/interpose/entry/entry.h"
#include "driver_abi/opcodes.h"
#include "protocol/calls/snapshot.capnp.h"
#include "tests/unit/client/session/fake_worker.h"

namespace gpurun::client::interpose {
namespace {

FakeWorker* g_worker = nullptr;

Result<Attached> attach_to_an_older_server() {
  capnp::MallocMessageBuilder builder;
  builder.initRoot<protocol::wire::Snapshot>().initDevices(1)[0].initUuid(16);
  const auto flat = capnp::messageToFlatArray(builder);
  const ByteView snapshot = byte_view(flat.asBytes().begin(), flat.asBytes().size());
  Attached attached;
  attached.channels = g_worker->channels();
  attached.snapshot.assign(snapshot.begin(), snapshot.end());
  attached.server_release = "0.0.9";
  attached.lacking = {opcode::cuDriverGetVersion, opcode::cuEventRecord, 4095, 65535};
  attached.driver_version = 12040;
  attached.unserved = {opcode::cuCtxRecordEvent, opcode::cuEventCreate};
  return attached;
}

int calls_made(std::uint16_t opcode) {
  int made = 0;
  const CUresult result = call_custom(*driver_abi::find_row(opcode), [&] {
    ++made;
    return CUDA_SUCCESS;
  });
  EXPECT_EQ(result, made == 1 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
  return made;
}

TEST(UnsupportedCalls, RefusesCallsAndWarnsOncePerFunction) {
  FakeWorker worker;
  g_worker = &worker;
  set_connector(&attach_to_an_older_server);
  EXPECT_FALSE(server_lacks(opcode::cuEventRecord));  // Before the first connection.
  Process* process = nullptr;
  ASSERT_EQ(connected(&process), 0);
  ASSERT_EQ(initialize(*process), 0);
  EntryContext here;
  ASSERT_EQ(here.enter(), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(calls_made(opcode::cuEventRecord), 0);
  EXPECT_EQ(calls_made(opcode::cuEventRecord), 0);
  void* const arguments[2] = {};
  EXPECT_EQ(call_generated(*driver_abi::find_row(opcode::cuEventRecord), arguments),
            CUDA_ERROR_NOT_SUPPORTED);
  // As a hand-written function that needs the row calls it.
  EXPECT_EQ(
      post_row(here, opcode::cuEventRecord, here.site(), std::span<const Handle>(), arguments),
      CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(
      call_row(here, opcode::cuEventRecord, here.site(), std::span<const Handle>(), arguments),
      CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(calls_made(opcode::cuDriverGetVersion), 1);  // The client answers it.
  // A hand-written function goes as far as it can without the driver's row.
  EXPECT_EQ(calls_made(opcode::cuEventCreate), 1);
  EXPECT_EQ(
      post_row(here, opcode::cuEventCreate, here.site(), std::span<const Handle>(), arguments),
      CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(calls_made(opcode::cuCtxRecordEvent), 0);
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "gpurun: warning: cuEventRecord is not supported: the server (gpurun 0.0.9) does not "
      "know it; update the server\n"
      "gpurun: warning: cuEventCreate is not supported: the server's CUDA driver (12.4) lacks "
      "it; update that driver\n"
      "gpurun: warning: cuCtxRecordEvent is not supported: the server's CUDA driver (12.4) "
      "lacks it; update that driver\n");
  EXPECT_TRUE(server_lacks(4095));
  EXPECT_FALSE(server_lacks(65535));
  delete here.process->session;
}

}  // namespace
}  // namespace gpurun::client::interpose
