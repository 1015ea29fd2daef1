// MirrorProgram: small programs, as text, in which threads and kernels use the same host memory,
// and what each read must find. This is the reference of the mirror model. It knows what a
// local GPU promises, and nothing of twins, lines and exchanges.
//
// A program is a list of steps of two host threads, T (0 or 1). S is a stream, E an event, X a byte
// of the memory and V a value from 1 to 9.
//   store T XV          The thread writes V to X.
//   load T X            The thread reads X.
//   await T XV          The thread reads X until it is V.
//   launch T S USES     A kernel with these uses, one after the other: X reads, XV writes, and XV?
//                       reads until X is V.
//   copy T S USES       A copy of device memory in S, which the thread awaits.
//   record T S E        cuEventRecord.
//   wait T S E          cuStreamWaitEvent.
//   sync T S            cuStreamSynchronize.
//   context T           cuCtxSynchronize.
//   event T E           cuEventSynchronize.
//   query T S           cuStreamQuery until the stream is complete.
//   poll T E            cuEventQuery until the event is complete.
//   free T A            cuMemFreeHost of the allocation A.
//   allocate T A        cuMemAllocHost, which gets the place of the freed allocation A.
//   pause T             The thread goes on when the client knows that all work is complete. The
//                       program learns nothing.
//   after T U           The thread goes on when the thread U has done its earlier steps.
//
// Bytes: a and b are in one word, c in another word of their line, and d and e in two words of the
// next line. These are the allocation A. f and g are in one word of the allocation B.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace gpurun::model {

struct MirrorUse {
  enum Kind { kRead, kWrite, kAwait } kind = kRead;
  char byte = 'a';
  int value = 0;  // For reads: the only one that a local GPU allows.
};

struct MirrorStep {
  enum Kind {
    kStore,
    kLoad,
    kAwait,
    kLaunch,
    kCopy,
    kRecord,
    kWait,
    kSync,
    kContext,
    kEvent,
    kQuery,
    kPoll,
    kFree,
    kAllocate,
    kAfter,
    kPause
  } kind = kStore;
  int thread = 0;
  int stream = 0;  // For kAfter: the other thread.
  int event = 0;
  char allocation = 'A';
  std::vector<MirrorUse> uses;

  bool on_device() const { return kind >= kLaunch && kind <= kWait; }
  bool of_stream() const { return on_device() || kind == kSync || kind == kQuery; }
  bool of_event() const {
    return kind == kRecord || kind == kWait || kind == kEvent || kind == kPoll;
  }
};
using MirrorProgram = std::vector<MirrorStep>;

inline constexpr const char* kMirrorBytesOf[] = {"abcde", "fg"};  // By allocation.

std::string text_of(const MirrorProgram& program);
// Ends the process when `text` is not a program.
MirrorProgram mirror_program_from(const std::string& text);

// Fills in what each read must find. The program may have no race, so that there is only one value.
// Returns what is wrong with the program, or nothing.
std::optional<std::string> find_values(MirrorProgram* program);

}  // namespace gpurun::model
