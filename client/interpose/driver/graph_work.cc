// Graph work: converts a program's description of a graph node to the worker's.
#include "client/interpose/driver/graph_work.h"

#include "client/interpose/driver/copy_description.h"
#include "client/interpose/driver/copy_memory.h"

namespace gpurun::client::interpose {
namespace {

using protocol::GraphCopySide;
using protocol::GraphNodePayload;

GraphCopySide device_side(const CopySide& side) {
  return {side.address, side.line_pitch, side.slice_pitch, side.array, side.x, side.y, side.z};
}

HostBox box_of(const CopySide& side, const Copy& copy) {
  return {side.address, side.line_pitch, side.slice_pitch, copy.width, copy.lines, copy.slices};
}

}  // namespace

GraphWork work_of(CUhostFn function, void* user) {
  GraphWork work;
  work.payload.work = protocol::GraphWork::kFunction;
  work.operation.function = function;
  work.operation.user = user;
  return work;
}

// A copy node is never the device's alone, because its parameters may change to memory that the
// device does not reach. The worker also gets addresses in the arena, for a captured copy that was.
int work_of(const EntryContext& here, const Copy& wanted, GraphWork* work) {
  Copy copy = wanted;
  leave_arena(&copy);
  if (copy.width == 0 || copy.lines == 0 || copy.slices == 0 || !stays_inside(here, copy)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool from_device = copy.source.by_device();
  const bool to_device = copy.destination.by_device();
  GraphNodePayload& payload = work->payload;
  payload.width = copy.width;
  payload.lines = copy.lines;
  payload.slices = copy.slices;
  if (wanted.source.by_device()) payload.source = device_side(copy.source);
  if (wanted.destination.by_device()) payload.destination = device_side(copy.destination);
  work->sure = (!from_device || is_known(here, copy.source, copy)) &&
               (!to_device || is_known(here, copy.destination, copy));
  if (!from_device) work->operation.from = box_of(copy.source, copy);
  if (!to_device) work->operation.to = box_of(copy.destination, copy);
  if (from_device) {
    payload.work = to_device ? protocol::GraphWork::kCopyDevice : protocol::GraphWork::kCopyOut;
  } else {
    payload.work = to_device ? protocol::GraphWork::kCopyIn : protocol::GraphWork::kFunction;
  }
  return 0;
}

int work_of(const EntryContext& here, const CUDA_MEMCPY3D* given, GraphWork* work) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Copy copy;
  if (const int result = describe_copy(here, *given, &copy); result != 0) return result;
  return work_of(here, copy, work);
}

int send_work(const EntryContext& here, std::uint16_t row, CallSite site, GraphWork work,
              const std::vector<Handle>& dependencies, bool awaited, bool* done) {
  site.opcode = row;
  site.form = protocol::Form::kRaw;
  GraphNodePayload& payload = work.payload;
  const bool has_operation = payload.work != protocol::GraphWork::kCopyDevice;
  if (has_operation) {
    payload.operation = here.session().graphs().add(work.operation);
    if (payload.operation == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  payload.dependency_count = static_cast<std::uint32_t>(dependencies.size());
  const ByteView parts[] = {bytes_of(payload),
                            byte_view(dependencies.data(), dependencies.size() * sizeof(Handle))};
  std::uint64_t sequence = 0;
  Reply reply;
  reply.result = -1;  // Not answered.
  const int result = awaited ? here.session().call(*here.lane, site, parts, &reply)
                             : here.session().post(*here.lane, site, parts, &sequence);
  // The record was not sent, so the worker will not report the end of the operation.
  const bool sent = awaited ? reply.result != -1 : sequence != 0;
  if (done != nullptr) *done = awaited ? reply.result == 0 : result == 0;
  if (has_operation && !sent) here.session().graphs().forget(payload.operation);
  return result;
}

int capture_work(const EntryContext& here, Handle stream, GraphWork work) {
  const std::uint16_t row = work.payload.work == protocol::GraphWork::kFunction
                                ? opcode::cuGraphAddHostNode
                                : opcode::cuGraphAddMemcpyNode;
  const bool awaited = !work.sure;
  return send_work(here, row, here.stream_site(stream), std::move(work), {}, awaited);
}

}  // namespace gpurun::client::interpose
