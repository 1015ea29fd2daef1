// Capture: a stream that records a graph instead of executing, and what other calls may do
// meanwhile (Programming Guide, "Creating a Graph Using Stream Capture").
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "driver_abi/capture_rules.h"
#include "server/emulated/objects/event.h"
#include "server/emulated/objects/stream.h"

namespace gpurun::emulated {

class Graph;
class GraphNode;

// Any thread.
class Capture final : public std::enable_shared_from_this<Capture> {
 public:
  Capture(std::shared_ptr<Graph> graph, const StreamPtr& origin, CUstreamCaptureMode mode);

  std::uint64_t id() const { return id_; }
  CUstreamCaptureMode mode() const { return mode_; }
  const std::shared_ptr<Graph>& graph() const { return graph_; }
  const Stream* origin() const { return origin_.get(); }
  // Whether the calling thread began it.
  bool is_of_this_thread() const;

  bool invalidated() const;
  // The capture fails at its end with STREAM_CAPTURE_INVALIDATED.
  void invalidate();

  // Adds a node behind what `stream` captured last. STREAM_CAPTURE_INVALIDATED.
  CUresult add(Stream& stream, OperationPtr operation);
  // What the next node of `stream` depends on.
  std::vector<std::shared_ptr<GraphNode>> frontier(const Stream& stream) const;
  // `add`: also; else: instead.
  void set_frontier(const Stream& stream, std::vector<std::shared_ptr<GraphNode>> nodes, bool add);
  // Lets `stream` take part (it waited for an event of this capture).
  CUresult join(const StreamPtr& stream, const std::vector<std::shared_ptr<GraphNode>>& nodes);

  // The handles of frontier(), valid until the next call for this stream.
  const CUgraphNode* frontier_handles(const Stream& stream, std::size_t* count);
  bool ended() const;
  // `blocking_only`: streams that the legacy stream waits for.
  bool has_stream_of(const Context& context, bool blocking_only) const;

  // Takes all streams out. INVALIDATED, or UNJOINED when work of a joined stream is not waited for
  // by the origin.
  CUresult end();

 private:
  struct Participant {
    StreamPtr stream;
    std::vector<std::shared_ptr<GraphNode>> frontier;
    std::vector<CUgraphNode> handles;  // See frontier_handles().
  };

  const std::uint64_t id_;
  const std::shared_ptr<Graph> graph_;
  const StreamPtr origin_;
  const CUstreamCaptureMode mode_;
  const void* const thread_;  // Identity of the thread's state; never followed.
  bool ended_ = false;
  mutable std::mutex mutex_;
  bool invalidated_ = false;
  std::map<const Stream*, Participant> participants_;
};

// Lets a capture begin on `stream`: nodes go behind `behind` in `graph`. ILLEGAL_STATE when the
// stream captures already, STREAM_CAPTURE_UNSUPPORTED for the legacy stream.
CUresult begin_capture(const StreamPtr& stream, std::shared_ptr<Graph> graph,
                       std::vector<std::shared_ptr<GraphNode>> behind, CUstreamCaptureMode mode);
// Ends it. ILLEGAL_STATE: it does not capture; STREAM_CAPTURE_UNMATCHED: it joined another's
// capture; STREAM_CAPTURE_WRONG_THREAD; and as Capture::end().
CUresult end_capture(const StreamPtr& stream, std::shared_ptr<Graph>* graph);

// What captures ends with it: captures that began on a stream of the context, or on the stream, are
// forgotten; others that a stream of the context takes part in are invalidated.
void end_captures_of(const Context& context);
void end_captures_of(const Stream& stream);

// How many go on. Written by capture.cc.
inline constinit std::atomic<std::size_t> active_capture_count{0};

// What captures let calls answer (driver_abi/capture_rules.h): CUDA_SUCCESS, or what a call returns
// instead, and the captures in question are invalidated.
//
// Whether this thread may make calls of a family that is potentially unsafe.
CUresult check_modes(driver_abi::CaptureFamily family);
// Whether a call of `family` may use the stream.
CUresult check_stream_use(driver_abi::CaptureFamily family, Stream& stream);
// Whether the context may be waited for.
CUresult check_context_wait(const Context& context);
// Whether the event may be waited for or asked.
CUresult check_event_use(const Event& event);

// Every entry point, before all else: modes, but for functions that ask themselves
// (CaptureRule::by_argument).
CUresult check_modes_of(const char* base);
inline CUresult refuse_while_capturing(const char* base) {
  return active_capture_count.load(std::memory_order_relaxed) == 0 ? CUDA_SUCCESS
                                                                   : check_modes_of(base);
}

}  // namespace gpurun::emulated
