// Array copies: copies of one dimension to, from and between CUDA arrays.
#include "client/interpose/call/stream.h"
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/arrays.h"
#include "client/interpose/driver/copy_memory.h"
#include "client/interpose/driver/run_copy.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {
namespace {

CopySide device(CUdeviceptr address) { return {place_on_device(address), address, 0, 0}; }

CopySide host(const void* memory, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return {place_of(address, bytes), address, 0, 0};
}

// Copies one dimension. `make_sides` fills both sides.
template <typename MakeSides>
CUresult copy_line(std::uint16_t code, std::size_t bytes, CUstream given, Waiting waiting,
                   MakeSides make_sides) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Handle stream = 0;
  if (const int result = resolve_stream(here, given, &stream); result != 0) return cuda(result);
  Copy copy;
  copy.width = bytes;
  if (const int result = make_sides(here, &copy); result != 0) return cuda(result);
  for (CopySide* side : {&copy.source, &copy.destination}) {
    if (side->place == Place::kArray) continue;
    if (bytes != 0 && side->address == 0) return CUDA_ERROR_INVALID_VALUE;
    side->line_pitch = side->slice_pitch = bytes;
  }
  return cuda(run_copy(here, code, stream, copy, waiting));
}

CUresult from_host(std::uint16_t code, CUarray to, std::size_t offset, const void* from,
                   std::size_t bytes, CUstream stream, Waiting waiting) {
  return copy_line(code, bytes, stream, waiting, [&](const EntryContext& here, Copy* copy) {
    copy->source = host(from, bytes);
    return side_in_array(here, to, offset, &copy->destination);
  });
}

CUresult to_host(std::uint16_t code, void* to, CUarray from, std::size_t offset, std::size_t bytes,
                 CUstream stream, Waiting waiting) {
  return copy_line(code, bytes, stream, waiting, [&](const EntryContext& here, Copy* copy) {
    copy->destination = host(to, bytes);
    return side_in_array(here, from, offset, &copy->source);
  });
}

}  // namespace

}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t bytes) {
  return from_host(opcode::cuMemcpyHtoA_v2, to, offset, from, bytes, nullptr,
                   Waiting::kSynchronous);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t bytes,
                              CUstream stream) {
  return from_host(opcode::cuMemcpyHtoAAsync_v2, to, offset, from, bytes, stream,
                   Waiting::kAsynchronous);
}

CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t bytes) {
  return to_host(opcode::cuMemcpyAtoH_v2, to, from, offset, bytes, nullptr, Waiting::kSynchronous);
}

CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t bytes,
                              CUstream stream) {
  return to_host(opcode::cuMemcpyAtoHAsync_v2, to, from, offset, bytes, stream,
                 Waiting::kAsynchronous);
}

// A copy within the device waits for nothing (manual, "API synchronization behavior").
CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
  return copy_line(opcode::cuMemcpyDtoA_v2, bytes, nullptr, Waiting::kSynchronous,
                   [&](const EntryContext& here, Copy* copy) {
                     copy->source = device(from);
                     return side_in_array(here, to, offset, &copy->destination);
                   });
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
  return copy_line(opcode::cuMemcpyAtoD_v2, bytes, nullptr, Waiting::kSynchronous,
                   [&](const EntryContext& here, Copy* copy) {
                     copy->destination = device(to);
                     return side_in_array(here, from, offset, &copy->source);
                   });
}

CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                         size_t bytes) {
  return copy_line(opcode::cuMemcpyAtoA_v2, bytes, nullptr, Waiting::kAsynchronous,
                   [&](const EntryContext& here, Copy* copy) {
                     const int result = side_in_array(here, to, to_offset, &copy->destination);
                     return result != 0 ? result
                                        : side_in_array(here, from, from_offset, &copy->source);
                   });
}

}  // namespace gpurun::client::interpose::custom
