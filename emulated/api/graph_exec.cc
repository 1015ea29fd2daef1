// Executable graphs: instantiation, launch, update.
#include "emulated/objects/graph_exec.h"
#include "emulated/api.h"
#include "emulated/api/entry.h"

namespace gpurun::emulated {
namespace {

constexpr std::uint64_t kFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

CUresult instantiate(CUgraphExec* out, CUgraph handle, std::uint64_t flags) {
  GPURUN_ENTER(context);
  const auto graph = handles().find<Graph>(handle);
  if (graph == nullptr || graph->moved()) return CUDA_ERROR_INVALID_VALUE;
  if (out == nullptr || (flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  // Kernels that launch graphs do not exist here.
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  auto exec = GraphExec::instantiate(*graph, flags);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = handles().add(std::move(exec))->as<CUgraphExec>();
  return CUDA_SUCCESS;
}

// The stream of the upload, if the parameters ask for one.
CUresult check_upload(const CUDA_GRAPH_INSTANTIATE_PARAMS& parameters) {
  if ((parameters.flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == 0) return CUDA_SUCCESS;
  GPURUN_ENTER(context);
  const bool known = find_stream(context, parameters.hUploadStream) != nullptr;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult enter_exec(CUgraphExec handle, std::shared_ptr<GraphExec>* exec) {
  GPURUN_ENTER_DRIVER();
  *exec = handles().find<GraphExec>(handle);
  return *exec == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return instantiate(exec, graph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  GPURUN_ENTER_DRIVER();
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_upload(*parameters);
  if (result == CUDA_SUCCESS) result = instantiate(exec, graph, parameters->flags);
  parameters->hErrNode_out = nullptr;
  parameters->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  const auto failed = result == CUDA_SUCCESS ? nullptr : handles().find<Graph>(graph);
  const GraphNodePtr node = failed == nullptr ? nullptr : failed->in_cycle();
  if (node != nullptr) {
    parameters->result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    parameters->hErrNode_out = node->as<CUgraphNode>();
  }
  return result;
}

CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                               size_t log_bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_bytes != 0) *log = '\0';
  return instantiate(exec, graph, 0);
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  GPURUN_ENTER_DRIVER();
  return handles().remove<GraphExec>(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  std::shared_ptr<GraphExec> exec;
  GPURUN_TRY(enter_exec(handle, &exec));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Manual: UPLOAD is not returned.
  *flags = exec->flags() & ~cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
  return CUDA_SUCCESS;
}

// In a capture the executable's work is recorded as one node.
CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  GPURUN_ENTER(context);
  const auto exec = handles().find<GraphExec>(handle);
  const StreamPtr stream = find_stream(context, stream_handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool captured = stream->capture() != nullptr;
  OperationPtr launch = exec->launch(captured);
  // NVIDIA's driver (580) also waits at the launch of such a graph until it has written there.
  const bool waits = !captured && launch->writes_pageable();
  if (!waits) return submit(context, stream, std::move(launch));
  // A later call reports an error of the graph's work.
  const CUresult result = submit_and_wait(context, stream, std::move(launch));
  return result == context->sticky_error() ? CUDA_SUCCESS : result;
}

// Does nothing more, because a graph needs no upload here.
CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  GPURUN_ENTER(context);
  if (handles().find<GraphExec>(handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (find_stream(context, stream_handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle,
                              CUgraphExecUpdateResultInfo* info) {
  std::shared_ptr<GraphExec> exec;
  GPURUN_TRY(enter_exec(handle, &exec));
  const auto graph = handles().find<Graph>(graph_handle);
  if (graph == nullptr || graph->moved()) return CUDA_ERROR_INVALID_VALUE;
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphNodePtr failed;
  *info = CUgraphExecUpdateResultInfo{};
  info->result = exec->update(*graph, &failed);
  if (failed != nullptr) info->errorNode = failed->as<CUgraphNode>();
  return info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                      : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int enabled) {
  std::shared_ptr<GraphExec> exec;
  GPURUN_TRY(enter_exec(handle, &exec));
  return exec->set_enabled(reinterpret_cast<std::uintptr_t>(node), enabled != 0)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int* enabled) {
  std::shared_ptr<GraphExec> exec;
  GPURUN_TRY(enter_exec(handle, &exec));
  bool is_enabled = false;
  if (enabled == nullptr ||
      !exec->get_enabled(reinterpret_cast<std::uintptr_t>(node), &is_enabled)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *enabled = is_enabled;
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
