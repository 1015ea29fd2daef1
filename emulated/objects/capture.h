// Capture: a stream that records a graph instead of executing, and what other calls may do during
// that (Programming Guide, "Creating a Graph Using Stream Capture").
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "driver_abi/semantics/capture_rules.h"
#include "emulated/objects/event.h"
#include "emulated/objects/stream.h"

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
  // Whether the calling thread began the capture.
  bool is_of_this_thread() const;

  bool invalidated() const;
  // Makes the capture fail at its end with STREAM_CAPTURE_INVALIDATED.
  void invalidate();

  // Adds a node after the last nodes that `stream` captured. STREAM_CAPTURE_INVALIDATED.
  CUresult add(Stream& stream, OperationPtr operation);
  // The nodes that the next node of `stream` depends on.
  std::vector<std::shared_ptr<GraphNode>> frontier(const Stream& stream) const;
  // Adds `nodes` to the frontier of `stream` if `add` is set, else replaces it.
  void set_frontier(const Stream& stream, std::vector<std::shared_ptr<GraphNode>> nodes, bool add);
  // Adds `stream` to the capture, because it waited for an event of the capture.
  CUresult join(const StreamPtr& stream, const std::vector<std::shared_ptr<GraphNode>>& nodes);

  // The handles of frontier(), each with the data of its edge, which is zero: a capture makes full
  // dependencies alone. Both lists are valid until the next call for this stream.
  struct FrontierHandles {
    const CUgraphNode* nodes;
    const CUgraphEdgeData* edges;
    std::size_t count;
  };
  FrontierHandles frontier_handles(const Stream& stream);
  bool ended() const;
  // `blocking_only`: counts only streams that the legacy stream waits for.
  bool has_stream_of(const Context& context, bool blocking_only) const;

  // Removes all streams from the capture. INVALIDATED. UNJOINED when the origin does not wait for
  // work of a joined stream.
  CUresult end();

 private:
  struct Participant {
    StreamPtr stream;
    std::vector<std::shared_ptr<GraphNode>> frontier;
    std::vector<CUgraphNode> handles;    // See frontier_handles().
    std::vector<CUgraphEdgeData> edges;  // As above.
  };

  const std::uint64_t id_;
  const std::shared_ptr<Graph> graph_;
  const StreamPtr origin_;
  const CUstreamCaptureMode mode_;
  const void* const thread_;  // Identity of the thread's state. Never dereferenced.
  bool ended_ = false;
  mutable std::mutex mutex_;
  bool invalidated_ = false;
  std::map<const Stream*, Participant> participants_;
};

// Begins a capture on `stream`. Nodes follow `behind` in `graph`. ILLEGAL_STATE when the stream
// captures already, STREAM_CAPTURE_UNSUPPORTED for the legacy stream.
CUresult begin_capture(const StreamPtr& stream, std::shared_ptr<Graph> graph,
                       std::vector<std::shared_ptr<GraphNode>> behind, CUstreamCaptureMode mode);
// Ends the capture. ILLEGAL_STATE: the stream does not capture. STREAM_CAPTURE_UNMATCHED: it joined
// a capture that began on another stream. STREAM_CAPTURE_WRONG_THREAD. Also fails as
// Capture::end().
CUresult end_capture(const StreamPtr& stream, std::shared_ptr<Graph>* graph);

// Ends captures when a context or a stream is destroyed. Captures that began on the stream, or on a
// stream of the context, are dropped. Other captures in which a stream of the context takes part
// are invalidated.
void end_captures_of(const Context& context);
void end_captures_of(const Stream& stream);

// The number of active captures. Only capture.cc writes it.
inline constinit std::atomic<std::size_t> active_capture_count{0};

// The checks of calls against captures (driver_abi/semantics/capture_rules.h). They return
// CUDA_SUCCESS, or the code that the call must return. A refusal may invalidate the captures
// involved.
//
// Whether this thread may make calls of a potentially unsafe family.
CUresult check_modes(driver_abi::CaptureFamily family);
// Whether a call of `family` may use the stream.
CUresult check_stream_use(driver_abi::CaptureFamily family, Stream& stream);
// Whether the context may be waited for.
CUresult check_context_wait(const Context& context);
// Whether the event may be waited for or queried.
CUresult check_event_use(const Event& event);

// Every entry point calls this first. It checks modes, except for functions that do so themselves
// (CaptureRule::by_argument).
CUresult check_modes_of(const char* base);
inline CUresult refuse_while_capturing(const char* base) {
  return active_capture_count.load(std::memory_order_relaxed) == 0 ? CUDA_SUCCESS
                                                                   : check_modes_of(base);
}

}  // namespace gpurun::emulated
