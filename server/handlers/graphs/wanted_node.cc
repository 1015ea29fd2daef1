// WantedNode: reads the payload, and describes its copy in the driver's form.
#include "server/handlers/graphs/wanted_node.h"

#include <cstddef>
#include <cstring>

#include "server/worker/execution/host_memory.h"

namespace gpurun::server {
namespace {

using protocol::GraphCopySide;
using protocol::GraphNodePayload;
using protocol::GraphWork;

int find_array(Call& call, const GraphCopySide& side, CUarray* array) {
  if (side.array == 0) return 0;
  const HandleTable::Found found = call.handles().find(side.array, HandleKind::kArray);
  if (found.result == 0) *array = driver_object<CUarray>(found.value);
  return found.result;
}

// One side of a copy in the driver's form.
struct DriverSide {
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  void* host = nullptr;
  CUdeviceptr device = 0;
  std::size_t pitch = 0;
  std::size_t rows = 0;
  CUarray array = nullptr;
  std::size_t x = 0, y = 0, z = 0;
};

// Shadows have no gaps.
DriverSide shadow_side(const WantedNode& wanted) {
  return {CU_MEMORYTYPE_HOST, wanted.operation->shadow->data(), 0, wanted.node.width,
          wanted.node.lines};
}

DriverSide device_side(const WantedNode& wanted, const GraphCopySide& side, CUarray array) {
  const GraphNodePayload& node = wanted.node;
  if (array != nullptr) {
    return {CU_MEMORYTYPE_ARRAY, nullptr, 0, 0, 0, array, side.x, side.y, side.z};
  }
  // The pitch of a single line or a single slice has no meaning.
  const bool lined = node.lines > 1 || node.slices > 1;
  const bool sliced = node.slices > 1 && side.line_pitch != 0;
  const bool host = wanted.is_host(side);
  return {host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
          host ? reinterpret_cast<void*>(side.address) : nullptr, side.address,
          lined ? side.line_pitch : node.width,
          sliced ? side.slice_pitch / side.line_pitch : node.lines};
}

}  // namespace

int WantedNode::read() {
  const ByteView payload = call.payload();
  if (payload.size() < sizeof node) return kErrorInvalidValue;
  std::memcpy(&node, payload.data(), sizeof node);
  const auto work = static_cast<std::uint32_t>(node.work);
  if (work < 1 || work > 4 || node.dependency_count > limits::kArrayCountMax ||
      payload.size() != sizeof node + node.dependency_count * sizeof(std::uint64_t) ||
      has_operation() != (node.operation != 0)) {
    return kErrorInvalidValue;
  }
  std::uint64_t total = 0;
  if (is_copy() && (__builtin_mul_overflow(node.width, node.lines, &total) ||
                    __builtin_mul_overflow(total, node.slices, &total) || total == 0)) {
    return kErrorInvalidValue;
  }
  int result = find_array(call, node.source, &source_array);
  if (result == 0) result = find_array(call, node.destination, &destination_array);
  return result != 0 ? result : find_nodes(call, payload.subspan(sizeof node), &dependencies);
}

bool WantedNode::is_host(const GraphCopySide& side) const {
  const HostMemory* const memory = call.host_memory();
  return memory != nullptr && side.array == 0 &&
         memory->covers(HostSide{side.address, node.width, node.lines, node.slices, side.line_pitch,
                                 side.slice_pitch});
}

CUDA_MEMCPY3D WantedNode::copy() const {
  const DriverSide from = node.work == GraphWork::kCopyIn
                              ? shadow_side(*this)
                              : device_side(*this, node.source, source_array);
  const DriverSide to = node.work == GraphWork::kCopyOut
                            ? shadow_side(*this)
                            : device_side(*this, node.destination, destination_array);
  CUDA_MEMCPY3D made{};
  made.srcMemoryType = from.type;
  made.srcHost = from.host;
  made.srcDevice = from.device;
  made.srcPitch = from.pitch;
  made.srcHeight = from.rows;
  made.srcArray = from.array;
  made.srcXInBytes = from.x;
  made.srcY = from.y;
  made.srcZ = from.z;
  made.dstMemoryType = to.type;
  made.dstHost = to.host;
  made.dstDevice = to.device;
  made.dstPitch = to.pitch;
  made.dstHeight = to.rows;
  made.dstArray = to.array;
  made.dstXInBytes = to.x;
  made.dstY = to.y;
  made.dstZ = to.z;
  made.WidthInBytes = node.width;
  made.Height = node.lines;
  made.Depth = node.slices;
  return made;
}

}  // namespace gpurun::server
