// Hot calls: hot records reach the driver with exactly their contents. Handles are translated, and
// parameter blocks and values are unchanged. Contents that the worker cannot check are refused.
#include "server/worker/execution/hot_calls.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "driver_abi/cuda_abi.h"
#include "protocol/calls/handle_form.h"
#include "server/handlers/handlers.h"
#include "server/worker/channels/worker.h"
#include "server/worker/execution/executor.h"
#include "server/worker/execution/outbox.h"
#include "server/worker/execution/thread_context.h"
#include "transport/loopback/connection.h"

namespace gpurun::server {
namespace {

using protocol::Form;

constexpr std::uint64_t handle(HandleKind kind) {
  return protocol::kHandleTag << protocol::kHandleTagShift | static_cast<std::uint64_t>(kind)
                                                                 << protocol::kHandleKindShift;
}

// The last call that the driver got.
struct Asked {
  std::string what;
  int capturing = 0;
  int answer = 0;  // For queries whether a stream captures.
} asked;

template <typename... Numbers>
int note(const char* function, Numbers... numbers) {
  asked.what = function;
  ((asked.what += " " + std::to_string(numbers)), ...);
  return 0;
}
std::uintptr_t number(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
unsigned first_byte(const void* bytes) { return *static_cast<const unsigned char*>(bytes); }

int scripted_launch(const DriverLaunchConfig* config, void* function, void** parameters,
                    void** extra) {
  EXPECT_EQ(parameters, nullptr);
  const std::size_t bytes = extra == nullptr ? 0 : *static_cast<std::size_t*>(extra[3]);
  if (extra != nullptr) {
    EXPECT_EQ(number(extra[0]), 1U);
    EXPECT_EQ(number(extra[2]), 2U);
    EXPECT_EQ(extra[4], nullptr);
  }
  return note("launch", number(function), config->grid[0], config->grid[2], config->block[1],
              config->shared_bytes, number(config->stream), config->attribute_count, bytes,
              extra == nullptr ? 0 : first_byte(extra[1]));
}

DriverFunctions scripted_driver() {
  DriverFunctions driver;
  driver.cuCtxSetCurrent = [](void*) { return 0; };
  driver.cuThreadExchangeStreamCaptureMode = [](int*) { return 0; };
  driver.cuStreamIsCapturing = [](void*, int* status) {
    *status = asked.capturing;
    return asked.answer;
  };
  driver.cuLaunchKernelEx = scripted_launch;
  driver.cuMemcpyHtoDAsync = [](std::uint64_t to, const void* from, std::size_t bytes, void* s) {
    return note("HtoD", to, first_byte(from), bytes, number(s));
  };
  driver.cuMemcpyDtoDAsync = [](std::uint64_t to, std::uint64_t from, std::size_t bytes, void* s) {
    return note("DtoD", to, from, bytes, number(s));
  };
  driver.cuMemcpy3DAsync = [](const void* structure, void* s) {
    CUDA_MEMCPY3D copy;
    std::memcpy(&copy, structure, sizeof copy);
    return note("box", copy.dstMemoryType, number(copy.dstArray), copy.dstXInBytes, copy.dstY,
                copy.dstZ, copy.srcMemoryType, copy.srcDevice, copy.srcPitch, copy.srcHeight,
                copy.WidthInBytes, copy.Height, copy.Depth, number(s));
  };
  driver.cuMemsetD16Async = [](std::uint64_t to, unsigned short value, std::size_t count, void* s) {
    return note("D16", to, value, count, number(s));
  };
  driver.cuMemsetD2D32Async = [](std::uint64_t to, std::size_t pitch, unsigned value,
                                 std::size_t width, std::size_t height, void* s) {
    return note("D2D32", to, pitch, value, width, height, number(s));
  };
  driver.cuEventRecord = [](void* e, void* s) { return note("record", number(e), number(s)); };
  driver.cuEventRecordWithFlags = [](void* e, void* s, unsigned flags) {
    return note("record", number(e), number(s), flags);
  };
  driver.cuStreamWaitEvent = [](void* s, void* e, unsigned flags) {
    return note("wait", number(s), number(e), flags);
  };
  return driver;
}

class HotCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    asked = {};
    options_.driver = scripted_driver();
    options_.handlers.launch = make_handlers().launch;
    executor_ = std::make_unique<Executor>(options_, outbox_);
    HandleTable& handles = executor_->handles();
    ASSERT_EQ(handles.bind(handle(HandleKind::kStream), HandleKind::kStream, 22), 0);
    ASSERT_EQ(handles.bind(handle(HandleKind::kEvent), HandleKind::kEvent, 44), 0);
    ASSERT_EQ(handles.bind(handle(HandleKind::kFunction), HandleKind::kFunction, 55), 0);
    ASSERT_EQ(handles.bind(handle(HandleKind::kKernel), HandleKind::kKernel, 66), 0);
  }
  // Runs one record through the real parser and executor. Returns the driver's last call.
  std::string run(Form form, ByteView payload, std::uint64_t subject = 0, std::uint16_t flags = 0) {
    protocol::RecordHeader header;
    header.form = form;
    header.order = protocol::Order::kStream;
    header.opcode = 1;
    header.stream = handle(HandleKind::kStream);
    header.subject = subject;
    header.sequence = ++last_;
    header.flags = protocol::kFlagFence | flags;
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    header.bytes = static_cast<std::uint32_t>(protocol::record_bytes(payload.size()));
    Bytes bytes(header.bytes);
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, payload.data(), payload.size());
    const auto record = protocol::parse_record(bytes);
    EXPECT_TRUE(record.ok()) << record.status().to_string();
    if (!record.ok()) return "";
    asked.what.clear();
    EXPECT_TRUE(executor_->accept({&*record, 1}).ok());
    return asked.what + " -> " + std::to_string(result());
  }
  int result() {
    Bytes frame(sizeof(protocol::FrameHeader) + sizeof(protocol::ReplyHeader));
    const auto got =
        pair_.first->receive(frame, frame.size(), Deadline::in(std::chrono::seconds(5)));
    EXPECT_TRUE(got.ok());
    const auto reply =
        protocol::parse_reply(ByteView(frame).subspan(sizeof(protocol::FrameHeader)));
    return reply.ok() ? reply->header.result : -1;
  }

  WorkerOptions options_;
  transport::loopback::Pair pair_ = transport::loopback::connect_pair();
  Outbox outbox_{*pair_.second, std::chrono::seconds(5)};
  std::unique_ptr<Executor> executor_;
  std::uint64_t last_ = 0;
};

Bytes launch_payload(std::uint64_t function, std::size_t parameter_bytes, std::uint32_t attribute) {
  protocol::LaunchPayload launch;
  launch.function = function;
  launch.grid[0] = 3;
  launch.grid[2] = 5;
  launch.block[1] = 7;
  launch.shared_bytes = 1024;
  launch.parameter_bytes = static_cast<std::uint32_t>(parameter_bytes);
  launch.attribute_count = attribute == 0 ? 0 : 1;
  Bytes bytes(protocol::launch_attributes_offset(parameter_bytes));
  std::memcpy(bytes.data(), &launch, sizeof launch);
  if (parameter_bytes != 0) bytes[sizeof launch] = std::byte{9};
  if (attribute != 0) {
    protocol::LaunchAttribute last{};
    last.id = attribute;
    const auto view = bytes_of(last);
    bytes.insert(bytes.end(), view.begin(), view.end());
  }
  return bytes;
}

TEST_F(HotCalls, LaunchesFunctionsAndKernelsWithTheirParameterBlock) {
  EXPECT_EQ(run(Form::kLaunch, launch_payload(handle(HandleKind::kFunction), 12, 0)),
            "launch 55 3 5 7 1024 22 0 12 9 -> 0");
  EXPECT_EQ(run(Form::kLaunch, launch_payload(handle(HandleKind::kKernel), 0, 2)),
            "launch 66 3 5 7 1024 22 1 0 0 -> 0");
}

TEST_F(HotCalls, RefusesLaunchesThatItCannotCheck) {
  EXPECT_EQ(run(Form::kLaunch, launch_payload(0x7f00, 8, 0)), " -> 400");
  // A programmatic event. Its value holds a handle, but of no event here.
  EXPECT_EQ(run(Form::kLaunch, launch_payload(handle(HandleKind::kFunction), 8, 7)), " -> 400");
  // A device-updatable node. Only the driver's own process can use its value.
  EXPECT_EQ(run(Form::kLaunch, launch_payload(handle(HandleKind::kFunction), 8, 13)), " -> 801");
}

TEST_F(HotCalls, RefusesLaunchWithoutHandler) {
  options_.handlers.launch = nullptr;
  executor_ = std::make_unique<Executor>(options_, outbox_);
  EXPECT_EQ(executor_->handles().bind(handle(HandleKind::kStream), HandleKind::kStream, 22), 0);
  EXPECT_EQ(run(Form::kLaunch, launch_payload(handle(HandleKind::kFunction), 8, 0)), " -> 801");
}

TEST_F(HotCalls, PassesCopiesToDriver) {
  protocol::CopyPayload copy;
  copy.destination = 4096;
  copy.bytes = 3;
  Bytes bytes(sizeof copy + 3, std::byte{5});
  std::memcpy(bytes.data(), &copy, sizeof copy);
  EXPECT_EQ(run(Form::kCopyInline, bytes), "HtoD 4096 5 3 22 -> 0");
  note_capture();
  asked.capturing = 1;
  EXPECT_EQ(run(Form::kCopyInline, bytes), " -> 900");
  copy.source = 8192;
  EXPECT_EQ(run(Form::kCopyDevice, bytes_of(copy)), "DtoD 4096 8192 3 22 -> 0");
}

TEST_F(HotCalls, BoxCopyTranslatesArrayHandles) {
  protocol::BoxCopyPayload box;
  box.width = 4;
  box.lines = 3;
  box.slices = 2;
  box.copy.bytes = 24;
  box.copy.source = 4096;
  box.source.line_pitch = 64;
  box.source.slice_lines = 5;
  box.destination = {handle(HandleKind::kArray), 8, 7, 6, 0, 0};
  const auto copy = [&] { return run(Form::kCopyDevice, bytes_of(box), 0, protocol::kFlagBox); };
  EXPECT_EQ(copy(), " -> 400");
  ASSERT_EQ(executor_->handles().bind(handle(HandleKind::kArray), HandleKind::kArray, 77), 0);
  EXPECT_EQ(copy(), "box 3 77 8 7 6 2 4096 64 5 4 3 2 22 -> 0");
  box.destination.array = handle(HandleKind::kStream);  // It is live, but not an array.
  EXPECT_EQ(copy(), " -> 400");
}

TEST_F(HotCalls, InlineCopyIsRefusedOnlyDuringCapture) {
  protocol::CopyPayload copy;
  copy.destination = 4096;
  copy.bytes = 1;
  Bytes bytes(sizeof copy + 1);
  std::memcpy(bytes.data(), &copy, sizeof copy);
  note_capture();
  asked.answer = 906;  // Another stream's capture forbids queries of this legacy stream.
  EXPECT_EQ(run(Form::kCopyInline, bytes), " -> 900");
  asked.answer = 700;  // The copy reports its own failure. A capture has no part in it.
  EXPECT_EQ(run(Form::kCopyInline, bytes), "HtoD 4096 0 1 22 -> 0");
}

TEST_F(HotCalls, PassesMemsetsToDriver) {
  protocol::MemsetPayload set;
  set.destination = 4096;
  set.pitch = 512;
  set.width = 10;
  set.height = 1;
  set.value = 0x10007;
  set.element_bytes = 2;
  EXPECT_EQ(run(Form::kMemset, bytes_of(set)), "D16 4096 7 10 22 -> 0");
  set.height = 4;
  set.element_bytes = 4;
  EXPECT_EQ(run(Form::kMemset, bytes_of(set)), "D2D32 4096 512 65543 10 4 22 -> 0");
}

TEST_F(HotCalls, PassesEventCallsToDriver) {
  protocol::EventPayload event;
  const std::uint64_t known = handle(HandleKind::kEvent);
  EXPECT_EQ(run(Form::kEventRecord, bytes_of(event), known), "record 44 22 -> 0");
  EXPECT_EQ(run(Form::kStreamWait, bytes_of(event), known), "wait 22 44 0 -> 0");
  event.flags = 1;
  EXPECT_EQ(run(Form::kEventRecord, bytes_of(event), known), "record 44 22 1 -> 0");
  EXPECT_EQ(run(Form::kEventRecord, bytes_of(event), known + 1), " -> 400");
  EXPECT_EQ(run(Form::kStreamWait, bytes_of(event), known + 1), " -> 400");
}

}  // namespace
}  // namespace gpurun::server
