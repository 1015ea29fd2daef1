// Flood sessions: more of everything than a worker can hold, and host functions that never run.
#include "base/injected_fault.h"
#include "protocol/calls/host_function.h"
#include "tests/hostile/acts.h"
#include "tests/hostile/sessions.h"

namespace gpurun::hostile {
namespace {

// Floods are small in builds where each step costs ten times as much.
#ifdef GPURUN_INJECTED_FAULTS
constexpr std::size_t kMany = 500;
#else
constexpr std::size_t kMany = 5'000;
#endif

bool say_host_functions(Stranger& of, protocol::HostFunctionStep step, std::size_t count,
                        Order order, std::uint16_t flags) {
  if (!of.make_context()) return false;
  RecordHeader header = Stranger::in_context("cuLaunchHostFunc", Form::kRaw, order);
  header.flags = flags;
  protocol::HostFunctionPayload payload;
  payload.step = step;
  for (std::size_t i = 1; i <= count; ++i) {
    payload.ticket = i;
    of.call(header, bytes_of(payload));
  }
  return true;
}

bool come_with_many_lanes(Stranger& of) {
  if (!of.make_context()) return false;
  RecordHeader header = Stranger::in_stream("cuEventRecord", Form::kEventRecord);
  header.stream = protocol::kStreamPerThread;
  header.subject = handle(HandleKind::kEvent, 50);
  const protocol::EventPayload payload;
  for (std::uint32_t lane = 0; lane < kMany; ++lane) {
    header.lane = lane;
    of.call(header, bytes_of(payload));
  }
  return true;
}

bool want_to_be_told_of_everything(Stranger& of) {
  if (!of.make_context()) return false;
  std::uint64_t word = 0;
  std::uint64_t* place = &word;
  unsigned flags = 0;
  constexpr std::uint64_t kEvent = handle(HandleKind::kEvent, 60);
  if (refused(of.ask_row("cuEventCreate", {&place, &flags}, {kEvent}))) return false;
  RecordHeader header = Stranger::in_stream("cuEventRecord", Form::kEventRecord);
  header.subject = kEvent;
  header.flags = protocol::kFlagTell;
  const protocol::EventPayload payload;
  of.flood(header, bytes_of(payload), kMany);
  return true;
}

bool acknowledge_nothing(Stranger& of) {
  const std::uint64_t mine = of.make_context() ? of.allocate(1 << 20) : 0;
  if (mine == 0) return false;
  RecordHeader header = Stranger::in_stream("cuMemcpyDtoHAsync_v2", Form::kCopyOut);
  header.flags = protocol::kFlagFence;
  const protocol::CopyPayload words{0, mine, 8192};
  of.flood(header, bytes_of(words), 12'000);
  return true;
}

using protocol::HostFunctionStep;

constexpr Session kSessions[] = {
    {"host_functions_that_never_return", "served",
     [](Stranger& of) {
       return say_host_functions(of, HostFunctionStep::kGate, 2'000, Order::kStream, 0);
     }},
    {"waits_for_host_functions_that_are_none", "served",
     [](Stranger& of) {
       return say_host_functions(of, HostFunctionStep::kWait, kMany, Order::kImmediate,
                                 protocol::kFlagFence);
     }},
    {"ends_of_host_functions_that_never_began", "served",
     [](Stranger& of) {
       return say_host_functions(of, HostFunctionStep::kRelease, kMany, Order::kImmediate, 0);
     }},
    {"host_function_steps_that_are_none", "served",
     [](Stranger& of) {
       return say_host_functions(of, static_cast<HostFunctionStep>(9), 100, Order::kImmediate, 0);
     }},
    {"lanes_by_the_thousand", "served", come_with_many_lanes},
    {"events_that_all_want_to_be_told", "served", want_to_be_told_of_everything},
    {"answers_that_are_never_acknowledged", "acknowledges no replies|closed", acknowledge_nothing},
};

}  // namespace

std::span<const Session> flood_sessions() { return kSessions; }

}  // namespace gpurun::hostile
