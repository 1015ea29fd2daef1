// The nodes that streams capture, and how streams join and leave a capture.
#include "server/emulated/objects/capture.h"

#include <algorithm>
#include <atomic>

#include "server/emulated/objects/graph.h"

namespace gpurun::emulated {
namespace {

std::uint64_t next_capture_id() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1);
}

}  // namespace

Capture::Capture(std::shared_ptr<Graph> graph, const StreamPtr& origin, CUstreamCaptureMode mode)
    : id_(next_capture_id()), graph_(std::move(graph)), origin_(origin), mode_(mode) {
  participants_[origin.get()] = {origin, {}};
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
  frontier.assign(1, std::move(node));
  return CUDA_SUCCESS;
}

std::vector<std::shared_ptr<GraphNode>> Capture::frontier(const Stream& stream) const {
  const std::lock_guard lock(mutex_);
  const auto found = participants_.find(&stream);
  return found == participants_.end() ? std::vector<std::shared_ptr<GraphNode>>()
                                      : found->second.frontier;
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
  if (invalidated()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (other == nullptr) {
    const std::lock_guard lock(mutex_);
    participants_[stream.get()] = {stream, {}};
    stream->set_capture(shared_from_this());
  }
  set_frontier(*stream, nodes, true);
  return CUDA_SUCCESS;
}

CUresult Capture::end() {
  const std::lock_guard lock(mutex_);
  for (auto& [stream, participant] : participants_) participant.stream->set_capture(nullptr);
  if (invalidated_) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  // Everything that the origin's last nodes do not depend on was never joined.
  std::vector<const GraphNode*> open, reached;
  for (const auto& node : participants_[origin_.get()].frontier) open.push_back(node.get());
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (std::find(reached.begin(), reached.end(), node) != reached.end()) continue;
    reached.push_back(node);
    for (const auto& before : node->dependencies) open.push_back(before.get());
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

// No entry point begins a capture yet, so there is nothing that these calls could disturb.
CUresult check_capture_rules() { return CUDA_SUCCESS; }
CUresult check_legacy_use(Context&, Stream&) { return CUDA_SUCCESS; }

}  // namespace gpurun::emulated
