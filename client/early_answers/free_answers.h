// Free answers: what a call that frees memory does about the earlier work of the memory's context.
// The driver completes that work before such a call returns (docs/adr/0038).
// client/interpose/memory/implicit_wait.h carries them out.
#pragma once

#include <cstdint>

namespace gpurun::client {

// What is known at the call.
struct FreeFacts {
  // EarlyAnswers::may_answer_early(), and earlier copies have read their sources. The program may
  // write to these sources when the call returns.
  bool early = false;
  bool captures = false;            // A stream of the context captures.
  bool complete = false;            // The context's work is known to be complete.
  bool worker_keeps_order = false;  // Feature::kFreesInOrder.
};

enum class FreeAnswer : std::uint8_t {
  kNothing,       // Sends nothing.
  kPost,          // Posts a record behind the context's work. All later calls follow the record.
  kAwait,         // Sends that record and waits for it.
  kAwaitContext,  // Waits for the context's work.
};

constexpr FreeAnswer answer_free(const FreeFacts& facts) noexcept {
  // CUDA forbids a wait for a context that captures. The record waits only for its earlier work.
  if (facts.worker_keeps_order && (facts.early || facts.captures)) {
    if (facts.complete) return FreeAnswer::kNothing;
    return facts.early ? FreeAnswer::kPost : FreeAnswer::kAwait;
  }
  // An older worker has no such record.
  if (facts.captures || (facts.early && facts.complete)) return FreeAnswer::kNothing;
  return FreeAnswer::kAwaitContext;
}

}  // namespace gpurun::client
