// Captures: the program's queries of an active capture, and the end of a capture
// (protocol/calls/captures.h).
#include "protocol/calls/captures.h"

#include <cstring>
#include <vector>

#include "driver_abi/row.h"
#include "protocol/calls/call.h"
#include "server/handlers/graphs/graph_calls.h"
#include "server/handlers/graphs/graph_topology.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

using protocol::CaptureAnswer;
using protocol::CaptureQuestion;

static_assert(sizeof(CUgraphEdgeData) == protocol::kEdgeBytes);

struct Seen {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;  // The driver's own list, valid until the stream's next call.
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
};

int look(const CudaDriver& driver, CUstream stream, Seen* seen) {
  const int result =
      GPURUN_DRIVER(driver, cuStreamGetCaptureInfo_v3, stream, &seen->status, &seen->id,
                    &seen->graph, &seen->nodes, &seen->edges, &seen->count);
  if (result != CUDA_ERROR_NOT_FOUND) return result;
  return GPURUN_DRIVER(driver, cuStreamGetCaptureInfo_v2, stream, &seen->status, &seen->id,
                       &seen->graph, &seen->nodes, &seen->count);
}

// Returns the client's handle of the driver's value: a known one, else `minted`, which is then
// bound to it and ends with `owner`.
int tell(Call& call, std::uint64_t value, HandleKind kind, std::uint64_t minted,
         std::uint64_t owner, std::uint64_t* told) {
  *told = call.handles().client_handle_of(value, kind);
  if (*told != 0) return 0;
  *told = minted;
  return call.handles().bind(minted, kind, value, owner);
}

template <typename T>
std::uint64_t value_of(T* object) {
  return reinterpret_cast<std::uintptr_t>(object);
}

int answer(Call& call, const CaptureQuestion& question, const std::uint64_t* spares) {
  HandlerState& state = HandlerState::of(call);
  Seen seen;
  const int result = look(state.driver(), static_cast<CUstream>(call.driver_stream()), &seen);
  if (result != 0) return result;
  CaptureAnswer answer;
  answer.status = seen.status;
  std::vector<std::uint64_t> nodes;
  if (seen.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    if (seen.count > protocol::kCaptureNodesMax) return CUDA_ERROR_NOT_SUPPORTED;
    answer.id = seen.id;
    answer.count = static_cast<std::uint32_t>(seen.count);
    if (seen.count <= question.room) nodes.resize(seen.count);
    if (question.graph != 0) {
      const int wrong =
          tell(call, value_of(seen.graph), HandleKind::kGraph, question.graph, 0, &answer.graph);
      if (wrong != 0) return wrong;
    }
  }
  const std::uint64_t graph =
      call.handles().client_handle_of(value_of(seen.graph), HandleKind::kGraph);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const CUgraphNode shown = state.graph_topology().shown(seen.nodes[i]);
    const int wrong =
        tell(call, value_of(shown), HandleKind::kGraphNode, spares[i], graph, &nodes[i]);
    if (wrong != 0) return wrong;
  }
  Bytes reply(sizeof answer + nodes.size() * (sizeof nodes[0] + protocol::kEdgeBytes));
  std::memcpy(reply.data(), &answer, sizeof answer);
  if (!nodes.empty()) {
    std::byte* const list = reply.data() + sizeof answer;
    std::memcpy(list, nodes.data(), nodes.size() * sizeof nodes[0]);
    if (seen.edges != nullptr) {
      std::memcpy(list + nodes.size() * sizeof nodes[0], seen.edges,
                  nodes.size() * protocol::kEdgeBytes);
    }
  }
  call.set_reply(ByteView(reply));
  return 0;
}

CallOutcome run_question(Call& call) {
  CaptureQuestion question;
  const ByteView payload = call.payload();
  if (call.header().form != protocol::Form::kRaw ||
      call.header().order != protocol::Order::kStream || payload.size() < sizeof question) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  std::memcpy(&question, payload.data(), sizeof question);
  if (question.room > protocol::kCaptureNodesMax ||
      payload.size() != sizeof question + question.room * sizeof(std::uint64_t)) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  std::vector<std::uint64_t> spares(question.room);
  if (!spares.empty()) {
    std::memcpy(spares.data(), payload.data() + sizeof question,
                spares.size() * sizeof(std::uint64_t));
  }
  return CallOutcome::done(answer(call, question, spares.data()));
}

// A failed capture has destroyed its graph. If the program had queried that graph, the client
// passes its handle in place of a new one. The handle is invalid now, and the driver may reuse the
// value.
CallOutcome run_end(Call& call) {
  const CallOutcome outcome = HandlerState::of(call).dispatch().run(call);
  const driver_abi::Row* const row = driver_abi::find_row(call.header().opcode);
  protocol::UnpackedCall unpacked;
  if (outcome.result == 0 || !unpacked.unpack(*row, call.payload()).ok()) return outcome;
  for (std::size_t i = 0; i < row->parameters.size(); ++i) {
    if (unpacked.minted(i) != 0) (void)call.handles().erase(unpacked.minted(i), HandleKind::kGraph);
  }
  return outcome;
}

}  // namespace

void add_capture_handlers(Handlers& handlers) {
  set_handler(handlers, "cuStreamGetCaptureInfo_v3", &run_question);
  set_handler(handlers, "cuStreamEndCapture", &run_end);
}

}  // namespace gpurun::server
