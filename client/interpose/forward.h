// Forward: what a hand-written function of the client library is made of.
//
// Where things stand in this folder:
//
//   entry.h      the wall that every call passes; generated rows need nothing else
//   process.h    this process's one session
//   forward.h    this: the state of a call, and sending a row's ordinary packed call
//   context.h    what the client keeps of a context
//   driver/      hand-written functions, one file per subject: device, context, memory, copy, ...
//   modules/     those of modules, libraries, kernels, launches, graphs, host functions
//   nvml/        libnvidia-ml.so.1
//   not_yet.list custom rows without a function; taking a line out makes the build want it
//
// A hand-written function is `CUresult cuX(...)` in namespace gpurun::client::interpose::custom, as
// the generated client/interpose/custom.h declares it. Most do their local part and then send the
// row's ordinary call, with the handle that they minted: the worker's generic handler serves it.
//
//   CUresult cuX(CUthing* thing, unsigned flags) {
//     Here here;
//     if (const int result = here.enter_context(); result != 0) return cuda(result);
//     ...
//     return cuda(post_row(here, opcode::cuX, site, {minted}, thing, flags));
//   }
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>

#include "client/interpose/context.h"
#include "client/interpose/entry.h"
#include "client/interpose/process.h"
#include "client/session.h"
#include "driver_abi/cuda_abi.h"
#include "driver_abi/opcodes.h"
#include "driver_abi/row.h"

namespace gpurun::client::interpose {

namespace opcode = driver_abi::opcode;

inline CUresult cuda(int result) noexcept { return static_cast<CUresult>(result); }

// CUDA's handle types are pointers, or integers of 64 bits.
template <typename T>
Handle handle_of(T value) noexcept {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<std::uintptr_t>(value);
  } else {
    return static_cast<Handle>(value);
  }
}
template <typename T>
T as(Handle handle) noexcept {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(static_cast<std::uintptr_t>(handle));
  } else {
    return static_cast<T>(handle);
  }
}

// Where a call of the program stands: filled by one of the enter functions. On the stack.
struct Here {
  Process* process = nullptr;
  Lane* lane = nullptr;
  Context* context = nullptr;  // After enter_context().

  // 0, or what the call returns: NOT_INITIALIZED, the session's end, no memory for a lane.
  int enter() noexcept;
  // Likewise, and INVALID_CONTEXT without a current context, CONTEXT_IS_DESTROYED when it is gone
  // or a primary context that nobody retains.
  int enter_context() noexcept;

  Session& session() const noexcept { return *process->session; }
  HandleTable& handles() const noexcept { return process->session->handles(); }
  const DeviceSnapshot& devices() const noexcept { return *process->devices; }

  // What the stream means in this call: stream 0 is the thread's own in _ptds and _ptsz copies.
  // 0 and the value for CallSite::stream, or INVALID_HANDLE, or the failure of its creation, or
  // what a capture lets this call answer (capture.h).
  int stream(CUstream given, Handle* stream) const noexcept;
  // 0 when `handle` is alive and of `kind`; else what the call returns.
  int check(Handle handle, HandleKind kind) const noexcept { return handles().check(handle, kind); }
  // Of the handle that a call ends: what was never made ends well (ADR 3).
  int check_end(Handle handle, HandleKind kind) const noexcept {
    return handles().check_end(handle, kind);
  }

  // Sites of calls of the current context (none: context 0). Order kContext is the safe default.
  CallSite site(protocol::Order order = protocol::Order::kContext) const noexcept;
  // Likewise, of calls that the work of streams cannot mind (kFlagPassesStreams): they do not wait
  // until what stands behind a host function is issued, nor let anybody else wait for that.
  CallSite passing_site() const noexcept;
  // A created stream's calls run in its own context, whatever is current.
  CallSite stream_site(Handle stream) const noexcept;
};

// How many calls were posted that give memory back once they are done: cuMemGetInfo waits for them.
inline std::atomic<std::uint64_t> memory_returns{0};

// The context that a handle means; nullptr when it is none, or destroyed.
Context* find_context(const Process& process, Handle handle) noexcept;

// The row's ordinary call (form kCall), appended or awaited. `arguments` as call_generated() takes
// them, but with the client's handles checked and streams resolved, and the server's numbers for
// devices. `minted`: one for each handle that comes out, in parameter order. An awaited call has
// written its outputs when 0 is returned; what came out as handles is the client's own.
int post_row(const Here& here, std::uint16_t row, CallSite site, std::span<const Handle> minted,
             void* const* arguments);
int call_row(const Here& here, std::uint16_t row, CallSite site, std::span<const Handle> minted,
             void* const* arguments);
// Of a row that waits for a stream: true, and what it returns, when that is answered before it is
// over (Session::wait_answered_early()).
bool wait_row_early(const Here& here, std::uint16_t row, CallSite site, int* result,
                    void* const* arguments);
// Likewise of one that waits for a record of an event.
bool wait_row_early(const Here& here, std::uint16_t row, const Session::Recorded& recorded,
                    CallSite site, int* result, void* const* arguments);

template <typename... Arguments>
int post_row(const Here& here, std::uint16_t row, const CallSite& site,
             std::initializer_list<Handle> minted, Arguments... arguments) {
  void* const places[] = {static_cast<void*>(&arguments)..., nullptr};
  return post_row(here, row, site, std::span<const Handle>(minted.begin(), minted.size()), places);
}
template <typename... Arguments>
int call_row(const Here& here, std::uint16_t row, const CallSite& site,
             std::initializer_list<Handle> minted, Arguments... arguments) {
  void* const places[] = {static_cast<void*>(&arguments)..., nullptr};
  return call_row(here, row, site, std::span<const Handle>(minted.begin(), minted.size()), places);
}

template <typename Argument>
bool wait_row_early(const Here& here, std::uint16_t row, const CallSite& site, int* result,
                    Argument argument) {
  void* const places[] = {static_cast<void*>(&argument), nullptr};
  return wait_row_early(here, row, site, result, static_cast<void* const*>(places));
}
template <typename Argument>
bool wait_row_early(const Here& here, std::uint16_t row, const Session::Recorded& recorded,
                    const CallSite& site, int* result, Argument argument) {
  void* const places[] = {static_cast<void*>(&argument), nullptr};
  return wait_row_early(here, row, recorded, site, result, static_cast<void* const*>(places));
}

// Of a call that waits for a stream or a context, or asks about it: true, and what it returns, when
// nothing need be sent for it (Session::idle_answered()).
inline bool known_idle(const Here& here, CallSite site, Waits waits, int* result) {
  site.waits = waits;
  return here.session().idle_answered(*here.lane, site, result);
}
// A row that waits.
template <typename... Arguments>
int wait_row(const Here& here, std::uint16_t row, CallSite site, Waits waits,
             Arguments... arguments) {
  int result = 0;
  if (known_idle(here, site, waits, &result)) return result;
  site.waits = waits;
  return call_row(here, row, site, {}, arguments...);
}

}  // namespace gpurun::client::interpose
