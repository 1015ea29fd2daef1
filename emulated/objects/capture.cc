// The nodes that streams capture, and how streams join and leave a capture.
#include "emulated/objects/capture.h"

#include <algorithm>
#include <atomic>

#include "emulated/objects/context.h"
#include "emulated/objects/graph.h"
#include "emulated/objects/thread_state.h"

namespace gpurun::emulated {
namespace {

using driver_abi::CaptureFamily;

std::uint64_t next_capture_id() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1);
}

struct Captures {
  std::mutex mutex;
  std::vector<std::shared_ptr<Capture>> active;
};

Captures& captures() {
  static auto* all = new Captures;
  return *all;
}

// No lock is taken in the usual case, which is no capture.
std::vector<std::shared_ptr<Capture>> active_captures() {
  if (active_capture_count.load(std::memory_order_relaxed) == 0) return {};
  Captures& all = captures();
  const std::lock_guard lock(all.mutex);
  return all.active;
}

CUresult refuse(const std::shared_ptr<Capture>& capture,
                const driver_abi::CaptureRefusal& refusal) {
  if (refusal.invalidates) capture->invalidate();
  return static_cast<CUresult>(refusal.code);
}

CUresult refuse_context(const Context& context, bool blocking_only,
                        const driver_abi::CaptureRefusal& refusal) {
  CUresult result = CUDA_SUCCESS;
  if (refusal.code == 0) return result;
  for (const auto& capture : active_captures()) {
    if (capture->has_stream_of(context, blocking_only)) result = refuse(capture, refusal);
  }
  return result;
}

}  // namespace

Capture::Capture(std::shared_ptr<Graph> graph, const StreamPtr& origin, CUstreamCaptureMode mode)
    : id_(next_capture_id()),
      graph_(std::move(graph)),
      origin_(origin),
      mode_(mode),
      thread_(&thread_state()) {
  participants_[origin.get()] = {origin, {}, {}, {}};
}

bool Capture::is_of_this_thread() const { return thread_ == &thread_state(); }

bool Capture::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

bool Capture::invalidated() const {
  const std::lock_guard lock(mutex_);
  return invalidated_;
}

void Capture::invalidate() {
  const std::lock_guard lock(mutex_);
  invalidated_ = true;
}

CUresult Capture::add(Stream& stream, OperationPtr operation) {
  const std::lock_guard lock(mutex_);
  if (invalidated_) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  auto& frontier = participants_[&stream].frontier;
  auto node = graph_->add(std::move(operation), frontier);
  node->set_context(stream.context().handle());
  frontier.assign(1, std::move(node));
  return CUDA_SUCCESS;
}

std::vector<std::shared_ptr<GraphNode>> Capture::frontier(const Stream& stream) const {
  const std::lock_guard lock(mutex_);
  const auto found = participants_.find(&stream);
  return found == participants_.end() ? std::vector<std::shared_ptr<GraphNode>>()
                                      : found->second.frontier;
}

Capture::FrontierHandles Capture::frontier_handles(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  Participant& participant = participants_[&stream];
  participant.handles.clear();
  for (const auto& node : participant.frontier) {
    participant.handles.push_back(node->as<CUgraphNode>());
  }
  participant.edges.assign(participant.handles.size(), CUgraphEdgeData{});
  return {participant.handles.data(), participant.edges.data(), participant.handles.size()};
}

void Capture::set_frontier(const Stream& stream, std::vector<std::shared_ptr<GraphNode>> nodes,
                           bool add) {
  const std::lock_guard lock(mutex_);
  auto& frontier = participants_[&stream].frontier;
  if (!add) frontier.clear();
  for (auto& node : nodes) {
    if (std::find(frontier.begin(), frontier.end(), node) == frontier.end()) {
      frontier.push_back(std::move(node));
    }
  }
}

CUresult Capture::join(const StreamPtr& stream,
                       const std::vector<std::shared_ptr<GraphNode>>& nodes) {
  const auto other = stream->capture();
  if (other != nullptr && other.get() != this) {
    other->invalidate();
    invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (ended()) return CUDA_ERROR_INVALID_VALUE;
  if (invalidated()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (other == nullptr) {
    const std::lock_guard lock(mutex_);
    participants_[stream.get()] = {stream, {}, {}, {}};
    stream->set_capture(shared_from_this());
  }
  set_frontier(*stream, nodes, true);
  return CUDA_SUCCESS;
}

bool Capture::has_stream_of(const Context& context, bool blocking_only) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [stream, participant] : participants_) {
    if (blocking_only && !stream->is_blocking()) continue;
    if (&stream->context() == &context) return true;
  }
  return false;
}

CUresult Capture::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  for (auto& [stream, participant] : participants_) participant.stream->set_capture(nullptr);
  if (invalidated_) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  // Work that the origin's last nodes do not depend on was never joined.
  std::vector<const GraphNode*> open, reached;
  for (const auto& node : participants_[origin_.get()].frontier) open.push_back(node.get());
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (std::find(reached.begin(), reached.end(), node) != reached.end()) continue;
    reached.push_back(node);
    for (const auto& before : graph_->dependencies(*node)) open.push_back(before.get());
  }
  for (const auto& [stream, participant] : participants_) {
    for (const auto& node : participant.frontier) {
      if (std::find(reached.begin(), reached.end(), node.get()) == reached.end()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
      }
    }
  }
  return CUDA_SUCCESS;
}

CUresult begin_capture(const StreamPtr& stream, std::shared_ptr<Graph> graph,
                       std::vector<std::shared_ptr<GraphNode>> behind, CUstreamCaptureMode mode) {
  if (stream.get() == stream->context().legacy_stream().get()) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (stream->capture() != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  const auto capture = std::make_shared<Capture>(std::move(graph), stream, mode);
  capture->set_frontier(*stream, std::move(behind), false);
  Captures& all = captures();
  const std::lock_guard lock(all.mutex);
  all.active.push_back(capture);
  active_capture_count.fetch_add(1, std::memory_order_release);
  stream->set_capture(capture);
  return CUDA_SUCCESS;
}

CUresult end_capture(const StreamPtr& stream, std::shared_ptr<Graph>* graph) {
  const auto capture = stream->capture();
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin() != stream.get()) {
    capture->invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture->mode() != CU_STREAM_CAPTURE_MODE_RELAXED && !capture->is_of_this_thread()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  {
    Captures& all = captures();
    const std::lock_guard lock(all.mutex);
    if (std::erase(all.active, capture) != 0) {
      active_capture_count.fetch_sub(1, std::memory_order_release);
    }
  }
  const CUresult result = capture->end();
  if (result == CUDA_SUCCESS) *graph = capture->graph();
  return result;
}

namespace {

void forget_capture(const std::shared_ptr<Capture>& capture) {
  Captures& all = captures();
  {
    const std::lock_guard lock(all.mutex);
    if (std::erase(all.active, capture) == 0) return;  // Another thread ends it.
    active_capture_count.fetch_sub(1, std::memory_order_release);
  }
  (void)capture->end();
}

}  // namespace

void end_captures_of(const Context& context) {
  for (const auto& capture : active_captures()) {
    if (&capture->origin()->context() == &context) {
      forget_capture(capture);
    } else if (capture->has_stream_of(context, false)) {
      capture->invalidate();
    }
  }
}

// A stream that has joined keeps its part in the capture. What it captured counts at the end,
// joined again or not. NVIDIA's sample graphMemoryNodes destroys such a stream before the capture
// ends.
void end_captures_of(const Stream& stream) {
  for (const auto& capture : active_captures()) {
    if (capture->origin() == &stream) forget_capture(capture);
  }
}

CUresult check_modes(driver_abi::CaptureFamily family) {
  if (!driver_abi::capture_rule(family).unsafe) return CUDA_SUCCESS;
  const CUstreamCaptureMode own = thread_state().capture_mode;
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : active_captures()) {
    if (driver_abi::mode_prohibits(own, capture->mode(), capture->is_of_this_thread())) {
      result = refuse(capture, driver_abi::kProhibited);
    }
  }
  return result;
}

CUresult check_modes_of(const char* base) {
  const driver_abi::CaptureFamily family = driver_abi::capture_family(base);
  return driver_abi::capture_rule(family).by_argument ? CUDA_SUCCESS : check_modes(family);
}

CUresult check_stream_use(driver_abi::CaptureFamily family, Stream& stream) {
  const driver_abi::CaptureRule& rule = driver_abi::capture_rule(family);
  if (const auto capture = stream.capture()) {
    const bool told = capture->invalidated() && rule.invalidated.code != 0;
    return refuse(capture, told ? rule.invalidated : rule.capturing);
  }
  // Each launch calls this. A non-blocking stream is not the legacy stream, and the lookup of that
  // takes a lock.
  const bool legacy = stream.is_blocking() && &stream == stream.context().legacy_stream().get();
  return legacy ? refuse_context(stream.context(), true, rule.legacy) : CUDA_SUCCESS;
}

CUresult check_context_wait(const Context& context) {
  return refuse_context(context, false, driver_abi::capture_rule(CaptureFamily::kContext).context);
}

CUresult check_event_use(const Event& event) {
  const Event::CapturedMark mark = event.captured();
  if (mark.capture == nullptr) return check_modes(CaptureFamily::kEvent);
  return refuse(mark.capture, driver_abi::capture_rule(CaptureFamily::kEvent).event);
}

}  // namespace gpurun::emulated
