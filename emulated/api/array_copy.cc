// Copies between memory and the bytes of a one-dimensional array.
#include "emulated/api.h"
#include "emulated/api/copies.h"
#include "emulated/api/entry.h"

namespace gpurun::emulated {
namespace {

CopySideWords of_array(CUarray array, std::size_t offset) {
  return {CU_MEMORYTYPE_ARRAY, nullptr, 0, array, offset, 0, 0, 0, 0};
}
CopySideWords of_host(const void* memory) {
  return {CU_MEMORYTYPE_HOST, memory, 0, nullptr, 0, 0, 0, 0, 0};
}
CopySideWords of_device(CUdeviceptr memory) {
  return {CU_MEMORYTYPE_DEVICE, nullptr, memory, nullptr, 0, 0, 0, 0, 0};
}

CUresult copy_line(CUstream stream, const CopySideWords& to, const CopySideWords& from,
                   std::size_t bytes, bool wait) {
  GPURUN_ENTER(context);
  CopyCall call;
  call.box.width_bytes = bytes;
  call.wait = wait;
  GPURUN_TRY(find_side(from, call.box, &call.source, &call.box.source));
  GPURUN_TRY(find_side(to, call.box, &call.destination, &call.box.destination));
  return issue_copy(stream, call);
}

}  // namespace
}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t bytes) {
  return copy_line(nullptr, of_array(to, offset), of_host(from), bytes, true);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t bytes,
                              CUstream stream) {
  return copy_line(stream, of_array(to, offset), of_host(from), bytes, false);
}
CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t bytes) {
  return copy_line(nullptr, of_host(to), of_array(from, offset), bytes, true);
}
CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t bytes,
                              CUstream stream) {
  return copy_line(stream, of_host(to), of_array(from, offset), bytes, false);
}
// The host does not wait for copies between device memory (manual, "API synchronization behavior").
// Pinned and managed memory have device addresses, too.
CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
  return copy_line(nullptr, of_array(to, offset), of_device(from), bytes, is_seen_by_host(from));
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
  return copy_line(nullptr, of_device(to), of_array(from, offset), bytes, is_seen_by_host(to));
}
CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                         size_t bytes) {
  return copy_line(nullptr, of_array(to, to_offset), of_array(from, from_offset), bytes, false);
}

}  // namespace gpurun::emulated::api
