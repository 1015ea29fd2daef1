// Forward: the building blocks of a hand-written function of the client library.
//
// The folders of client/interpose. Each includes only folders above it, and driver/ alone includes
// modules/.
//
//   call/         The one session of this process, and the state of a call. This file sends a row's
//                 ordinary packed call.
//   capture/      What a capture allows: streams, events, nodes of graphs.
//   memory/       Addresses, windows of device memory, and the waits of calls that free memory.
//   modules/      Hand-written functions of modules, libraries, kernels, launches, kernel nodes.
//   driver/       The other ones, one file for each subject: device, context, memory, copy, graph.
//   entry/        The wall that every call passes, and the body of all generated rows.
//   nvml/         libnvidia-ml.so.1.
//   not_yet.list  Custom rows without a function. The build requires one for a removed line.
//
// A hand-written function is `CUresult cuX(...)` in namespace gpurun::client::interpose::custom.
// The generated client/interpose/custom.h declares it. Most functions do their local part and then
// send the row's ordinary call, with the handle that they minted. The worker's generic handler
// serves it.
//
//   CUresult cuX(CUthing* thing, unsigned flags) {
//     EntryContext here;
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

#include "client/interpose/call/context.h"
#include "client/interpose/call/process.h"
#include "client/session/session.h"
#include "driver_abi/cuda_abi.h"
#include "driver_abi/opcodes.h"
#include "driver_abi/row.h"

namespace gpurun::client::interpose {

namespace opcode = driver_abi::opcode;

inline CUresult cuda(int result) noexcept { return static_cast<CUresult>(result); }

// CUDA's handle types are pointers or integers of 64 bits.
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

// The state of one call of the program, filled by one of the enter functions. Lives on the stack.
struct EntryContext {
  Process* process = nullptr;
  Lane* lane = nullptr;
  Context* context = nullptr;  // After enter_context().

  // Returns 0, or the call's result: NOT_INITIALIZED, the session's end, or no memory for a lane.
  int enter() noexcept;
  // As enter(). Also returns INVALID_CONTEXT without a current context, and CONTEXT_IS_DESTROYED if
  // it was destroyed or is a primary context that is not retained.
  int enter_context() noexcept;

  Session& session() const noexcept { return *process->session; }
  HandleTable& handles() const noexcept { return process->session->handles(); }
  const DeviceSnapshot& devices() const noexcept { return *process->devices; }

  // Returns 0 when `handle` is alive and of `kind`. Otherwise returns the call's result.
  int check(Handle handle, HandleKind kind) const noexcept { return handles().check(handle, kind); }
  // For a call that ends the handle. A handle with a failed creation ends successfully (ADR 3).
  int check_end(Handle handle, HandleKind kind) const noexcept {
    return handles().check_end(handle, kind);
  }

  // The site of a call of the current context. Without one, context is 0. Order kContext is the
  // safe default.
  CallSite site(protocol::Order order = protocol::Order::kContext) const noexcept;
  // As site(), for calls that the work of streams does not affect (kFlagPassesStreams). They do not
  // wait until work that is queued after a host function is issued, and make no other call wait for
  // it.
  CallSite passing_site() const noexcept;
  // Calls on a created stream run in the stream's context, whatever context is current.
  CallSite stream_site(Handle stream) const noexcept;
};

// The number of posted calls that return memory once they are done. cuMemGetInfo waits for them.
inline std::atomic<std::uint64_t> memory_returns{0};

// The context of a handle. nullptr when the handle is not a context, or was destroyed.
Context* find_context(const Process& process, Handle handle) noexcept;

// Sends the row's ordinary call (form kCall). post_row() appends it, call_row() waits for the
// reply. `arguments` as call_generated() takes them, but with checked client handles, resolved
// streams and the server's device numbers. `minted`: one handle for each handle that comes out, in
// parameter order. When call_row() returns 0, the outputs are written and returned handles are the
// client's own.
int post_row(const EntryContext& here, std::uint16_t row, CallSite site,
             std::span<const Handle> minted, void* const* arguments);
// `own` gets the call's own result, which is 0 if only an earlier call has failed.
int call_row(const EntryContext& here, std::uint16_t row, CallSite site,
             std::span<const Handle> minted, void* const* arguments, int* own = nullptr);
// For a row that waits for a stream. True if the wait was answered before it is over
// (Session::wait_answered_early()). `*result` is then the call's result.
bool wait_row_early(const EntryContext& here, std::uint16_t row, CallSite site, int* result,
                    void* const* arguments);
// As above, for a row that waits for a record of an event.
bool wait_row_early(const EntryContext& here, std::uint16_t row, const Session::Recorded& recorded,
                    CallSite site, int* result, void* const* arguments);

template <typename... Arguments>
int post_row(const EntryContext& here, std::uint16_t row, const CallSite& site,
             std::initializer_list<Handle> minted, Arguments... arguments) {
  void* const places[] = {static_cast<void*>(&arguments)..., nullptr};
  return post_row(here, row, site, std::span<const Handle>(minted.begin(), minted.size()), places);
}
template <typename... Arguments>
int call_row(const EntryContext& here, std::uint16_t row, const CallSite& site,
             std::initializer_list<Handle> minted, Arguments... arguments) {
  void* const places[] = {static_cast<void*>(&arguments)..., nullptr};
  return call_row(here, row, site, std::span<const Handle>(minted.begin(), minted.size()), places);
}

template <typename Argument>
bool wait_row_early(const EntryContext& here, std::uint16_t row, const CallSite& site, int* result,
                    Argument argument) {
  void* const places[] = {static_cast<void*>(&argument), nullptr};
  return wait_row_early(here, row, site, result, static_cast<void* const*>(places));
}
template <typename Argument>
bool wait_row_early(const EntryContext& here, std::uint16_t row, const Session::Recorded& recorded,
                    const CallSite& site, int* result, Argument argument) {
  void* const places[] = {static_cast<void*>(&argument), nullptr};
  return wait_row_early(here, row, recorded, site, result, static_cast<void* const*>(places));
}

// For a call that waits for a stream or a context, or queries it. True if nothing has to be sent
// (Session::idle_answered()). `*result` is then the call's result.
inline bool known_idle(const EntryContext& here, CallSite site, Waits waits, int* result) {
  site.waits = waits;
  return here.session().idle_answered(*here.lane, site, result);
}
// Calls a row that waits.
template <typename... Arguments>
int wait_row(const EntryContext& here, std::uint16_t row, CallSite site, Waits waits,
             Arguments... arguments) {
  int result = 0;
  if (known_idle(here, site, waits, &result)) return result;
  site.waits = waits;
  return call_row(here, row, site, {}, arguments...);
}

}  // namespace gpurun::client::interpose
