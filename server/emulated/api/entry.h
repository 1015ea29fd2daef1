// What every entry point does first: is the driver initialised, is there a current context, has it
// failed. Codes as the manual's "error handling" of each function lists them.
#pragma once

#include "driver_abi/cuda_abi.h"
#include "server/emulated/objects/capture.h"
#include "server/emulated/objects/context.h"
#include "server/emulated/objects/device.h"
#include "server/emulated/objects/handle_table.h"
#include "server/emulated/objects/thread_state.h"

namespace gpurun::emulated {

// CUDA_SUCCESS after cuInit; NOT_INITIALIZED before it and in the child of a fork; NOT_PERMITTED in
// a host function of a stream.
CUresult enter_driver();

// NOT_INITIALIZED in the child of a fork, else CUDA_SUCCESS: for the export tables, which the
// runtime uses before cuInit too.
CUresult check_not_forked();

// enter_driver(), then the current context: INVALID_CONTEXT when there is none,
// CONTEXT_IS_DESTROYED when it is gone, its sticky error when it has one.
CUresult enter_context(ContextPtr* context);

// As enter_context(), for calls that must work on a context that failed (destruction, queries).
CUresult enter_context_even_failed(ContextPtr* context);

// Marks the driver as initialised; cuInit.
void set_initialized();

// The stream that `handle` means on this thread: 0 (or its per-thread meaning, see
// PerThreadDefaultStream), 1 and 2, or a handle. nullptr: none of `context`'s streams.
StreamPtr find_stream(const ContextPtr& context, CUstream handle);

// Puts `operation` into the stream, or into the graph that it captures.
CUresult submit(const ContextPtr& context, const StreamPtr& stream, OperationPtr operation);

// submit(), then waits until it is complete, and reports the context's sticky error. Runs in the
// calling thread when the stream has nothing else to do. INVALID while a capture forbids it.
CUresult submit_and_wait(const ContextPtr& context, const StreamPtr& stream,
                         OperationPtr operation);

// What `handle` means to a launch or a query: a function, or a library's kernel in `context`, which
// may load the library there. INVALID_HANDLE.
class Function;
using FunctionPtr = std::shared_ptr<Function>;
CUresult find_function(const ContextPtr& context, CUfunction handle, FunctionPtr* function);

class Event;
CUresult record_event(const ContextPtr& context, const StreamPtr& stream,
                      const std::shared_ptr<Event>& event);
CUresult wait_for_event(const ContextPtr& context, const StreamPtr& stream,
                        const std::shared_ptr<Event>& event);
// Calls `function` in the stream's turn; no CUDA call is permitted inside.
OperationPtr make_host_operation(CUhostFn function, void* user_data);

}  // namespace gpurun::emulated

// Declares `context` and returns from the enclosing function what enter_context() refuses.
#define GPURUN_ENTER(context)                                                      \
  ::gpurun::emulated::ContextPtr context;                                          \
  if (const CUresult gpurun_entered = ::gpurun::emulated::enter_context(&context)) \
  return gpurun_entered

#define GPURUN_ENTER_DRIVER() \
  if (const CUresult gpurun_entered = ::gpurun::emulated::enter_driver()) return gpurun_entered

#define GPURUN_TRY(expression) \
  if (const CUresult gpurun_tried = (expression)) return gpurun_tried
