// Captures: which streams capture, in which mode, and what a thread may therefore not call. The
// worker always captures relaxed (docs/architecture.md, section 4): what the program asked for is
// kept here.
//
// Rules: driver_abi/capture_rules.h. Streams join a capture by waiting for an event that was
// recorded in it, so events are followed too. Any thread.
#pragma once

#include <optional>
#include <vector>

#include "client/interpose/capture_wall.h"
#include "client/interpose/forward.h"

namespace gpurun::client::interpose {

// The capture that a stream is in, as it was when asked.
struct Capturing {
  bool origin = false;  // It was begun on this stream.
  bool invalidated = false;
  CaptureMode mode = CaptureMode::kGlobal;
  std::uint32_t lane = 0;  // Of the thread that began it.
};
std::optional<Capturing> capture_of(const Here& here, Handle stream);
inline bool is_captured(const Here& here, Handle stream) {
  return capture_of(here, stream).has_value();
}

// The handle of the graph that the capture makes, once the program has asked for it; else 0.
Handle graph_of_capture(const Here& here, Handle stream);
void capture_graph_told(const Here& here, Handle stream, Handle graph);
// What the capture's next node stands behind, as told last: kept until it is told again or the
// capture ends (manual: "the pointer is valid until the next API call which operates on the stream
// or until the capture is terminated"). False when nothing is captured there any more.
struct CaptureFrontier {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;
};
bool keep_frontier(const Here& here, Handle stream, CaptureFrontier&& told,
                   const CUgraphNode** nodes, const CUgraphEdgeData** edges);

void capture_begun(const Here& here, Handle stream, CaptureMode mode);
void capture_invalidated(const Here& here, Handle stream);
// All of its streams leave it.
void capture_ended(const Here& here, Handle stream);

// A stream or a context ends: captures that began there are forgotten. Others that a stream of the
// context takes part in are invalidated; a lone stream leaves them what it captured.
void end_captures_of_stream(const Here& here, Handle stream);
void end_captures_of_context(Handle context);

// For an unsafe call whose argument makes it so (CaptureRule::by_argument).
int refuse_unsafe_call(const Here& here);
// What the call that this thread is in may do with a stream: 0, or what it returns instead.
int refuse_stream(const Here& here, Handle stream);
// Likewise for a call that asks or awaits an event.
int refuse_event(const Here& here, Handle event);
// Likewise for one that waits for a whole context.
int refuse_context_wait(Handle context);
// Whether a stream of the context captures: then nobody may wait for the context.
bool context_captures(Handle context);

// `external`: CU_EVENT_RECORD_EXTERNAL or CU_EVENT_WAIT_EXTERNAL, which make nodes of a graph.
void note_event_record(const Here& here, Handle event, Handle stream, bool external);
// 0, and the stream has joined the capture in which the event was recorded, if any. Else: MERGE of
// two captures, ISOLATION of work outside, INVALIDATED, INVALID_VALUE for a capture that has ended.
int note_event_wait(const Here& here, Handle event, Handle stream, bool external);
void note_event_end(Handle event);

}  // namespace gpurun::client::interpose
