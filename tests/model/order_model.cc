// Order model: the worker's issue queues and the code around them. The unchanged executor (issue
// queue, barrier, event registry, stream bound, completions, helper threads, outbox) runs small
// CUDA programs. The device may be slow, and bytes may come late. In every interleaving:
// - The device keeps the order that CUDA requires, also after calls that were answered early (a
// copy,
//   a free).
// - When a free or a synchronization returns, all that it waits for is complete.
// - A call waits only for what it may wait for. Every call is issued and answered in the end, and
// no
//   thread waits for ever.
// The reference (cuda_program.h) shares nothing with the worker. A program that fails is made
// smaller and printed. GPURUN_MODEL_PROGRAM runs such a program.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "protocol/calls/handle_form.h"
#include "server/worker/execution/executor.h"
#include "server/worker/execution/outbox.h"
#include "tests/model/any_program.h"
#include "tests/model/cuda_program.h"
#include "tests/model/model.h"
#include "tests/model/order_device.h"
#include "tests/model/report.h"
#include "tests/model/smaller_program.h"

namespace gpurun::server {
namespace {

using model::check;
using model::CudaProgram;
using model::CudaStep;
using model::OrderDevice;
using model::Quiet;
using model::text_of;
using protocol::Form;
using protocol::Order;
using protocol::RecordHeader;
using protocol::RecordView;

constexpr std::uint16_t kLateCode = 1, kFreeCode = 2, kLoadCode = 3, kSyncCode = 4, kMeetCode = 5,
                        kEarlyCode = 6, kEndCode = 7, kAwaitCode = 8;
constexpr const char* kStreams = "0pqbcnm";

std::uint64_t handle(HandleKind kind, std::uint64_t index) {
  return protocol::kHandleTag << protocol::kHandleTagShift |
         static_cast<std::uint64_t>(kind) << protocol::kHandleKindShift | index;
}
std::uint64_t number_of(char context) { return context == 'A' ? 1 : 2; }

// Counts the items sent to the client.
class Client final : public transport::Connection {
 public:
  const transport::Capabilities& capabilities() const override { return capabilities_; }
  const std::string& description() const override { return description_; }
  Status send(std::span<const ByteView> parts, Deadline) override {
    const Quiet quiet;
    model::point();
    if (parts.size() < 2) return {};
    ByteView rest = parts[1];
    while (!rest.empty()) {
      const Result<protocol::ReplyView> item = protocol::parse_reply(rest);
      check(item.ok(), "a torn reply");
      check(item->header.result == 0, "a call fails");
      if (item->header.kind == protocol::ReplyKind::kReply) ++replies;
      if (item->header.kind == protocol::ReplyKind::kEventDone) ++events;
      rest = rest.subspan(item->header.bytes);
    }
    return {};
  }
  Result<std::size_t> receive(MutableBytes, std::size_t, Deadline) override {
    return Status(Code::kPeerGone, "");
  }
  void shut_down() noexcept override {}

  int replies = 0;
  int events = 0;

 private:
  const transport::Capabilities capabilities_;
  const std::string description_ = "model";
};

class Run {
 public:
  explicit Run(const CudaProgram& given)
      : program(given), before(order_by_cuda(given)), steps(given.size()), payloads(given.size()) {
    OrderDevice::current() = &device;
    now = this;
    options.driver = OrderDevice::functions();
    options.driver.cuMemcpyHtoDAsync = [](std::uint64_t step, const void*, std::size_t, void* s) {
      return now->issue(static_cast<std::size_t>(step), s);
    };
    options.handlers.launch = [](Call& call) {
      return CallOutcome::done(now->issue(call.header().sequence - 1, call.driver_stream()));
    };
    options.driver.cuEventRecord = [](void* event, void* stream) {
      return now->use_event(event, stream, CudaStep::kRecord);
    };
    options.driver.cuStreamWaitEvent = [](void* stream, void* event, unsigned) {
      return now->use_event(event, stream, CudaStep::kWait);
    };
    options.handlers.by_opcode[kLateCode] = [](Call& call) {
      const std::size_t step = call.header().sequence - 1;
      if (!now->steps[step].arrived) return CallOutcome::held();
      return CallOutcome::done(now->issue(step, call.driver_stream()));
    };
    options.handlers.by_opcode[kFreeCode] = [](Call& call) {
      return CallOutcome::done(now->free(call.header().sequence - 1));
    };
    options.handlers.ends.set(kFreeCode);
    options.handlers.ends.set(kEndCode);
    options.handlers.by_opcode[kEndCode] = [](Call& call) {
      now->note(call.header().sequence - 1);
      now->returned(call.header().sequence - 1);
      return CallOutcome::done(0);
    };
    options.handlers.by_opcode[kLoadCode] = [](Call& call) {
      now->note(call.header().sequence - 1);
      return CallOutcome::done(0);
    };
    options.handlers.by_opcode[kSyncCode] = [](Call& call) {
      now->note(call.header().sequence - 1);
      return CallOutcome::park([](Call& waiting) {
        const int result = waiting.driver().cuStreamSynchronize(waiting.driver_stream());
        now->returned(waiting.header().sequence - 1);
        return result;
      });
    };
    options.handlers.stream_synchronize = kEarlyCode;
    options.handlers.by_opcode[kEarlyCode] = [](Call& call) {
      now->note(call.header().sequence - 1);
      return CallOutcome::done(0);
    };
    options.handlers.event_synchronize = kAwaitCode;
    options.handlers.by_opcode[kAwaitCode] = [](Call& call) {
      const std::size_t step = call.header().sequence - 1;
      now->note(step);
      call.scratch[0] = reinterpret_cast<std::uintptr_t>(now->events[now->program[step].event]);
      return CallOutcome::done(0);
    };
    options.handlers.by_opcode[kMeetCode] = [](Call& call) {
      const HandleTable::Found found = call.resolve_stream(protocol::kStreamPerThread);
      const bool first = call.header().context == handle(HandleKind::kContext, 1);
      now->places[reinterpret_cast<void*>(found.value)] = {first ? 'A' : 'B',
                                                           call.header().lane == 1 ? 'p' : 'q'};
      return CallOutcome::done(0);
    };
    options.stall_warning_after = std::chrono::milliseconds(0);  // Time does not advance here.
    options.launch_depth = 16;                                   // Puts a mark behind every second
                                                                 // operation.
    outbox.emplace(client, std::chrono::hours(1));
    executor = std::make_unique<Executor>(options, *outbox);
    bind();
    model::settle();
  }

  // `paused`: the device completes nothing before all calls are issued that can be.
  void go(bool paused);

  struct Step {
    bool given = false;    // To the executor.
    bool arrived = false;  // Its bytes have (kLate).
    bool issued = false;
    bool returned = false;  // Of kFree and kSync.
    std::ptrdiff_t operation = -1;
  };

  void bind_one(HandleKind kind, std::uint64_t ours, void* driver) {
    const int bound =
        executor->handles().bind(ours, kind, reinterpret_cast<std::uintptr_t>(driver));
    check(bound == 0, "no handle");
  }
  void bind() {
    for (const char context : {'A', 'B'}) {
      const std::uint64_t number = number_of(context);
      bind_one(HandleKind::kContext, handle(HandleKind::kContext, number),
               reinterpret_cast<void*>(number));
      for (const char stream : {'b', 'c', 'n', 'm'}) {
        void* made = device.add_stream(static_cast<int>(number), stream == 'b' || stream == 'c');
        bind_one(HandleKind::kStream, stream_handle(context, stream), made);
        places[made] = {context, stream};
      }
      for (std::uint32_t lane = 1; lane <= 2; ++lane) {  // Makes per-thread streams known.
        RecordView record;
        record.header.form = Form::kRaw;
        record.header.order = Order::kImmediate;
        record.header.opcode = kMeetCode;
        record.header.lane = lane;
        record.header.context = handle(HandleKind::kContext, number);
        check(executor->accept(std::span<const RecordView>(&record, 1)).ok(),
              "a call is not taken");
      }
    }
    for (std::uint64_t event = 0; event < 2; ++event) {
      events[event] = device.add_event();
      bind_one(HandleKind::kEvent, handle(HandleKind::kEvent, 90 + event), events[event]);
    }
  }
  static std::uint64_t stream_handle(char context, char stream) {
    return handle(HandleKind::kStream,
                  10 * number_of(context) +
                      static_cast<std::uint64_t>(std::strchr(kStreams, stream) - kStreams));
  }

  // The call as the client sends it.
  RecordView record_of(std::size_t index);
  void accept(std::size_t index) {
    const RecordView record = record_of(index);
    steps[index].given = true;
    check(executor->accept(std::span<const RecordView>(&record, 1)).ok(), "a call is not taken");
  }

  // Called on the driver's side.
  void note(std::size_t index) {
    const Quiet quiet;
    check(!steps[index].issued, "a call is issued twice");
    steps[index].issued = true;
    for (std::size_t i = 0; i < index; ++i) {
      if (!must_be_issued_before(program, index, i)) continue;
      const bool over = program[i].kind == CudaStep::kFree ? steps[i].returned : steps[i].issued;
      if (!over) wrong("is called before the return of", index, i);
    }
  }
  // A driver call with an event, which is one of the program's or the worker's own.
  int use_event(void* event, void* stream, CudaStep::Kind kind) {
    const Quiet quiet;
    model::point();
    std::pair<char, char> place = {device.context_now() == 1 ? 'A' : 'B', '0'};
    if (places.count(stream) != 0) place = places[stream];
    std::size_t index = 0;
    for (; index < steps.size(); ++index) {
      const CudaStep& step = program[index];
      if (step.kind == kind && steps[index].given && !steps[index].issued &&
          events[step.event] == event && place == std::pair(step.context, step.stream)) {
        break;
      }
    }
    // The worker also has a stream of its own.
    const bool own_stream =
        reinterpret_cast<std::uintptr_t>(stream) > 1 && places.count(stream) == 0;
    const bool of_program = !own_stream && (event == events[0] || event == events[1]);
    check(!of_program || index < steps.size(), "an event is used by no call");
    if (of_program) note(index);
    const std::size_t operation =
        kind == CudaStep::kRecord ? device.record(event, stream) : device.wait(stream, event);
    if (!of_program) return 0;
    steps[index].operation = static_cast<std::ptrdiff_t>(operation);
    compare(index);
    return 0;
  }
  int issue(std::size_t index, void* stream) {
    const Quiet quiet;
    model::point();
    note(index);
    steps[index].operation = static_cast<std::ptrdiff_t>(device.give(stream));
    compare(index);
    return 0;
  }
  int free(std::size_t index) {
    const Quiet quiet;
    model::point();
    note(index);
    device.wait_for_context(static_cast<int>(number_of(program[index].context)));
    returned(index);
    return 0;
  }
  // Checks that all steps that come before this one are issued, and come before it on the device.
  void compare(std::size_t index) {
    for (std::size_t i = 0; i < index; ++i) {
      if (!before[i][index] || !program[i].on_device()) continue;
      const bool holds = steps[i].operation >= 0 &&
                         device.before(static_cast<std::size_t>(steps[i].operation),
                                       static_cast<std::size_t>(steps[index].operation));
      if (!holds) wrong("on the device does not come after", index, i);
    }
  }
  // Checks that all steps that come before this call are complete.
  void returned(std::size_t index) {
    const Quiet quiet;
    for (std::size_t i = 0; i < index; ++i) {
      if (!before[i][index] || !program[i].on_device()) continue;
      const bool holds =
          steps[i].operation >= 0 && device.complete(static_cast<std::size_t>(steps[i].operation));
      if (!holds) wrong("returns before the end of", index, i);
    }
    steps[index].returned = true;
  }

  // All threads wait. Checks that each call that was not issued has another one to wait for.
  void check_waiting() {
    const Quiet quiet;
    for (std::size_t j = 0; j < steps.size(); ++j) {
      if (!steps[j].given || steps[j].issued) continue;
      bool may = (program[j].kind == CudaStep::kLate && !steps[j].arrived) || stands_early(j);
      for (std::size_t i = 0; i < j && !may; ++i) {
        may = model::may_wait(program, j, i) && !over(i, j);
      }
      if (!may) wrong("is kept waiting by nothing", j, j);
    }
  }
  // Whether the step has happened, as far as `later` may wait for it.
  bool over(std::size_t index, std::size_t later) const {
    if (program[index].kind != CudaStep::kFree) return steps[index].issued;
    const bool for_its_end =
        !program[later].of_stream() && program[later].context == program[index].context;
    return for_its_end ? steps[index].returned : has_place(index);
  }
  // Whether everything that a free waits for has been issued.
  bool has_place(std::size_t index) const {
    for (std::size_t i = 0; i < index; ++i) {
      if (program[i].kind == CudaStep::kFree) {
        if (!has_place(i)) return false;
      } else if (model::may_wait(program, index, i) && !steps[i].issued) {
        return false;
      }
    }
    return true;
  }
  // Whether the step ends something, and therefore waits for early-answered work before it. It
  // waits for the last such work of that lane and context, which may have come later.
  bool stands_early(std::size_t index) const {
    const auto incomplete = [this](std::size_t i) {
      return steps[i].operation >= 0 &&
             !device.complete(static_cast<std::size_t>(steps[i].operation));
    };
    if (program[index].kind != CudaStep::kFree && program[index].kind != CudaStep::kEnd) {
      return false;
    }
    bool before_it = false;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const bool early = program[i].early() || program[i].kind == CudaStep::kFree;
      if (!early && program[i].kind != CudaStep::kCopy) continue;
      before_it = before_it || i < index;
      // While the device is paused its event does not complete either.
      if (before_it && device.paused()) return true;
      if (before_it && !early && incomplete(i)) return true;
      for (std::size_t k = 0; before_it && early && k < i; ++k) {
        if (before[k][i] && incomplete(k)) return true;
      }
    }
    return false;
  }
  [[noreturn]] void wrong(const char* what, std::size_t index, std::size_t other) {
    std::string text =
        "step " + std::to_string(index + 1) + " (" + text_of({program[index]}) + ") " + what;
    if (other != index) {
      text += " step " + std::to_string(other + 1) + " (" + text_of({program[other]}) + ")";
    }
    model::violated(text);
  }

  static Run* now;
  const CudaProgram program;
  const std::vector<std::vector<bool>> before;
  std::vector<Step> steps;
  OrderDevice device;
  void* events[2] = {};
  WorkerOptions options;
  Client client;
  std::optional<Outbox> outbox;
  std::unique_ptr<Executor> executor;
  std::vector<Bytes> payloads;
  std::map<void*, std::pair<char, char>> places;  // The driver's streams.
};
Run* Run::now = nullptr;

RecordView Run::record_of(std::size_t index) {
  const CudaStep& step = program[index];
  RecordView record;
  RecordHeader& header = record.header;
  header.sequence = index + 1;
  header.context = handle(HandleKind::kContext, number_of(step.context));
  header.lane = step.stream == 'q'   ? 2
                : step.stream == 'p' ? 1
                                     : 3 + static_cast<std::uint32_t>(index % 2);
  header.order = Order::kStream;
  header.form = Form::kRaw;
  if (step.stream == 'p' || step.stream == 'q') header.stream = protocol::kStreamPerThread;
  if (step.stream >= 'b' && step.stream < 'p')
    header.stream = stream_handle(step.context, step.stream);
  Bytes payload(sizeof(protocol::LaunchPayload));
  switch (step.kind) {
    case CudaStep::kLaunch:
      header.form = Form::kLaunch;
      break;
    case CudaStep::kLate:
      header.opcode = kLateCode;
      break;
    case CudaStep::kCopy: {
      header.form = Form::kCopyInline;
      header.flags = protocol::kFlagBarrier;
      header.stream = protocol::kStreamNull;
      protocol::CopyPayload copy;
      copy.destination = index;
      std::memcpy(payload.data(), &copy, sizeof copy);
      break;
    }
    case CudaStep::kRecord:
    case CudaStep::kWait:
      header.form = step.kind == CudaStep::kWait ? Form::kStreamWait : Form::kEventRecord;
      header.subject = handle(HandleKind::kEvent, 90 + static_cast<std::uint64_t>(step.event));
      if (step.kind == CudaStep::kRecord) {
        header.flags = protocol::kFlagWritesSubject | protocol::kFlagTell;
      }
      std::memset(payload.data(), 0, sizeof(protocol::EventPayload));
      break;
    case CudaStep::kSync:
      header.opcode = kSyncCode;
      header.flags = protocol::kFlagFence;
      break;
    case CudaStep::kEarly:
      header.opcode = kEarlyCode;
      header.form = Form::kCall;
      header.flags = protocol::kFlagBarrier;
      break;
    case CudaStep::kAwait:
      header.opcode = kAwaitCode;
      header.form = Form::kCall;
      header.flags = protocol::kFlagBarrier;
      header.subject = handle(HandleKind::kEvent, 90 + static_cast<std::uint64_t>(step.event));
      break;
    case CudaStep::kFree:
      header.opcode = kFreeCode;
      header.order = Order::kOrderedHost;
      header.flags = protocol::kFlagBarrier;
      break;
    case CudaStep::kLoad:
      header.opcode = kLoadCode;
      header.order = Order::kContext;
      break;
    case CudaStep::kEnd:
      header.opcode = kEndCode;
      header.order = Order::kContext;
      header.flags = protocol::kFlagFence;
      break;
  }
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.bytes = static_cast<std::uint32_t>(protocol::record_bytes(payload.size()));
  payloads[index] = std::move(payload);
  record.payload = payloads[index];
  return record;
}

void Run::go(bool paused) {
  device.pause(paused);
  const int runs = model::spawn("device", [this] { device.run(); });
  std::vector<std::size_t> late;
  const auto arrive = [&](std::size_t which) {
    const Quiet quiet;
    steps[late[which]].arrived = true;
    late.erase(late.begin() + static_cast<std::ptrdiff_t>(which));
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    accept(i);
    if (program[i].kind == CudaStep::kLate) late.push_back(i);
    if (!late.empty() && model::choose(4) == 3) {
      arrive(model::choose(static_cast<unsigned>(late.size())));
      executor->wake();
    }
  }
  for (;;) {
    model::settle();
    check_waiting();
    if (late.empty()) break;
    // Without a choice the last bytes arrive first, so that they overtake.
    const auto count = static_cast<unsigned>(late.size());
    arrive(count - 1 - model::choose(count));
    executor->wake();
  }
  device.pause(false);
  model::settle();
  check_waiting();
  int replies = 0, told = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].issued) wrong("is never issued", i, i);
    const bool awaited = program[i].kind == CudaStep::kSync || program[i].kind == CudaStep::kEnd;
    const bool ends = program[i].kind == CudaStep::kFree || awaited;
    if (ends && !steps[i].returned) wrong("never returns", i, i);
    if (awaited) ++replies;
    if (program[i].kind == CudaStep::kRecord) ++told;
  }
  check(client.replies == replies, "a reply is missing, or comes twice");
  check(client.events == told, "an event's completion is not told, or twice");
  device.stop();
  model::join(runs);
  model::exploring(false);
  executor.reset();
}

void run(const CudaProgram& program, bool choices, bool paused) {
  model::failing_program() = program;
  Run one(program);
  model::exploring(choices);
  one.go(choices ? model::choose(2) == 1 : paused);
  model::failing_program().clear();
}

// Random programs of 2 to 10 steps. The exhaustive search runs the same program in all
// interleavings.
void programs() {
  CudaProgram program;
  if (const char* given = std::getenv("GPURUN_MODEL_PROGRAM"); given != nullptr) {
    program = model::program_from(given);
  } else if (model::random_phase()) {
    model::exploring(true);
    program = model::any_program();
    model::exploring(false);
  } else {
    program = model::program_from("late An, copy A, launch Am, record B0 0, free A, wait Bn 0");
  }
  run(program, true, false);
}

// Other work of the program finds an event's end before its helper does. Random programs rarely
// have this.
void told_by_the_way() { run(model::program_from("record An 0, copy A0, copy A0"), true, false); }

// All programs of `length` of these steps, in two runs each. Late bytes come last. In the second
// run the device completes nothing before that.
void all_of(const std::string& text, int length) {
  const CudaProgram steps = model::program_from(text);
  std::size_t all = 1;
  for (int i = 0; i < length; ++i) all *= steps.size();
  for (std::size_t number = 0; number < all; ++number) {
    CudaProgram program;
    std::size_t rest = number;
    for (int at = 0; at < length; ++at, rest /= steps.size()) {
      program.push_back(steps[rest % steps.size()]);
    }
    bool possible = true;
    for (std::size_t at = 0; at < program.size() && possible; ++at) {
      possible =
          program[at].kind != CudaStep::kAwait || model::record_before(program, at) != nullptr;
    }
    for (const bool paused : {false, true}) {
      if (!possible) break;
      run(program, false, paused);
      model::begin_anew();
    }
  }
  std::printf("%zu programs of %d steps\n", all, length);
}

// GPURUN_MODEL_LONGER=1 adds one step. Runs once in a process, because there are no choices.
void small_programs() {
  static bool done = false;
  if (std::exchange(done, true)) return;
  const int more = std::getenv("GPURUN_MODEL_LONGER") == nullptr ? 0 : 1;
  all_of(
      "launch A0, late A0, launch Ap, late Ap, late Ab, launch An, late An, copy A, record A0 0, "
      "record Ab 0, record An 0, wait A0 0, wait Am 0, wait Ab 0, early An, free A, load A, end A, "
      "late B0, launch Bn, copy B, free B",
      3 + more);
  all_of("early An, record An 0, record Ab 0, late Am, wait Am 0, wait Ab 0, late Ab, launch An",
         4 + more);
  all_of(
      "record An 0, await An 0, late An, copy A, late Am, launch Am, launch Bn, end A, wait Bm 0",
      4 + more);
  all_of("early An, late An, late Am, end A, free A, end B, free B, record An 0, wait Bn 0",
         4 + more);
  all_of("launch An, late An, launch Am, launch Bn, free A, free B, copy A, sync Am", 4 + more);
}

constexpr model::Scenario kScenarios[] = {
    {"programs", programs}, {"told", told_by_the_way}, {"small", small_programs}};

}  // namespace
}  // namespace gpurun::server

int main(int argc, char** argv) {
  gpurun::model::report::explain = gpurun::model::explain_program;
  using gpurun::server::kScenarios;
  return gpurun::model::explore(argc, argv, kScenarios, std::size(kScenarios), 4'000);
}
