// CudaProgram: small CUDA programs as text, and the order that CUDA requires of them. This is the
// reference of the order model. It is written from the manual's words alone, and shares nothing
// with the worker.
//
// A program is a list of its calls, in an order in which the threads of the host could have made
// them.
//   launch P     Work in the place P.
//   late P       The same, but its bytes reach the worker late.
//   copy P       A synchronous copy from the host, in a legacy stream. The client answers it early.
//   record P E   cuEventRecord of the event E (0 or 1).
//   wait P E     cuStreamWaitEvent for the event E.
//   sync P       cuStreamSynchronize. Its thread waits, the others go on.
//   early P      As sync, but answered early behind quiet work. Its thread goes on too.
//   await P E    cuEventSynchronize of E, answered early. The last record of E is in P.
//   free C       cuMemFree in the context C (A or B), answered early. Its thread goes on.
//   load C       A call on the context outside any stream (cuModuleGetFunction and the like).
//   end C        A call on the context that ends what work may need (cuMemUnmap). Its thread waits.
//
// Places: A0 is the legacy default stream of the context A. Ap and Aq are the per-thread default
// streams of two threads. Ab and Ac synchronize with the legacy stream. An and Am do not
// (CU_STREAM_NON_BLOCKING). The same places exist for B.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gpurun::model {

struct CudaStep {
  enum Kind {
    kLaunch,
    kLate,
    kCopy,
    kRecord,
    kWait,
    kSync,
    kEarly,
    kFree,
    kLoad,
    kEnd,
    kAwait
  } kind = kLaunch;
  char context = 'A';
  char stream = '0';  // '0', 'p', 'q', 'b', 'c', 'n', 'm'.
  int event = 0;

  bool of_stream() const { return kind != kFree && kind != kLoad && kind != kEnd; }
  bool of_event() const { return kind == kRecord || kind == kWait || kind == kAwait; }
  // Kinds of waits after which the thread goes on.
  bool early() const { return kind == kEarly || kind == kAwait; }
  // Whether the step is work of the device, or a point in its stream.
  bool on_device() const { return of_stream() && !waits(); }
  bool waits() const { return kind == kSync || early(); }
};
using CudaProgram = std::vector<CudaStep>;

std::string text_of(const CudaProgram& program);
// Ends the process when `text` is not a program.
CudaProgram program_from(const std::string& text);
// The last step before `index` that records the event of that step. nullptr: not found.
const CudaStep* record_before(const CudaProgram& program, std::size_t index);

// The required order: [i][j] says that the step i comes before the step j > i. For steps of the
// device, i is complete before j starts. For kSync and kFree as j, i is complete before the call
// returns. For kEnd as j, i is complete before the call is made. For kEarly, kAwait and kFree as i,
// what comes before i also comes before all steps after i. kLoad has no part in the order.
std::vector<std::vector<bool>> order_by_cuda(const CudaProgram& program);

// Whether the host may make the call `later` only after it has made `earlier` (kFree: after that
// has returned). `later` may use what `earlier` made or freed, and its thread may have seen
// `earlier` return.
bool must_be_issued_before(const CudaProgram& program, std::size_t later, std::size_t earlier);

// Whether the step `later` may wait until `earlier` has been handed to the driver. A free counts
// when it has returned. For steps in a stream or in another context it counts when all that it
// waits for has been handed over. This covers the order that CUDA needs of a driver that acts when
// it is called. It also covers the waits of, and for, calls outside any stream in their context
// (docs/architecture.md, order). Nothing else may wait.
bool may_wait(const CudaProgram& program, std::size_t later, std::size_t earlier);

}  // namespace gpurun::model
