// Stream capture: begins, ends, and queries captures.
#include "client/interpose/capture/capture.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "client/interpose/capture/graph_nodes.h"
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "client/interpose/memory/device_windows.h"
#include "protocol/calls/captures.h"

namespace gpurun::client::interpose {
namespace {

int enter_stream(EntryContext& here, CUstream given, Handle* stream) {
  if (const int result = here.enter_context(); result != 0) return result;
  return resolve_stream(here, given, stream);
}

// Checks whether the stream may begin a capture. Returns 0, or the call's result.
int enter_begin(EntryContext& here, CUstream given, CUstreamCaptureMode mode, Handle* stream) {
  if (const int result = enter_stream(here, given, stream); result != 0) return result;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The legacy stream cannot be captured.
  if (*stream < protocol::kStreamPerThread) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return is_captured(here, *stream) ? int{CUDA_ERROR_ILLEGAL_STATE} : settle_frees(here);
}

struct Status {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
};

int ask(const EntryContext& here, Handle stream, Status* out) {
  if (!capturing_somewhere()) return 0;
  const int result = call_row(here, opcode::cuStreamGetCaptureInfo, here.stream_site(stream), {},
                              as<CUstream>(stream), &out->status, &out->id);
  if (result != 0) return result;
  const auto capture = capture_of(here, stream);
  if (capture.has_value() && capture->invalidated) {
    out->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  }
  return 0;
}

// The optional answers that a program may request.
struct Wanted {
  bool graph = false;
  bool nodes = false;
};
struct Told {
  protocol::CaptureAnswer answer;
  CaptureFrontier frontier;
};

bool read_answer(ByteView reply, std::uint32_t room, Told* told) {
  if (reply.size() < sizeof told->answer) return false;
  std::memcpy(&told->answer, reply.data(), sizeof told->answer);
  const std::size_t count = told->answer.count <= room ? told->answer.count : 0;
  const std::size_t list_bytes = count * sizeof(Handle);
  if (reply.size() != sizeof told->answer + list_bytes + count * protocol::kEdgeBytes) return false;
  CaptureFrontier& frontier = told->frontier;
  frontier.nodes.resize(count);
  frontier.edges.resize(count);
  if (count == 0) return true;
  const std::byte* const list = reply.data() + sizeof told->answer;
  std::memcpy(frontier.nodes.data(), list, list_bytes);
  std::memcpy(frontier.edges.data(), list + list_bytes, count * protocol::kEdgeBytes);
  return true;
}

// Asks with room for `room` nodes.
int ask_with(const EntryContext& here, Handle stream, Wanted wanted, std::uint32_t room,
             Told* told) {
  HandleTable& handles = here.handles();
  const Handle known = wanted.graph ? graph_of_capture(here, stream) : 0;
  protocol::CaptureQuestion question;
  if (wanted.graph && known == 0) {
    question.graph = handles.mint(HandleKind::kGraph, 0, nullptr);
    if (question.graph == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::vector<Handle> spares;
  while (spares.size() < room) {
    const Handle node = handles.mint(HandleKind::kGraphNode, 0, nullptr);
    if (node == 0) break;
    spares.push_back(node);
  }
  question.room = static_cast<std::uint32_t>(spares.size());
  Bytes payload(sizeof question + spares.size() * sizeof(Handle));
  std::memcpy(payload.data(), &question, sizeof question);
  if (!spares.empty()) {
    std::memcpy(payload.data() + sizeof question, spares.data(), spares.size() * sizeof(Handle));
  }
  CallSite site = here.stream_site(stream);
  site.opcode = opcode::cuStreamGetCaptureInfo_v3;
  site.form = protocol::Form::kRaw;
  Reply reply;
  int result = here.session().call(*here.lane, site, ByteView(payload), &reply);
  if (result == 0 && !read_answer(reply.payload, question.room, told)) {
    result = CUDA_ERROR_UNKNOWN;
  }
  if (result != 0) *told = Told();
  const std::vector<CUgraphNode>& nodes = told->frontier.nodes;
  if (known != 0) told->answer.graph = known;
  for (const Handle spare : spares) {
    if (std::find(nodes.begin(), nodes.end(), as<CUgraphNode>(spare)) == nodes.end()) {
      handles.retire(spare);
    } else {
      adopt_node(handles, told->answer.graph, spare);
    }
  }
  if (question.graph == 0) return result;
  // The worker used our handle, so the graph is the capture's own. Its end returns the same handle.
  // A graph that existed before has its own handle.
  if (told->answer.graph == question.graph) {
    capture_graph_told(here, stream, question.graph);
  } else {
    handles.retire(question.graph);
  }
  return result;
}

int ask_more(const EntryContext& here, Handle stream, Wanted wanted, Told* told) {
  constexpr std::uint32_t kRoomAtFirst = 16;
  wanted.graph = wanted.graph || wanted.nodes;  // Nodes end with their graph.
  std::uint32_t room = wanted.nodes ? kRoomAtFirst : 0;
  int result = ask_with(here, stream, wanted, room, told);
  if (result == 0 && wanted.nodes && told->answer.count > room) {
    room = std::min(told->answer.count, protocol::kCaptureNodesMax);
    result = ask_with(here, stream, wanted, room, told);
  }
  if (result == 0 && wanted.nodes && told->frontier.nodes.size() != told->answer.count) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto capture = capture_of(here, stream);
  if (capture.has_value() && capture->invalidated) {
    told->answer.status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  }
  return result;
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuStreamBeginCapture_v2(CUstream given, CUstreamCaptureMode mode) {
  EntryContext here;
  Handle stream = 0;
  if (const int result = enter_begin(here, given, mode, &stream); result != 0) return cuda(result);
  const int result = post_row(here, opcode::cuStreamBeginCapture_v2, here.stream_site(stream), {},
                              as<CUstream>(stream), CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result == 0) capture_begun(here, stream, static_cast<CaptureMode>(mode));
  return cuda(result);
}

CUresult cuStreamBeginCapture(CUstream stream) {
  return custom::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream given, CUgraph graph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* edges, size_t count,
                                     CUstreamCaptureMode mode) {
  EntryContext here;
  Handle stream = 0;
  if (const int result = enter_begin(here, given, mode, &stream); result != 0) return cuda(result);
  if (const int result = here.check(handle_of(graph), HandleKind::kGraph); result != 0) {
    return cuda(result);
  }
  if (count > limits::kArrayCountMax || (count != 0 && dependencies == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const int wrong = here.check(handle_of(dependencies[i]), HandleKind::kGraphNode);
    if (wrong != 0) return cuda(wrong);
  }
  const std::span<const Handle> behind(reinterpret_cast<const Handle*>(dependencies), count);
  const Sound sound = check_dependencies(here.handles(), handle_of(graph), behind);
  if (sound == Sound::kWrong) return CUDA_ERROR_INVALID_VALUE;
  const CallSite site = here.stream_site(stream);
  constexpr std::uint16_t kRow = opcode::cuStreamBeginCaptureToGraph;
  // Only the worker's driver knows which data an edge may have.
  const bool posted = sound == Sound::kRight && (edges == nullptr || count == 0);
  const int result = posted ? post_row(here, kRow, site, {}, as<CUstream>(stream), graph,
                                       dependencies, edges, count, CU_STREAM_CAPTURE_MODE_RELAXED)
                            : call_row(here, kRow, site, {}, as<CUstream>(stream), graph,
                                       dependencies, edges, count, CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result == 0) capture_begun(here, stream, static_cast<CaptureMode>(mode));
  return cuda(result);
}

CUresult cuStreamEndCapture(CUstream given, CUgraph* out) {
  EntryContext here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto capture = capture_of(here, stream);
  if (capture.has_value() && !capture->origin) {
    capture_invalidated(here, stream);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture.has_value() && capture->mode != CaptureMode::kRelaxed &&
      capture->lane != here.lane->id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  const Handle told = graph_of_capture(here, stream);
  const Handle graph = told != 0 ? told : here.handles().mint(HandleKind::kGraph, 0, nullptr);
  if (graph == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraph placed = nullptr;
  const int result = call_row(here, opcode::cuStreamEndCapture, here.stream_site(stream), {graph},
                              as<CUstream>(stream), &placed);
  if (capture.has_value()) capture_ended(here, stream);
  *out = placed;
  if (placed != as<CUgraph>(graph)) {
    here.handles().retire(graph);
    retire_owned(here.handles(), graph);
  }
  if (capture.has_value() && capture->invalidated) {
    if (placed != nullptr) (void)::cuGraphDestroy(placed);
    *out = nullptr;
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  return cuda(result);
}

CUresult cuStreamIsCapturing(CUstream given, CUstreamCaptureStatus* status) {
  EntryContext here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Status found;
  const int result = ask(here, stream, &found);
  if (result == 0) *status = found.status;
  return cuda(result);
}

CUresult cuStreamGetCaptureInfo(CUstream given, CUstreamCaptureStatus* status, cuuint64_t* id) {
  EntryContext here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Status found;
  const int result = ask(here, stream, &found);
  if (result != 0) return cuda(result);
  *status = found.status;
  if (id != nullptr && found.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) *id = found.id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream given, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges, size_t* dependency_count) {
  const Wanted wanted{graph != nullptr, dependencies != nullptr || edges != nullptr};
  if (edges != nullptr && dependencies == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (status == nullptr || !capturing_somewhere() ||
      (!wanted.graph && !wanted.nodes && dependency_count == nullptr)) {
    return custom::cuStreamGetCaptureInfo(given, status, id);
  }
  EntryContext here;
  Handle stream = 0;
  if (const int result = enter_stream(here, given, &stream); result != 0) return cuda(result);
  Told told;
  if (const int result = ask_more(here, stream, wanted, &told); result != 0) return cuda(result);
  *status = static_cast<CUstreamCaptureStatus>(told.answer.status);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  const auto has_data = [](const CUgraphEdgeData& edge) {
    return edge.from_port != 0 || edge.to_port != 0 || edge.type != 0;
  };
  const std::vector<CUgraphEdgeData>& found = told.frontier.edges;
  if (wanted.nodes && edges == nullptr && std::any_of(found.begin(), found.end(), has_data)) {
    return CUDA_ERROR_LOSSY_QUERY;
  }
  if (id != nullptr) *id = told.answer.id;
  if (graph != nullptr) *graph = as<CUgraph>(told.answer.graph);
  if (dependency_count != nullptr) *dependency_count = told.answer.count;
  if (wanted.nodes && !keep_frontier(here, stream, std::move(told.frontier), dependencies, edges)) {
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   size_t* dependency_count) {
  return custom::cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, nullptr,
                                           dependency_count);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  EntryContext here;
  if (const int result = here.enter(); result != 0) return cuda(result);
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CaptureMode before = here.lane->capture_mode();
  here.lane->set_capture_mode(static_cast<CaptureMode>(*mode));
  *mode = static_cast<CUstreamCaptureMode>(before);
  return CUDA_SUCCESS;
}

}  // namespace gpurun::client::interpose::custom
