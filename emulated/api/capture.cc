// Stream capture: begin, end, queries, and changes of the next dependencies.
#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/api/graph_nodes.h"
#include "emulated/objects/graph.h"

namespace gpurun::emulated {
namespace {

CUresult check_mode(CUstreamCaptureMode mode) {
  return static_cast<unsigned>(mode) > CU_STREAM_CAPTURE_MODE_RELAXED ? CUDA_ERROR_INVALID_VALUE
                                                                      : CUDA_SUCCESS;
}

CUresult begin(CUstream handle, GraphPtr graph, std::vector<GraphNodePtr> behind,
               CUstreamCaptureMode mode) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  GPURUN_TRY(check_mode(mode));
  return begin_capture(stream, std::move(graph), std::move(behind), mode);
}

// The stream and its capture, which may be null.
CUresult enter_capture(CUstream handle, StreamPtr* stream, std::shared_ptr<Capture>* capture) {
  GPURUN_ENTER(context);
  *stream = find_stream(context, handle);
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  GPURUN_TRY(check_stream_use(driver_abi::CaptureFamily::kStatus, **stream));
  *capture = (*stream)->capture();
  return CUDA_SUCCESS;
}

CUstreamCaptureStatus status_of(const std::shared_ptr<Capture>& capture) {
  if (capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return capture->invalidated() ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// A graph gets its handle when a call returns it, at the end of the capture at the latest.
CUgraph graph_handle(const GraphPtr& graph) {
  if (graph->handle() == 0) handles().add(graph);
  return graph->as<CUgraph>();
}

}  // namespace
}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin(stream, std::make_shared<Graph>(), {}, mode);
}

CUresult cuStreamBeginCapture(CUstream stream) {
  return api::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph_handle,
                                     const CUgraphNode* dependencies, const CUgraphEdgeData* edges,
                                     size_t count, CUstreamCaptureMode mode) {
  GPURUN_ENTER_DRIVER();
  const auto graph = handles().find<Graph>(graph_handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNodePtr> behind;
  GPURUN_TRY(check_full_edges(edges, count));
  GPURUN_TRY(find_nodes(*graph, dependencies, count, &behind));
  return begin(stream, graph, std::move(behind), mode);
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* out) {
  GPURUN_ENTER(context);
  const StreamPtr stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphPtr graph;
  const CUresult result = end_capture(stream, &graph);
  *out = result == CUDA_SUCCESS ? graph_handle(graph) : nullptr;
  return result;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  StreamPtr stream;
  std::shared_ptr<Capture> capture;
  GPURUN_TRY(enter_capture(handle, &stream, &capture));
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *status = status_of(capture);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges, size_t* count) {
  StreamPtr stream;
  std::shared_ptr<Capture> capture;
  GPURUN_TRY(enter_capture(handle, &stream, &capture));
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (edges != nullptr && dependencies == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *status = status_of(capture);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id != nullptr) *id = capture->id();
  if (graph != nullptr) *graph = graph_handle(capture->graph());
  const Capture::FrontierHandles frontier = capture->frontier_handles(*stream);
  if (dependencies != nullptr) *dependencies = frontier.nodes;
  if (edges != nullptr) *edges = frontier.edges;
  if (count != nullptr) *count = frontier.count;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   size_t* count) {
  return api::cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, nullptr, count);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return api::cuStreamGetCaptureInfo_v3(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* edges, size_t count,
                                              unsigned int flags) {
  StreamPtr stream;
  std::shared_ptr<Capture> capture;
  GPURUN_TRY(enter_capture(handle, &stream, &capture));
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->invalidated()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNodePtr> nodes;
  GPURUN_TRY(check_full_edges(edges, count));
  GPURUN_TRY(find_nodes(*capture->graph(), dependencies, count, &nodes));
  capture->set_frontier(*stream, std::move(nodes), flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES);
  return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* dependencies, size_t count,
                                           unsigned int flags) {
  return api::cuStreamUpdateCaptureDependencies_v2(stream, dependencies, nullptr, count, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  GPURUN_ENTER_DRIVER();
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GPURUN_TRY(check_mode(*mode));
  std::swap(*mode, thread_state().capture_mode);
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
