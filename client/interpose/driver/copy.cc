// Copies: one-dimensional copies.
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/copy_memory.h"
#include "client/interpose/driver/run_copy.h"

namespace gpurun::client::interpose {
namespace {

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

CopySide device(CUdeviceptr address) { return {place_on_device(address), address, 0, 0}; }

CopySide either(CUdeviceptr address, size_t bytes) {
  return {place_of(address, bytes), address, 0, 0};
}

// The host memory of the call may be device memory (unified addressing). Such a copy is made
// between devices.
CopySide host(const void* memory, size_t bytes) { return either(address_of(memory), bytes); }

CUresult copy(std::uint16_t code, const CopySide& destination, const CopySide& source, size_t bytes,
              CUstream given, Waiting waiting) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Handle stream = 0;
  if (const int result = resolve_stream(here, given, &stream); result != 0) return cuda(result);
  if (bytes != 0 && (destination.address == 0 || source.address == 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Copy wanted;
  wanted.destination = destination;
  wanted.source = source;
  wanted.width = bytes;
  return cuda(run_copy(here, code, stream, wanted, waiting));
}

// For calls that do not say where an address lies. An address that is not memory is an error. A
// call that names host memory would crash instead.
CUresult copy_between(std::uint16_t code, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                      CUstream stream, Waiting waiting) {
  const CopySide destination = either(to, bytes), source = either(from, bytes);
  const bool sound = is_memory(destination, bytes) && is_memory(source, bytes);
  return sound ? copy(code, destination, source, bytes, stream, waiting)
               : copy(code, device(0), device(0), bytes, stream, waiting);
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return copy(opcode::cuMemcpyHtoD_v2, device(to), host(from, bytes), bytes, nullptr,
              Waiting::kSynchronous);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy(opcode::cuMemcpyHtoDAsync_v2, device(to), host(from, bytes), bytes, stream,
              Waiting::kAsynchronous);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return copy(opcode::cuMemcpyDtoH_v2, host(to, bytes), device(from), bytes, nullptr,
              Waiting::kSynchronous);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(opcode::cuMemcpyDtoHAsync_v2, host(to, bytes), device(from), bytes, stream,
              Waiting::kAsynchronous);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy(opcode::cuMemcpyDtoD_v2, device(to), device(from), bytes, nullptr,
              Waiting::kSynchronous);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(opcode::cuMemcpyDtoDAsync_v2, device(to), device(from), bytes, stream,
              Waiting::kAsynchronous);
}

// The addresses decide where the memory lies.
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_between(opcode::cuMemcpy, to, from, bytes, nullptr, Waiting::kSynchronous);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_between(opcode::cuMemcpyAsync, to, from, bytes, stream, Waiting::kAsynchronous);
}

}  // namespace gpurun::client::interpose::custom
