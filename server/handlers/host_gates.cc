// HostGates: a call of a stream is held until the client reports that its function has run.
#include "server/handlers/host_gates.h"

#include <cstring>

#include "protocol/calls/host_function.h"
#include "server/handlers/state/handler_state.h"
#include "server/worker/execution/completions.h"
#include "server/worker/execution/executor.h"

namespace gpurun::server {
namespace {

using protocol::HostFunctionPayload;
using protocol::HostFunctionStep;

constexpr int kErrorCaptureUnsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
// Call::scratch[0] of a gate.
constexpr std::uint64_t kGateOpened = 1;

HostFunctionPayload payload_of(const Call& call) {
  HostFunctionPayload payload;
  std::memcpy(&payload, call.payload().data(), sizeof payload);
  return payload;
}

HostGates& gates_of(const Call& call) { return HandlerState::of(call).gates(); }

CallOutcome run_gate(Call& call, std::uint64_t ticket) {
  HostGates& gates = gates_of(call);
  if (call.scratch[0] == kGateOpened) {
    bool reached = false;
    if (!gates.take_released(ticket, &reached)) return CallOutcome::held();
    if (reached) call.executor().end_client_turn();
    return CallOutcome::done(0);
  }
  // The thread that waits at a gate that cannot be used gets the error.
  const auto refuse = [&gates, ticket](int result) {
    gates.refuse(ticket, result);
    return CallOutcome::done(result);
  };
  if (call.header().order != protocol::Order::kStream) return refuse(kErrorInvalidValue);
  int capturing = 0;
  (void)call.driver().cuStreamIsCapturing(call.driver_stream(), &capturing);
  // A graph would have to call the program at each launch. The client refuses that earlier.
  if (capturing != 0) return refuse(kErrorCaptureUnsupported);
  int result = gates.open(ticket);
  if (result != 0) return CallOutcome::done(result);
  // The client's turn begins when the stream reaches the gate. Until then its calls wait as behind
  // any other work.
  Executor& executor = call.executor();
  const auto reached = [&gates, &executor, ticket](int ended) {
    executor.begin_client_turn();
    if (!gates.reached(ticket, ended)) executor.end_client_turn();
  };
  result = executor.completions().after(call.driver_context(), call.driver_stream(), reached);
  if (result != 0) reached(result);
  call.scratch[0] = kGateOpened;
  return CallOutcome::held();
}

int wait_at_gate(Call& call) { return gates_of(call).wait(payload_of(call).ticket); }

// A program's cuLaunchHostFunc and the two records that follow it.
CallOutcome run_host_function(Call& call) {
  if (call.payload().size() != sizeof(HostFunctionPayload)) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  const HostFunctionPayload payload = payload_of(call);
  switch (payload.step) {
    case HostFunctionStep::kGate:
      return run_gate(call, payload.ticket);
    case HostFunctionStep::kWait:
      if (!call.awaited()) return CallOutcome::done(kErrorInvalidValue);
      return CallOutcome::park(&wait_at_gate);
    case HostFunctionStep::kRelease:
      gates_of(call).release(payload.ticket);
      call.executor().wake();
      return CallOutcome::done(0);
  }
  return CallOutcome::done(kErrorInvalidValue);
}

}  // namespace

int HostGates::open(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  if (gates_.size() >= protocol::kHostFunctionsMax) return kErrorOutOfMemory;
  Gate& gate = gates_[ticket];
  if (gate.opened) return kErrorInvalidValue;
  gate.opened = true;
  return 0;
}

bool HostGates::reached(std::uint64_t ticket, int result) {
  {
    const std::lock_guard lock(mutex_);
    const auto it = gates_.find(ticket);
    if (it == gates_.end()) return false;
    it->second.reached = true;
    it->second.result = result;
  }
  changed_.notify_all();
  return true;
}

int HostGates::wait(std::uint64_t ticket) {
  std::unique_lock lock(mutex_);
  int result = kErrorUnknown;
  changed_.wait(lock, [&] {
    if (stopping_) return true;
    const auto it = gates_.find(ticket);
    if (it == gates_.end() || !it->second.reached) return false;
    result = it->second.result;
    return true;
  });
  return result;
}

void HostGates::refuse(std::uint64_t ticket, int result) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = gates_.find(ticket);
    if (found == gates_.end() && gates_.size() >= protocol::kHostFunctionsMax) return;
    Gate& gate = gates_[ticket];
    gate.opened = true;
    gate.refused = true;
    if (!gate.reached) gate.result = result;
    gate.reached = true;
    if (gate.released) gates_.erase(ticket);
  }
  changed_.notify_all();
}

void HostGates::release(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  const auto it = gates_.find(ticket);
  if (it == gates_.end()) return;
  it->second.released = true;
  if (it->second.refused) gates_.erase(it);
}

bool HostGates::take_released(std::uint64_t ticket, bool* reached) {
  const std::lock_guard lock(mutex_);
  *reached = false;
  const auto it = gates_.find(ticket);
  if (it == gates_.end()) return true;
  if (!it->second.released) return false;
  *reached = it->second.reached;
  gates_.erase(it);
  return true;
}

void HostGates::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

void refuse_host_gate(Call& call, int result) {
  if (call.header().opcode != driver_abi::find_row("cuLaunchHostFunc")->opcode ||
      call.payload().size() != sizeof(HostFunctionPayload)) {
    return;
  }
  const HostFunctionPayload payload = payload_of(call);
  if (payload.step == HostFunctionStep::kGate) gates_of(call).refuse(payload.ticket, result);
}

void add_host_function_handlers(Handlers& handlers) {
  set_handler(handlers, "cuLaunchHostFunc", &run_host_function);
}

}  // namespace gpurun::server
