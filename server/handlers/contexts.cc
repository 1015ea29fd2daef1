// Contexts: cuDevicePrimaryCtxRetain and Release, posted once per change of state, because the
// client counts the program's retains, and cuCtxDestroy. The payload is the row's generic one.
// Retain's minted word is the client's handle.
#include "server/handlers/contexts.h"

#include "driver_abi/row.h"
#include "protocol/calls/call.h"
#include "server/driver/direct_memory.h"
#include "server/handlers/graphs/graph_hosts.h"
#include "server/handlers/memory/host_arena.h"
#include "server/handlers/modules/links.h"
#include "server/handlers/modules/module_state.h"
#include "server/handlers/state/handler_state.h"
#include "server/worker/execution/executor.h"

namespace gpurun::server {
namespace {

using driver_abi::HandleKind;

// cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev), cuDevicePrimaryCtxRelease(CUdevice dev).
constexpr std::size_t kRetainContext = 0;
constexpr std::size_t kRetainDevice = 1;
constexpr std::size_t kReleaseDevice = 0;

bool unpack(Call& call, protocol::UnpackedCall& unpacked, std::size_t device_at, int* device) {
  const driver_abi::Row* row = driver_abi::find_row(call.header().opcode);
  if (row == nullptr || !unpacked.unpack(*row, call.payload()).ok()) return false;
  *device = static_cast<int>(static_cast<std::uint32_t>(unpacked.word(device_at)));
  return *device >= 0 && *device < kHandlerDevicesMax;
}

CallOutcome run_retain(Call& call) {
  protocol::UnpackedCall unpacked;
  int device = 0;
  if (!unpack(call, unpacked, kRetainDevice, &device)) return CallOutcome::done(kErrorInvalidValue);
  HandlerState& state = HandlerState::of(call);
  const std::uint64_t client_context = unpacked.minted(kRetainContext);
  if (client_context == 0 || state.primary_context(device) != 0) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  // Remains of an earlier retain that failed.
  (void)call.handles().erase(client_context, HandleKind::kContext);
  CUcontext context = nullptr;
  int result = GPURUN_DRIVER(state.driver(), cuDevicePrimaryCtxRetain, &context, device);
  if (result != 0) {
    (void)call.handles().poison(client_context, HandleKind::kContext, result);
    return CallOutcome::done(result);
  }
  result = call.handles().bind(client_context, HandleKind::kContext,
                               reinterpret_cast<std::uintptr_t>(context));
  if (result == 0) {
    state.primary_context(device) = client_context;
  } else {
    (void)GPURUN_DRIVER(state.driver(), cuDevicePrimaryCtxRelease_v2, device);
  }
  return CallOutcome::done(result);
}

CallOutcome run_release(Call& call) {
  protocol::UnpackedCall unpacked;
  int device = 0;
  if (!unpack(call, unpacked, kReleaseDevice, &device)) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  HandlerState& state = HandlerState::of(call);
  // Forgotten first, so that no later call finds a context that is ending.
  const std::uint64_t client_context = state.primary_context(device).exchange(0);
  if (client_context == 0) return CallOutcome::done(kErrorInvalidContext);
  const HandleTable::Found context = call.handles().erase(client_context, HandleKind::kContext);
  call.executor().context_ended(client_context, context.value);
  state.direct_memory().context_ends(reinterpret_cast<void*>(context.value));
  state.graph_hosts().context_ends(reinterpret_cast<void*>(context.value));
  state.links().end_context(client_context, call.handles());
  state.modules().end(client_context, call.handles());
  const int result = GPURUN_DRIVER(state.driver(), cuDevicePrimaryCtxRelease_v2, device);
  if (result == 0) state.host_arena().context_ended(client_context);
  return CallOutcome::done(result);
}

// cuCtxDestroy(CUcontext): the row's ordinary record. Its modules end with it implicitly.
CallOutcome run_context_destroy(Call& call) {
  const driver_abi::Row* row = driver_abi::find_row(call.header().opcode);
  protocol::UnpackedCall unpacked;
  if (row == nullptr || !unpacked.unpack(*row, call.payload()).ok()) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  const std::uint64_t handle = unpacked.word(0);
  HandlerState& state = HandlerState::of(call);
  // Links end first, because the driver may need their context for that.
  const HandleTable::Found context = call.handles().find(handle, HandleKind::kContext);
  if (context.result == 0) {
    state.links().end_context(handle, call.handles());
    state.graph_hosts().context_ends(reinterpret_cast<void*>(context.value));
    state.direct_memory().context_ends(reinterpret_cast<void*>(context.value));
  }
  const CallOutcome outcome = state.dispatch().run(call);
  if (outcome.result == 0) {
    state.modules().end(handle, call.handles());
    state.host_arena().context_ended(handle);
  }
  return outcome;
}

}  // namespace

void add_context_handlers(Handlers& handlers) {
  set_handler(handlers, "cuDevicePrimaryCtxRetain", &run_retain);
  set_handler(handlers, "cuDevicePrimaryCtxRelease_v2", &run_release);
  set_handler(handlers, "cuCtxDestroy_v2", &run_context_destroy);
}

}  // namespace gpurun::server
