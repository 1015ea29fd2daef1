// Captures: which streams capture, in which mode, and what a thread must not call meanwhile. The
// worker always captures in relaxed mode (docs/architecture.md, section 4), so the client keeps the
// mode that the program asked for.
//
// Rules: driver_abi/semantics/capture_rules.h. A stream joins a capture by waiting for an event
// that was recorded in it, so this file follows events too. Any thread.
#pragma once

#include <optional>
#include <vector>

#include "client/interpose/call/forward.h"
#include "client/interpose/capture/capture_count.h"

namespace gpurun::client::interpose {

// The state of the capture that a stream is in, at the time of the question.
struct Capturing {
  bool origin = false;  // It was begun on this stream.
  bool invalidated = false;
  CaptureMode mode = CaptureMode::kGlobal;
  std::uint32_t lane = 0;  // Of the thread that began it.
};
std::optional<Capturing> capture_of(const EntryContext& here, Handle stream);
inline bool is_captured(const EntryContext& here, Handle stream) {
  return capture_of(here, stream).has_value();
}

// The handle of the graph that the capture builds. 0 until the program has asked for it.
Handle graph_of_capture(const EntryContext& here, Handle stream);
void capture_graph_told(const EntryContext& here, Handle stream, Handle graph);
// The nodes that the capture's next node depends on, as the worker last returned them. They stay
// valid until the next keep_frontier() or the end of the capture (manual: "the pointer is valid
// until the next API call which operates on the stream or until the capture is terminated").
// keep_frontier() returns false when the stream no longer captures.
struct CaptureFrontier {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;
};
bool keep_frontier(const EntryContext& here, Handle stream, CaptureFrontier&& told,
                   const CUgraphNode** nodes, const CUgraphEdgeData** edges);

void capture_begun(const EntryContext& here, Handle stream, CaptureMode mode);
void capture_invalidated(const EntryContext& here, Handle stream);
// All of its streams leave the capture.
void capture_ended(const EntryContext& here, Handle stream);

// A stream or a context ends. Captures that began there are forgotten. The end of a context also
// invalidates other captures that its streams joined. The end of a single stream leaves such a
// capture the nodes that it captured.
void end_captures_of_stream(const EntryContext& here, Handle stream);
void end_captures_of_context(Handle context);

// For a call that is unsafe because of an argument (CaptureRule::by_argument).
int refuse_unsafe_call(const EntryContext& here);
// Decides what the current call of this thread may do with `stream`. Returns 0, or the call's
// result.
int refuse_stream(const EntryContext& here, Handle stream);
// As refuse_stream(), for a call that queries an event or waits for it.
int refuse_event(const EntryContext& here, Handle event);
// As refuse_stream(), for a call that waits for a whole context.
int refuse_context_wait(Handle context);
// Whether a stream of the context captures. If so, no thread may wait for the context.
bool context_captures(Handle context);

// `external`: CU_EVENT_RECORD_EXTERNAL or CU_EVENT_WAIT_EXTERNAL, which make nodes of a graph.
void note_event_record(const EntryContext& here, Handle event, Handle stream, bool external);
// Returns 0 after the stream has joined the capture in which the event was recorded, if any.
// Otherwise returns MERGE for two captures, ISOLATION for work outside, INVALIDATED, or
// INVALID_VALUE for a capture that has ended.
int note_event_wait(const EntryContext& here, Handle event, Handle stream, bool external);
void note_event_end(Handle event);

}  // namespace gpurun::client::interpose
