// Small CUDA programs as text, and what CUDA orders in them: the reference of the order model,
// written from the manual's words alone. It shares nothing with the worker.
//
// A program is the list of its calls in an order that the host's threads could have made them in.
//   launch P     work in the place P
//   late P       the same, but its bytes reach the worker late
//   copy P       a synchronous copy from the host, in a legacy stream; the client answers it early
//   record P E   cuEventRecord of the event E (0 or 1)       wait P E   cuStreamWaitEvent
//   sync P       cuStreamSynchronize: its thread waits, the others go on
//   early P      the same, answered early: behind quiet work; its thread goes on too
//   await P E    cuEventSynchronize of E, whose last record is in P; answered early
//   free C       cuMemFree in the context C (A or B): answered early, its thread goes on
//   load C       a call on the context that is none of a stream (cuModuleGetFunction and the like)
//   end C        likewise, one that ends what work may need (cuMemUnmap): its thread waits
// Places: A0 is the legacy default stream of the context A, Ap and Aq the per-thread default
// streams of two threads, Ab and Ac streams that synchronise with the legacy stream, An and Am such
// that do not (CU_STREAM_NON_BLOCKING); the same of B.
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
  // Of those that wait: its thread goes on.
  bool early() const { return kind == kEarly || kind == kAwait; }
  // Something that the device does, or a point in its stream.
  bool on_device() const { return of_stream() && !waits(); }
  bool waits() const { return kind == kSync || early(); }
};
using CudaProgram = std::vector<CudaStep>;

std::string text_of(const CudaProgram& program);
// Ends the program (of the host) when it is no such text.
CudaProgram program_from(const std::string& text);
// The last step before `index` that records the event of that step. nullptr: there is none.
const CudaStep* record_before(const CudaProgram& program, std::size_t index);

// What must have happened before what: [i][j] says that the step i comes before the step j > i.
// For steps of the device: i is complete before j starts. For kSync and kFree as j: i is complete
// before the call is; for kEnd: before it is made. kEarly, kAwait, kFree: what comes before it
// comes before all that does after. kLoad has no part in it.
std::vector<std::vector<bool>> order_by_cuda(const CudaProgram& program);

// Whether the host's call `later` may only be made once `earlier` has been (kFree: has returned):
// it may use what that one made or gave back, and its thread may have seen it return.
bool must_be_issued_before(const CudaProgram& program, std::size_t later, std::size_t earlier);

// Whether the step `later` may be kept waiting until `earlier` has been handed to the driver
// (kFree: has returned; a stream's or another context's step waits until what the free waits for
// has been). That is what CUDA's order needs of a driver that acts when it is called, and, which is
// more, what calls that are no stream's wait for and are waited for in their context
// (docs/architecture.md, order). Nothing else may wait.
bool may_wait(const CudaProgram& program, std::size_t later, std::size_t earlier);

}  // namespace gpurun::model
