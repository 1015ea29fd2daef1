// Entry checks: what every entry point checks first: the driver is initialised, there is a current
// context, and it has not failed. The codes are those that the manual lists for each function.
#pragma once

#include "driver_abi/cuda_abi.h"
#include "emulated/objects/capture.h"
#include "emulated/objects/context.h"
#include "emulated/objects/device.h"
#include "emulated/objects/handle_table.h"
#include "emulated/objects/thread_state.h"

namespace gpurun::emulated {

// CUDA_SUCCESS after cuInit. NOT_INITIALIZED before it and in the child of a fork. NOT_PERMITTED in
// a host function of a stream.
CUresult enter_driver();

// NOT_INITIALIZED in the child of a fork, else CUDA_SUCCESS. For the export tables, which the
// runtime also uses before cuInit.
CUresult check_not_forked();

// enter_driver(), then the current context. INVALID_CONTEXT when there is no current context,
// CONTEXT_IS_DESTROYED when it is destroyed, its sticky error when it has one.
CUresult enter_context(ContextPtr* context);

// As enter_context(), for calls that must work on a context that has failed (destruction, queries).
CUresult enter_context_even_failed(ContextPtr* context);

// Marks the driver as initialised. For cuInit.
void set_initialized();

// The stream that `handle` means on this thread. It may be 0, 1, 2 or a handle. 0 may mean the
// thread's own stream (PerThreadDefaultStream). nullptr: no such stream.
StreamPtr find_stream(const ContextPtr& context, CUstream handle);

// Enqueues `operation` on the stream, or adds it to the graph that the stream captures.
CUresult submit(const ContextPtr& context, const StreamPtr& stream, OperationPtr operation);

// submit(), then waits until the operation is complete. Returns the context's sticky error. Runs
// the operation on the calling thread when the stream has nothing else to do. INVALID while a
// capture forbids the wait.
CUresult submit_and_wait(const ContextPtr& context, const StreamPtr& stream,
                         OperationPtr operation);

// The function that `handle` means to a launch or a query. It is a function, or a library's kernel
// in `context`. The kernel may load the library there. INVALID_HANDLE.
class Function;
using FunctionPtr = std::shared_ptr<Function>;
CUresult find_function(const ContextPtr& context, CUfunction handle, FunctionPtr* function);

class Event;
CUresult record_event(const ContextPtr& context, const StreamPtr& stream,
                      const std::shared_ptr<Event>& event);
CUresult wait_for_event(const ContextPtr& context, const StreamPtr& stream,
                        const std::shared_ptr<Event>& event);
// Calls `function` in stream order. It may make no CUDA call.
OperationPtr make_host_operation(CUhostFn function, void* user_data);

}  // namespace gpurun::emulated

// Declares `context`. Returns from the enclosing function when enter_context() fails.
#define GPURUN_ENTER(context)                                                      \
  ::gpurun::emulated::ContextPtr context;                                          \
  if (const CUresult gpurun_entered = ::gpurun::emulated::enter_context(&context)) \
  return gpurun_entered

#define GPURUN_ENTER_DRIVER() \
  if (const CUresult gpurun_entered = ::gpurun::emulated::enter_driver()) return gpurun_entered

#define GPURUN_TRY(expression) \
  if (const CUresult gpurun_tried = (expression)) return gpurun_tried
