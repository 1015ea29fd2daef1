// Synchronize handlers: waits and queries, answered at once when the device is done.
#include "server/worker/execution/synchronize.h"

#include "driver_abi/row.h"
#include "protocol/calls/call.h"
#include "server/worker/execution/event_registry.h"
#include "server/worker/execution/executor.h"
#include "server/worker/execution/skipped_waits.h"

namespace gpurun::server {
namespace {

// Reads the handle that is the row's first argument. False: the payload does not fit the row.
bool first_argument(const Call& call, std::uint64_t* value) {
  const driver_abi::Row* row = driver_abi::find_row(call.header().opcode);
  protocol::UnpackedCall unpacked;
  if (row == nullptr || !unpacked.unpack(*row, call.payload()).ok()) return false;
  *value = unpacked.word(0);
  return true;
}

// A call that is not awaited must not be parked, and no thread needs its result.
bool may_wait(const Call& call) {
  return call.awaited() || call.header().order == protocol::Order::kOrderedHost;
}

// The executor keeps later calls from starting on the device before the stream's work is complete,
// as it does for any barrier.
bool is_answered_early(const Call& call) {
  const protocol::RecordHeader& header = call.header();
  return (header.flags & protocol::kFlagBarrier) != 0 && header.order == protocol::Order::kStream &&
         !call.awaited();
}

// The driver's stream. scratch[0] keeps it.
HandleTable::Found stream_of(Call& call) {
  if (call.header().order == protocol::Order::kStream) {
    return {0, reinterpret_cast<std::uintptr_t>(call.driver_stream())};
  }
  std::uint64_t stream = 0;
  if (!first_argument(call, &stream)) return {kErrorInvalidValue, 0};
  return call.resolve_stream(stream);
}

// The last query found the work complete, and a wait would bring nothing more. scratch[3] keeps
// that.
bool is_over(const Call& call) { return call.scratch[3] != 0; }

// `state`: the result of a query. Returns whether it is final.
bool note_state(Call& call, int state) {
  call.scratch[3] = state == 0 && call.executor().skipped_waits().allowed() ? 1 : 0;
  return state != kErrorNotReady;
}

int wait_for_stream(Call& call) {
  if (is_over(call)) return 0;
  return call.driver().cuStreamSynchronize(reinterpret_cast<void*>(call.scratch[0]));
}

bool stream_is_done(Call& call) {
  return note_state(call, call.driver().cuStreamQuery(reinterpret_cast<void*>(call.scratch[0])));
}

CallOutcome stream_synchronize(Call& call) {
  if (is_answered_early(call)) return CallOutcome::done(0);
  if (!may_wait(call)) return CallOutcome::done(kErrorInvalidValue);
  const HandleTable::Found stream = stream_of(call);
  if (stream.result != 0) return CallOutcome::done(stream.result);
  call.scratch[0] = stream.value;
  const int state = call.driver().cuStreamQuery(reinterpret_cast<void*>(stream.value));
  if (!note_state(call, state)) return CallOutcome::park(wait_for_stream, stream_is_done);
  // The stream is done, but the output of kernels comes only with the synchronisation.
  return CallOutcome::done(state != 0 ? state : wait_for_stream(call));
}

CallOutcome stream_query(Call& call) {
  const HandleTable::Found stream = stream_of(call);
  if (stream.result != 0) return CallOutcome::done(stream.result);
  return CallOutcome::done(call.driver().cuStreamQuery(reinterpret_cast<void*>(stream.value)));
}

CallOutcome context_synchronize(Call& call) {
  if (!may_wait(call)) return CallOutcome::done(kErrorInvalidValue);
  const auto wait = [](Call& waiting) { return waiting.driver().cuCtxSynchronize(); };
  // The executor knows which streams have work, and this may be a thread of the call's own.
  if (call.header().order == protocol::Order::kOrderedHost) return CallOutcome::park(wait);
  if (call.executor().context_is_known(call)) {
    return CallOutcome::park(
        wait, [](Call& asking) { return asking.executor().context_is_done(asking); });
  }
  call.executor().begin_context_wait(call);
  return CallOutcome::park([](Call& waiting) {
    const int result = waiting.driver().cuCtxSynchronize();
    if (result == 0) waiting.executor().end_context_wait();
    return result;
  });
}

// scratch: 0 is the driver's event, 1 the client's, 2 the call that recorded it last.
int find_event(Call& call) {
  std::uint64_t event = call.header().subject;
  if (event == 0 && !first_argument(call, &event)) return kErrorInvalidValue;
  const HandleTable::Found found = call.handles().find(event, HandleKind::kEvent);
  call.scratch[0] = found.value;
  call.scratch[1] = event;
  call.scratch[2] = call.executor().events().last_record(event);
  return found.result;
}

int wait_for_event(Call& call) {
  void* const event = reinterpret_cast<void*>(call.scratch[0]);
  const int result = is_over(call) ? 0 : call.driver().cuEventSynchronize(event);
  if (result == 0) call.executor().tell_event_done(call.header(), call.scratch[1], call.scratch[2]);
  return result;
}

bool event_is_done(Call& call) {
  return note_state(call, call.driver().cuEventQuery(reinterpret_cast<void*>(call.scratch[0])));
}

CallOutcome event_synchronize(Call& call) {
  const bool early = is_answered_early(call);
  if (!early && !may_wait(call)) return CallOutcome::done(kErrorInvalidValue);
  if (const int result = find_event(call); result != 0) return CallOutcome::done(result);
  if (early) return CallOutcome::done(0);
  const int state = call.driver().cuEventQuery(reinterpret_cast<void*>(call.scratch[0]));
  if (!note_state(call, state)) return CallOutcome::park(wait_for_event, event_is_done);
  return CallOutcome::done(state != 0 ? state : wait_for_event(call));
}

CallOutcome event_query(Call& call) {
  if (const int result = find_event(call); result != 0) return CallOutcome::done(result);
  const int state = call.driver().cuEventQuery(reinterpret_cast<void*>(call.scratch[0]));
  if (state == 0) {
    call.executor().tell_event_done(call.header(), call.scratch[1], call.scratch[2]);
  }
  return CallOutcome::done(state);
}

std::array<std::uint64_t, 2> events_of_elapsed_time(const Call& call) {
  const driver_abi::Row* row = driver_abi::find_row(call.header().opcode);
  protocol::UnpackedCall unpacked;
  if (row == nullptr || !unpacked.unpack(*row, call.payload()).ok()) return {};
  return {unpacked.word(1), unpacked.word(2)};
}

void set(Handlers& handlers, const char* symbol, Handler handler) {
  const driver_abi::Row* row = driver_abi::find_row(symbol);
  if (row != nullptr && row->opcode < Handlers::kOpcodes) {
    handlers.by_opcode[row->opcode] = handler;
  }
}

// If these end while work on the device runs, that work loses their objects. The driver itself
// keeps streams, events and graphs that are not executable until such work is over.
constexpr const char* kEnds[] = {"cuArrayDestroy",
                                 "cuCtxDestroy_v2",
                                 "cuCtxDisablePeerAccess",
                                 "cuDevicePrimaryCtxRelease_v2",
                                 "cuDevicePrimaryCtxReset_v2",
                                 "cuGraphExecDestroy",
                                 "cuGreenCtxDestroy",
                                 "cuIpcCloseMemHandle",
                                 "cuLibraryUnload",
                                 "cuMemFree_v2",
                                 "cuMemPoolDestroy",
                                 "cuMemRelease",
                                 "cuMemSetAccess",
                                 "cuMemUnmap",
                                 "cuMipmappedArrayDestroy",
                                 "cuModuleUnload",
                                 "cuSurfObjectDestroy",
                                 "cuTexObjectDestroy"};

constexpr const char* kAccounts[] = {"cuMemGetInfo_v2", "cuMemPoolGetAttribute"};

// Memory pools, and the loads of code that no handler of modules inspects.
constexpr const char* kNeedWaits[] = {"cuMemAllocAsync",         "cuMemAllocAsync_ptsz",
                                      "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz",
                                      "cuMemPoolImportPointer",  "cuModuleLoad",
                                      "cuModuleLoadData",        "cuModuleLoadFatBinary",
                                      "cuLibraryLoadFromFile"};

}  // namespace

void add_synchronize_handlers(Handlers& handlers) {
  for (const char* symbol : {"cuStreamSynchronize", "cuStreamSynchronize_ptsz"}) {
    set(handlers, symbol, stream_synchronize);
  }
  for (const char* symbol : {"cuStreamQuery", "cuStreamQuery_ptsz"}) {
    set(handlers, symbol, stream_query);
  }
  handlers.stream_synchronize = driver_abi::find_row("cuStreamSynchronize")->opcode;
  handlers.event_synchronize = driver_abi::find_row("cuEventSynchronize")->opcode;
  for (const char* symbol : kEnds) handlers.ends.set(driver_abi::find_row(symbol)->opcode);
  for (const char* symbol : kAccounts) {
    handlers.accounts.set(driver_abi::find_row(symbol)->opcode);
  }
  for (const char* symbol : kNeedWaits) {
    handlers.needs_waits.set(driver_abi::find_row(symbol)->opcode);
  }
  handlers.context_destroy = driver_abi::find_row("cuCtxDestroy_v2")->opcode;
  handlers.stream_query = driver_abi::find_row("cuStreamQuery")->opcode;
  handlers.event_query = driver_abi::find_row("cuEventQuery")->opcode;
  handlers.event_elapsed_time = driver_abi::find_row("cuEventElapsedTime_v2")->opcode;
  handlers.events_of_elapsed_time = &events_of_elapsed_time;
  handlers.memory_free = driver_abi::find_row("cuMemFree_v2")->opcode;
  set(handlers, "cuCtxSynchronize", context_synchronize);
  set(handlers, "cuCtxSynchronize_v2", context_synchronize);
  set(handlers, "cuEventSynchronize", event_synchronize);
  set(handlers, "cuEventQuery", event_query);
}

}  // namespace gpurun::server
