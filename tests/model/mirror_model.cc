// Mirror model: memory that the program's threads and the device use together, over a wire
// (docs/adr/0042). The unchanged session of the client and the worker's unchanged copies and twins
// exchange what changes, also by themselves while work goes on. Each program (mirror_program.h) has
// no race. So a local GPU gives each read one value, and each read must find it in every
// interleaving.
//
// GPURUN_MODEL_PROGRAM runs such a program. Writes are found by comparison, because the kernel's
// notes of written pages have no part here.
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "client/log/lane_registry.h"
#include "client/session/session.h"
#include "driver_abi/opcodes.h"
#include "tests/model/any_mirror_program.h"
#include "tests/model/mirror_program.h"
#include "tests/model/mirror_worker.h"
#include "tests/model/model.h"
#include "tests/model/report.h"
#include "tests/model/wire.h"

namespace gpurun::client {
namespace {

using model::check;
using model::MirrorProgram;
using model::MirrorStep;
using model::MirrorUse;
using model::MirrorWait;
using model::MirrorWorker;
using model::Quiet;
using model::Wire;
using model::WireEnd;
using protocol::Form;
using protocol::Order;
namespace opcode = driver_abi::opcode;

MirrorProgram& running_program() {
  static MirrorProgram program;
  return program;
}
std::string explain() { return "GPURUN_MODEL_PROGRAM='" + text_of(running_program()) + "'"; }

struct alignas(model::kMirrorMemoryBytes) Memory {
  std::byte bytes[model::kMirrorMemoryBytes];
};
Memory of_host, of_worker;

// Each session's thread gets the lane after those of the program's threads.
constexpr std::uint32_t kLaneOfPolls = 2;
Lane& lane(int number) {
  static Lane* lanes[2] = {};
  if (lanes[number] == nullptr) lanes[number] = LaneRegistry::take();
  return *lanes[number];
}

class Run {
 public:
  explicit Run(const MirrorProgram& given)
      : program(given), worker(wire, program, of_worker.bytes) {
    std::memset(of_host.bytes, 0, sizeof of_host.bytes);
    std::memset(of_worker.bytes, 0, sizeof of_worker.bytes);
    for (int i = 0; i < 2; ++i) lane(i);
    for (const MirrorStep& step : program) {
      flags = flags || step.kind == MirrorStep::kAwait;
      for (const MirrorUse& use : step.uses) flags = flags || use.kind == MirrorUse::kAwait;
    }
    Session::Channels channels;
    channels.log = std::make_unique<WireEnd>(&wire);
    channels.bulk.push_back(std::make_unique<WireEnd>(nullptr));
    channels.mirrors_host_memory = true;
    SessionOptions options;
    options.log_bytes = 64 << 10;
    options.spin = std::chrono::microseconds(0);  // No time passes while a thread spins.
    options.heartbeat = std::chrono::hours(1);
    options.silence_deadline = std::chrono::hours(2);
    auto started = Session::start(std::move(channels), options);
    check(started.ok(), "the session does not start");
    session = *std::move(started);
    session->open_host_mirror(Session::MirrorMode::kNoted);
    check(session->add_host_mirror(address(0), model::kMirrorMemoryBytes, of_host.bytes, false),
          "no memory for a twin");
    for (int allocation = 0; allocation < 2; ++allocation) begin(allocation);
    session->give_host_writes(lane(0));  // Makes the buffer for changes, which is large.
    model::settle();
  }

  // Whether threads or kernels wait for values of memory.
  bool has_flags() const { return flags; }

  void go() {
    const int serves = model::spawn("worker", [this] { worker.serve(); });
    const int device = model::spawn("device", [this] { worker.run_device(); });
    const int other = model::spawn("other", [this] { run_thread(1); });
    run_thread(0);
    model::join(other);
    worker.await_all_work();
    model::exploring(false);
    worker.stop();
    model::join(device);
    session.reset();
    model::join(serves);
    // The thread that exchanges flags has ended. The model does not run destructors of its keys.
    LaneRegistry::thread_ends(lane_of_id(kLaneOfPolls));
  }

 private:
  static std::uint64_t address(int allocation) {
    return reinterpret_cast<std::uint64_t>(of_worker.bytes) + model::kAllocationPlaces[allocation];
  }
  void begin(int allocation) {
    session->begin_mirrored(address(allocation), model::kAllocationBytes[allocation], false);
    session->begin_device_reach();
  }

  void run_thread(int thread) {
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (program[i].thread != thread) continue;
      run_step(i);
      done[static_cast<std::size_t>(thread)].store(i + 1, std::memory_order_release);
    }
    done[static_cast<std::size_t>(thread)].store(program.size() + 1, std::memory_order_release);
  }
  void run_step(std::size_t index);
  // Waits until the other thread has done its steps before `index`.
  void follow(int other, std::size_t index);
  void use_memory(std::size_t index);

  void check_result(int result) { check(result == 0, "a call fails"); }
  CallSite site_of(std::uint16_t code, Form form, Order order) const {
    CallSite site;
    site.opcode = code;
    site.form = form;
    site.order = order;
    site.context = model::mirror_context();
    return site;
  }
  void give_work(std::size_t index);
  int call(int thread, const CallSite& site, MirrorWait wait) {
    Reply reply;
    return session->call(lane(thread), site, bytes_of(wait), &reply);
  }
  // A wait for the stream, or a query of it, as the interposer makes it.
  int ask_stream(const MirrorStep& step, bool wait) {
    CallSite site =
        site_of(wait ? model::kWaitCode : model::kQueryCode, Form::kCall, Order::kStream);
    site.stream = model::mirror_stream(step.stream);
    site.waits = Waits::kForStream;
    int result = 0;
    if (session->idle_answered(lane(step.thread), site, &result)) return result;
    return call(step.thread, site, {MirrorWait::kStream, static_cast<std::uint32_t>(step.stream)});
  }
  int ask_event(const MirrorStep& step, bool wait) {
    CallSite site = site_of(wait ? model::kWaitCode : model::kQueryCode, Form::kCall, Order::kLane);
    site.subject = model::mirror_event(step.event);
    int result = 0;
    if (session->event_answered(lane(step.thread), site, wait, &result)) return result;
    return call(step.thread, site, {MirrorWait::kEvent, static_cast<std::uint32_t>(step.event)});
  }
  int await_context(int thread) {
    CallSite site = site_of(model::kWaitCode, Form::kCall, Order::kContext);
    site.waits = Waits::kForContext;
    int result = 0;
    if (session->idle_answered(lane(thread), site, &result)) return result;
    return call(thread, site, {});
  }
  void free(const MirrorStep& step);
  void await_known_complete() {
    const Quiet quiet;
    model::until([this] { return session->known_complete(model::mirror_context()); },
                 "another thread's wait");
  }

  const MirrorProgram& program;
  Wire wire;
  MirrorWorker worker;
  std::unique_ptr<Session> session;
  bool flags = false;
  std::array<std::atomic<std::size_t>, 2> done{};
};

void Run::follow(int other, std::size_t index) {
  // A thread with no step left before `index` has done them all.
  std::size_t needed = 0;
  for (std::size_t i = 0; i < index; ++i) {
    if (program[i].thread == other) needed = i + 1;
  }
  std::atomic<std::size_t>& of_other = done[static_cast<std::size_t>(other)];
  const auto ready = [&] {
    const Quiet quiet;
    return of_other.load(std::memory_order_acquire) >= needed;
  };
  while (of_other.load(std::memory_order_acquire) < needed) {
    const Quiet quiet;
    model::until(ready, "another thread's steps");
  }
}

void Run::use_memory(std::size_t index) {
  const MirrorStep& step = program[index];
  for (const MirrorUse& use : step.uses) {
    std::byte* const byte = of_host.bytes + model::place_of(use.byte);
    const auto value = static_cast<std::byte>(use.value);
    if (use.kind == MirrorUse::kAwait) {
      const Quiet quiet;
      model::until([&] { return *byte == value; }, "a flag");
      continue;
    }
    model::point();
    std::byte found = value;
    if (flags) {  // Such threads have no order that the session could know.
      const Quiet quiet;
      use.kind == MirrorUse::kWrite ? void(*byte = value) : void(found = *byte);
    } else {
      use.kind == MirrorUse::kWrite ? void(*byte = value) : void(found = *byte);
    }
    if (found == value) continue;
    model::violated("step " + std::to_string(index + 1) + " reads " + use.byte +
                    std::to_string(std::to_integer<int>(found)) + " in place of " + use.byte +
                    std::to_string(use.value));
  }
}

void Run::give_work(std::size_t index) {
  const MirrorStep& step = program[index];
  CallSite site = site_of(opcode::cuLaunchKernel, Form::kLaunch, Order::kStream);
  site.stream = model::mirror_stream(step.stream);
  if (step.kind == MirrorStep::kLaunch) {
    protocol::LaunchPayload payload;
    payload.function = index;
    return check_result(session->post(lane(step.thread), site, bytes_of(payload)));
  }
  if (step.kind == MirrorStep::kCopy) {
    protocol::CopyPayload payload;
    payload.destination = index;
    site.form = Form::kCopyDevice;
    Reply reply;
    return check_result(session->call(lane(step.thread), site, bytes_of(payload), &reply));
  }
  protocol::EventPayload payload;
  payload.flags = static_cast<std::uint32_t>(index);
  site.subject = model::mirror_event(step.event);
  site.form = step.kind == MirrorStep::kRecord ? Form::kEventRecord : Form::kStreamWait;
  site.work = step.kind == MirrorStep::kRecord ? Work::kRecord : Work::kStreamWait;
  if (step.kind == MirrorStep::kRecord) {
    site.flags = protocol::kFlagWritesSubject | protocol::kFlagTell;
  }
  check_result(session->post(lane(step.thread), site, bytes_of(payload)));
}

// As the interposer frees it (client/interpose/memory/implicit_wait.h).
void Run::free(const MirrorStep& step) {
  const int allocation = step.allocation - 'A';
  if (!session->known_complete(model::mirror_context())) {
    CallSite site = site_of(model::kWaitCode, Form::kCall, Order::kContext);
    site.waits = Waits::kForContext;
    check_result(call(step.thread, site, {}));
  }
  session->end_mirrored(lane(step.thread), address(allocation));
  session->end_device_reach();
}

void Run::run_step(std::size_t index) {
  const MirrorStep& step = program[index];
  switch (step.kind) {
    case MirrorStep::kStore:
    case MirrorStep::kLoad:
    case MirrorStep::kAwait:
      return use_memory(index);
    case MirrorStep::kLaunch:
    case MirrorStep::kCopy:
    case MirrorStep::kRecord:
    case MirrorStep::kWait:
      return give_work(index);
    case MirrorStep::kSync:
      return check_result(ask_stream(step, true));
    case MirrorStep::kContext:
      return check_result(await_context(step.thread));
    case MirrorStep::kEvent:
      return check_result(ask_event(step, true));
    case MirrorStep::kQuery:
    case MirrorStep::kPoll: {
      // Rests longer each time. Otherwise a schedule could let the device wait for ever.
      int result = kResultNotReady;
      std::uint64_t steps = 1;
      while (result == kResultNotReady) {
        result = step.kind == MirrorStep::kQuery ? ask_stream(step, false) : ask_event(step, false);
        if (result == kResultNotReady) model::rest(steps *= 2);
      }
      return check_result(result);
    }
    case MirrorStep::kFree:
      return free(step);
    case MirrorStep::kAllocate:
      return begin(step.allocation - 'A');
    case MirrorStep::kPause:
      return await_known_complete();
    case MirrorStep::kAfter:
      return follow(step.stream, index);
  }
}

void run(const MirrorProgram& given) {
  MirrorProgram& program = running_program();
  program = given;
  if (const auto problem = find_values(&program); problem.has_value()) {
    model::violated("no program: " + *problem);
  }
  Run one(program);
  // The thread that exchanges flags looks at any time, but not often.
  model::let_expire("gpurun-mirror", one.has_flags() ? 6 : 2);
  model::compared(of_host.bytes, sizeof of_host.bytes);
  model::compared(of_worker.bytes, sizeof of_worker.bytes);
  model::exploring(true);
  one.go();
}

void run(const char* text) { run(model::mirror_program_from(text)); }

// Both threads and both streams write to the same lines.
void neighbours() {
  run("store 0 a1, launch 0 0 a b2, store 1 c3, launch 1 1 c d4, sync 0 0, load 0 b, load 0 a, "
      "sync 1 1, load 1 d, load 1 c");
}

// One thread writes to a line that goes ahead of the other one's launch.
void written_line() {
  run("store 0 a1, launch 0 0, store 1 b3, store 1 c3, store 1 d3, store 1 e3, launch 1 1 b c d e");
}

// The host writes to a line while a kernel writes there, and before its writes are taken.
void concurrent_writes() {
  run("launch 0 0 a1 c2, store 0 b3, store 0 d4, sync 0 0, load 0 a, load 0 b, load 0 c, "
      "launch 0 0 a b d a5, store 0 c6, context 0, load 0 a, load 0 c, launch 0 1 a b c");
}

// Two threads wait for their own work.
void two_waits() { run("launch 0 0 a1, sync 0 0, load 0 a, launch 1 1 f2, context 1, load 1 f"); }

// A wait while another stream's work goes on.
void partial_wait() {
  run("launch 0 1 b2 c3 e4 d5, launch 0 0 a1, sync 0 0, load 0 a, sync 0 1, load 0 b, load 0 c, "
      "load 0 d, load 0 e");
}

void events() {
  run("store 0 a1, launch 0 0 a b2, record 0 0 0, wait 0 1 0, launch 0 1 b c3, record 0 1 1, "
      "after 1 0, event 1 1, load 1 c, load 1 b, store 1 c4, launch 1 0 c");
}

// An event's end is reported unasked, and a thread polls for it.
void polled_event() {
  run("launch 0 0 a1, record 0 0 0, after 1 0, poll 1 0, load 1 a, store 1 a2, launch 1 1 a b3, "
      "copy 1 1 b a4, load 1 a, load 1 b");
}

// One thread has waited. The other asks, and the client knows the answer.
void known_idle() { run("launch 0 0 a1, after 1 0, sync 0 0, query 1 0, load 1 a, load 0 a"); }

// One thread waits for a kernel that writes to an allocation. The other ends that allocation, and
// uses its place again.
void used_again() {
  run("launch 0 0 a1, after 1 0, context 0, pause 1, free 1 A, allocate 1 A, launch 1 1 f3, "
      "store 1 a4, sync 1 1, load 1 a");
}

// A byte gets back the value that it had before.
void same_value() {
  run("store 0 a1, launch 0 0 a a2, sync 0 0, load 0 a, store 0 a1, launch 0 0 a a2 a1, sync 0 0, "
      "load 0 a, store 0 a2, launch 0 0 a");
}

// A kernel waits for the host's flag and answers with a flag, which follows its data in a line. No
// promise covers data in other lines.
void flags() { run("store 0 f5, store 1 a7, launch 0 0 a7? f a8 b2 c4, await 0 c4, load 0 b"); }

// Random programs. The exhaustive search runs one program.
void programs() {
  if (const char* given = std::getenv("GPURUN_MODEL_PROGRAM"); given != nullptr) return run(given);
  if (!model::random_phase()) {
    return run(
        "store 0 a1, launch 0 0 a b2, after 1 0, store 1 c3, launch 1 1 c d1, context 0, "
        "load 0 b, query 1 1, load 1 d");
  }
  model::exploring(true);
  const MirrorProgram program = model::any_mirror_program();
  model::exploring(false);
  run(program);
}

constexpr model::Scenario kScenarios[] = {
    {"neighbours", neighbours},
    {"written_line", written_line},
    {"concurrent", concurrent_writes},
    {"two_waits", two_waits},
    {"partial", partial_wait},
    {"events", events},
    {"polled", polled_event},
    {"known_idle", known_idle},
    {"used_again", used_again},
    {"same_value", same_value},
    {"flags", flags},
    {"programs", programs},
};

}  // namespace
}  // namespace gpurun::client

int main(int argc, char** argv) {
  using gpurun::client::kScenarios;
  gpurun::model::report::explain = gpurun::client::explain;
  return gpurun::model::explore(argc, argv, kScenarios, std::size(kScenarios), 300);
}
