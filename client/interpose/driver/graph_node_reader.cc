// Graph node reader: the parameters of host nodes and memcpy nodes, read back. The worker answers
// for the device. The functions and the memory of this process are in its operations
// (client/session/graph_host.h), which a clone or a captured node names too.
#include <cstring>

#include "client/interpose/call/forward.h"
#include "client/interpose/custom.h"
#include "client/session/graph_host.h"
#include "protocol/calls/graph_host.h"

namespace gpurun::client::interpose {
namespace {

using protocol::GraphCopyReply;
using protocol::GraphCopySide;

// Asks for the node's parameters. Returns 0 or the call's result.
template <typename Answer>
int ask(EntryContext& here, std::uint16_t row, CUgraphNode node, Answer* answer) {
  if (const int result = here.enter(); result != 0) return result;
  if (here.enter_context() != 0) here.context = nullptr;
  const std::uint64_t handle = handle_of(node);
  int result = here.check(handle, HandleKind::kGraphNode);
  if (result != 0) return result;
  CallSite site = here.passing_site();
  site.opcode = row;
  site.form = protocol::Form::kRaw;
  Reply reply;
  reply.result = -1;  // Not answered.
  result = here.session().call(*here.lane, site, bytes_of(handle), &reply);
  if (result != 0) return result;
  if (reply.payload.size() != sizeof *answer) return CUDA_ERROR_UNKNOWN;
  std::memcpy(answer, reply.payload.data(), sizeof *answer);
  return 0;
}

int read_host(CUgraphNode node, CUDA_HOST_NODE_PARAMS* out) {
  EntryContext here;
  std::uint64_t number = 0;
  const int result = ask(here, opcode::cuGraphHostNodeGetParams, node, &number);
  if (result != 0) return result;
  const auto operation = here.session().graphs().operation(number);
  if (!operation.has_value() || operation->function == nullptr) return CUDA_ERROR_UNKNOWN;
  out->fn = operation->function;
  out->userData = operation->user;
  return 0;
}

// One side of CUDA_MEMCPY3D.
struct Side {
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  std::uint64_t address = 0;
  CUarray array = nullptr;
  std::size_t pitch = 0, height = 0, x = 0, y = 0, z = 0;
};

std::size_t rows(std::uint64_t slice_pitch, std::uint64_t line_pitch) {
  return line_pitch == 0 ? 0 : static_cast<std::size_t>(slice_pitch / line_pitch);
}

Side device_side(const GraphCopySide& side, bool is_host) {
  if (side.array != 0) {
    return {CU_MEMORYTYPE_ARRAY, 0, as<CUarray>(side.array), 0, 0, side.x, side.y, side.z};
  }
  return {is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE, side.address, nullptr,
          side.line_pitch, rows(side.slice_pitch, side.line_pitch)};
}

Side host_side(const HostBox& box) {
  return {CU_MEMORYTYPE_HOST, box.address, nullptr, box.line_pitch,
          rows(box.slice_pitch, box.line_pitch)};
}

void put_source(const Side& side, CUDA_MEMCPY3D* copy) {
  const bool host = side.type == CU_MEMORYTYPE_HOST;
  copy->srcMemoryType = side.type;
  if (host) copy->srcHost = as<const void*>(side.address);
  if (!host) copy->srcDevice = side.address;
  copy->srcArray = side.array;
  copy->srcPitch = side.pitch;
  copy->srcHeight = side.height;
  copy->srcXInBytes = side.x, copy->srcY = side.y, copy->srcZ = side.z;
}

void put_destination(const Side& side, CUDA_MEMCPY3D* copy) {
  const bool host = side.type == CU_MEMORYTYPE_HOST;
  copy->dstMemoryType = side.type;
  if (host) copy->dstHost = as<void*>(side.address);
  if (!host) copy->dstDevice = side.address;
  copy->dstArray = side.array;
  copy->dstPitch = side.pitch;
  copy->dstHeight = side.height;
  copy->dstXInBytes = side.x, copy->dstY = side.y, copy->dstZ = side.z;
}

int read_copy(CUgraphNode node, CUDA_MEMCPY3D* out) {
  EntryContext here;
  GraphCopyReply read;
  const int result = ask(here, opcode::cuGraphMemcpyNodeGetParams, node, &read);
  if (result != 0) return result;
  GraphHost::Operation operation;
  if (read.operation != 0) {
    const auto found = here.session().graphs().operation(read.operation);
    if (!found.has_value()) return CUDA_ERROR_UNKNOWN;
    operation = *found;
  }
  *out = CUDA_MEMCPY3D{};
  const bool from_host = operation.from.address != 0;
  const bool to_host = operation.to.address != 0;
  put_source(
      from_host ? host_side(operation.from) : device_side(read.source, read.source_is_host != 0),
      out);
  put_destination(to_host ? host_side(operation.to)
                          : device_side(read.destination, read.destination_is_host != 0),
                  out);
  // The shape as the program gave it. The worker's memory has no gaps.
  const HostBox& box = from_host ? operation.from : operation.to;
  const bool ours = from_host || to_host;
  out->WidthInBytes = static_cast<std::size_t>(ours ? box.width : read.width);
  out->Height = static_cast<std::size_t>(ours ? box.lines : read.lines);
  out->Depth = static_cast<std::size_t>(ours ? box.slices : read.slices);
  return 0;
}

}  // namespace

namespace custom {

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return cuda(read_host(hNode, nodeParams));
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return cuda(read_copy(hNode, nodeParams));
}

}  // namespace custom
}  // namespace gpurun::client::interpose
