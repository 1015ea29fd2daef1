// Executor under test: an executor between a scripted driver and a client that reads replies,
// shared by the executor tests. Every wait is bounded.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <thread>

#include "protocol/calls/handle_form.h"
#include "server/worker/execution/executor.h"
#include "server/worker/execution/outbox.h"
#include "transport/loopback/connection.h"

namespace gpurun::server {

using namespace std::chrono_literals;
using protocol::Order;
using protocol::RecordHeader;
inline constexpr auto kWait = 10s;

// Opcodes of the test's own calls.
enum Opcode : std::uint16_t {
  kRun,
  kFail,
  kHoldUntilOpen,
  kWaitForGate,
  kBlockOnGate,
  kEcho,
  kRun2
};

inline std::uint64_t handle(HandleKind kind, std::uint64_t index) {
  return protocol::kHandleTag << protocol::kHandleTagShift |
         static_cast<std::uint64_t>(kind) << protocol::kHandleKindShift | index;
}
inline const std::uint64_t kContext = handle(HandleKind::kContext, 1);
inline const std::uint64_t kOtherContext = handle(HandleKind::kContext, 4);
inline const std::uint64_t kStreamX = handle(HandleKind::kStream, 2);
inline const std::uint64_t kStreamY = handle(HandleKind::kStream, 3);

// The log of the scripted driver and the handlers, and the gates that they wait for.
struct Stage {
  std::mutex mutex;
  std::vector<std::string> events;
  std::promise<void> gate;
  std::shared_future<void> opened{gate.get_future().share()};
  std::atomic<bool> open{false};
  std::atomic<int> event_state{kErrorNotReady};
  std::atomic<int> capturing{0};

  void say(const std::string& what) {
    const std::lock_guard lock(mutex);
    events.push_back(what);
  }
  std::vector<std::string> said() {
    const std::lock_guard lock(mutex);
    return events;
  }
};
inline Stage* stage = nullptr;
inline thread_local void* current_context = nullptr;

inline std::string name(void* value) {
  return std::to_string(reinterpret_cast<std::uintptr_t>(value));
}

inline DriverFunctions scripted_driver() {
  DriverFunctions driver;
  driver.cuCtxSetCurrent = [](void* context) {
    current_context = context;
    return 0;
  };
  driver.cuThreadExchangeStreamCaptureMode = [](int*) { return 0; };
  driver.cuStreamCreate = [](void** stream, unsigned) {
    static std::atomic<std::uintptr_t> next{900};
    *stream = reinterpret_cast<void*>(next++);
    return 0;
  };
  driver.cuStreamGetFlags = [](void*, unsigned* flags) {
    *flags = 1;
    return 0;
  };
  driver.cuStreamIsCapturing = [](void*, int* status) {
    *status = stage->capturing;
    return 0;
  };
  driver.cuEventCreate = [](void** event, unsigned) {
    *event = reinterpret_cast<void*>(std::uintptr_t{77});
    return 0;
  };
  driver.cuEventRecord = [](void*, void* stream) {
    stage->say("record in " + name(stream));
    return 0;
  };
  driver.cuEventQuery = [](void*) { return stage->event_state.load(); };
  driver.cuStreamWaitEvent = [](void* stream, void*, unsigned) {
    stage->say("wait in " + name(stream));
    return 0;
  };
  return driver;
}

inline void say(Call& call) {
  EXPECT_EQ(current_context, call.driver_context());
  stage->say(std::to_string(call.header().sequence));
}

inline CallOutcome run(Call& call) {
  say(call);
  return CallOutcome::done(0);
}
inline CallOutcome fail(Call& call) {
  say(call);
  return CallOutcome::done(700);
}
inline CallOutcome hold_until_open(Call& call) {
  if (!stage->open) return CallOutcome::held();
  return run(call);
}
inline CallOutcome wait_for_gate(Call& call) {
  say(call);
  return CallOutcome::park([](Call& parked) {
    EXPECT_EQ(current_context, parked.driver_context());
    return stage->opened.wait_for(kWait) == std::future_status::ready ? 0 : kErrorUnknown;
  });
}
inline CallOutcome block_on_gate(Call& call) {
  (void)stage->opened.wait_for(kWait);
  return run(call);
}
inline CallOutcome echo(Call& call) {
  say(call);
  call.set_reply(call.payload());
  return CallOutcome::done(0);
}

// Makes the driver complete copies out at once.
inline void copy_out_at_once(DriverFunctions& driver) {
  stage->event_state = 0;
  driver.cuEventSynchronize = [](void*) { return 0; };
  driver.cuMemcpyDtoHAsync = [](void* host, std::uint64_t device, std::size_t bytes, void*) {
    std::memcpy(host, reinterpret_cast<const void*>(device), bytes);
    return 0;
  };
}

class ExecutorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    stage = &stage_;
    options_.driver = scripted_driver();
    options_.handlers.by_opcode[kRun] = run;
    options_.handlers.by_opcode[kFail] = fail;
    options_.handlers.by_opcode[kHoldUntilOpen] = hold_until_open;
    options_.handlers.by_opcode[kWaitForGate] = wait_for_gate;
    options_.handlers.by_opcode[kBlockOnGate] = block_on_gate;
    options_.handlers.by_opcode[kEcho] = echo;
    start();
  }
  void start() {
    executor_.reset();
    executor_ = std::make_unique<Executor>(options_, outbox_);
    ASSERT_EQ(executor_->handles().bind(kContext, HandleKind::kContext, 11), 0);
    ASSERT_EQ(executor_->handles().bind(kOtherContext, HandleKind::kContext, 12), 0);
    ASSERT_EQ(executor_->handles().bind(kStreamX, HandleKind::kStream, 22), 0);
    ASSERT_EQ(executor_->handles().bind(kStreamY, HandleKind::kStream, 33), 0);
  }
  // A record with the next number, in the raw form.
  protocol::RecordView next_record(std::uint16_t opcode, Order order, std::uint64_t stream,
                                   std::uint16_t flags, ByteView payload) {
    protocol::RecordView record;
    record.header.opcode = opcode;
    record.header.form = protocol::Form::kRaw;
    record.header.order = order;
    record.header.stream = stream;
    record.header.context = kContext;
    record.header.flags = flags;
    record.header.sequence = ++last_;
    record.header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    record.header.bytes = static_cast<std::uint32_t>(protocol::record_bytes(payload.size()));
    record.payload = payload;
    return record;
  }
  // Passes one call to the executor. Returns its number.
  std::uint64_t call(std::uint16_t opcode, Order order, std::uint64_t stream = 0,
                     std::uint16_t flags = 0, ByteView payload = {}) {
    const protocol::RecordView record = next_record(opcode, order, stream, flags, payload);
    EXPECT_TRUE(executor_->accept({&record, 1}).ok());
    return last_;
  }
  // A wait of lane 1 for stream X, as the client posts it.
  void wait_early(std::uint64_t context) {
    RecordHeader header;
    const Handlers& of = options_.handlers;
    header.opcode = of.stream_synchronize != 0 ? of.stream_synchronize : of.event_synchronize;
    header.form = protocol::Form::kCall;
    header.stream = kStreamX;
    header.context = context;
    header.flags = protocol::kFlagBarrier;
    header.lane = 1;
    accept(header);
  }
  // A query of `lane` about stream Y. Returns its number.
  std::uint64_t ask(std::uint64_t context, std::uint32_t lane) {
    RecordHeader header;
    header.opcode = options_.handlers.stream_query;
    header.form = protocol::Form::kCall;
    header.stream = kStreamY;
    header.context = context;
    header.flags = protocol::kFlagFence;
    header.lane = lane;
    accept(header);
    return last_;
  }
  void accept(RecordHeader header) {
    protocol::RecordView record;
    header.order = Order::kStream;
    header.sequence = ++last_;
    header.bytes = sizeof header;
    record.header = header;
    EXPECT_TRUE(executor_->accept({&record, 1}).ok());
  }
  struct Reply {
    protocol::ReplyHeader header;
    Bytes payload;
  };
  Reply receive() {
    protocol::Frame frame;
    for (;;) {
      const auto whole = reader_.next(&frame);
      EXPECT_TRUE(whole.ok());
      if (!whole.ok()) return {};
      if (*whole) break;
      const auto got = pair_.first->receive(reader_.space(), reader_.wanted(), Deadline::in(kWait));
      EXPECT_TRUE(got.ok()) << got.status().to_string();
      if (!got.ok()) return {};
      reader_.filled(*got);
    }
    const auto reply = protocol::parse_reply(frame.payload);
    EXPECT_TRUE(reply.ok());
    if (!reply.ok()) return {};
    return {reply->header, Bytes(reply->payload.begin(), reply->payload.end())};
  }
  void open() {
    stage_.open = true;
    stage_.gate.set_value();
    executor_->wake();
  }

  Stage stage_;
  WorkerOptions options_;
  transport::loopback::Pair pair_ = transport::loopback::connect_pair();
  Outbox outbox_{*pair_.second, kWait};
  std::unique_ptr<Executor> executor_;
  protocol::FrameReader reader_;
  std::uint64_t last_ = 0;
};

inline constexpr std::uint16_t kFence = protocol::kFlagFence;

}  // namespace gpurun::server
