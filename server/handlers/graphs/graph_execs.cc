// GraphExecs: shares of operations, from a launch to the completion behind it.
#include "server/handlers/graphs/graph_execs.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "server/worker/execution/completions.h"
#include "server/worker/execution/executor.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {

void GraphExecs::set(CUgraphExec exec, CUgraphNode node, OperationPtr operation) {
  Node former{std::move(operation), nullptr, 0};
  SharePtr share;
  const std::lock_guard lock(mutex_);
  Exec& own = execs_[exec];
  std::swap(own.nodes[node], former);
  own.share.swap(share);
}

void GraphExecs::set_half(CUgraphExec exec, CUgraphNode node, OperationPtr operation, int result) {
  SharePtr share;
  const std::lock_guard lock(mutex_);
  Exec& of = execs_[exec];
  Node& own = of.nodes[node];
  own.half.swap(operation);
  own.failure = result;
  of.share.swap(share);
}

std::shared_ptr<GraphHosts::Shadow> GraphExecs::shadow_of(CUgraphExec exec, CUgraphNode node,
                                                          std::size_t byte_count) const {
  const std::lock_guard lock(mutex_);
  const auto own = execs_.find(exec);
  if (own == execs_.end()) return nullptr;
  const auto found = own->second.nodes.find(node);
  if (found == own->second.nodes.end() || found->second.operation == nullptr) return nullptr;
  const auto& shadow = found->second.operation->shadow;
  return shadow != nullptr && shadow->size() == byte_count ? shadow : nullptr;
}

// Without work of its own `*share` stays nullptr.
int GraphExecs::share_of(CUgraphExec exec, SharePtr* share) {
  const std::lock_guard lock(mutex_);
  const auto own = execs_.find(exec);
  if (own == execs_.end() || own->second.nodes.empty()) return 0;
  SharePtr& kept = own->second.share;
  if (kept == nullptr) {
    auto made = std::make_shared<Share>();
    for (const auto& [handle, node] : own->second.nodes) {
      if (node.failure != 0) return node.failure;
      made->push_back(node.operation);
    }
    kept = std::move(made);
  }
  *share = kept;
  return 0;
}

// The share becomes part of the captured graph for as long as that may be launched.
int GraphExecs::give_to_capture(CUstream stream, const Share& share) const {
  CUgraph graph = nullptr;
  CUgraphNode last = nullptr;
  int result = look_at_capture(driver_, stream, &graph, &last);
  for (const OperationPtr& operation : share) {
    CUuserObject object = nullptr;
    if (result == 0) result = GraphHosts::give(driver_, graph, operation, &object);
  }
  return result;
}

CUresult GraphExecs::launch(Call& call, CUgraphExec exec, CUstream stream) {
  SharePtr share;
  if (const int failure = share_of(exec, &share); failure != 0) {
    spdlog::warn("an executable graph is not launched: a copy of it could only be set in part");
    return static_cast<CUresult>(failure);
  }
  const bool captures = share != nullptr && is_capturing(call.driver(), stream);
  if (captures) {
    const int given = give_to_capture(stream, *share);
    if (given != 0) return static_cast<CUresult>(given);
  }
  const CUresult result = GPURUN_DRIVER(driver_, cuGraphLaunch, exec, stream);
  if (result != CUDA_SUCCESS || share == nullptr || captures) return result;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++last_launch_;
    launches_.emplace(number, std::move(share));
  }
  // After a failure the driver may still run the launch, so its share stays.
  (void)call.executor().completions().after(call.driver_context(), stream, [this, number](int end) {
    if (end == 0) over(number);
  });
  return result;
}

CUresult GraphExecs::destroy(CUgraphExec exec) {
  // Taken first, because the driver may reuse the value at once.
  Exec own = take(exec);
  const CUresult result = GPURUN_DRIVER(driver_, cuGraphExecDestroy, exec);
  if (result == CUDA_SUCCESS || own.nodes.empty()) return result;
  const std::lock_guard lock(mutex_);
  execs_.emplace(exec, std::move(own));
  return result;
}

void GraphExecs::forget(CUgraphExec exec) { (void)take(exec); }

GraphExecs::Exec GraphExecs::take(CUgraphExec exec) {
  const std::lock_guard lock(mutex_);
  const auto found = execs_.find(exec);
  if (found == execs_.end()) return {};
  Exec own = std::move(found->second);
  execs_.erase(found);
  return own;
}

void GraphExecs::over(std::uint64_t launch) {
  SharePtr share;
  const std::lock_guard lock(mutex_);
  const auto found = launches_.find(launch);
  if (found == launches_.end()) return;
  share.swap(found->second);
  launches_.erase(found);
}

int look_at_capture(const CudaDriver& driver, CUstream stream, CUgraph* graph, CUgraphNode* last) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  int result = GPURUN_DRIVER(driver, cuStreamGetCaptureInfo_v3, stream, &status, nullptr, graph,
                             &nodes, &edges, &count);
  if (result == CUDA_ERROR_NOT_FOUND) {
    result = GPURUN_DRIVER(driver, cuStreamGetCaptureInfo_v2, stream, &status, nullptr, graph,
                           &nodes, &count);
  }
  if (result != 0) return result;
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *last = count == 1 && nodes != nullptr ? *nodes : nullptr;
  return 0;
}

}  // namespace gpurun::server
