// Wrong calls: copies.
#include "wrong_call.h"

namespace gpurun::probe {
namespace {

constexpr char kMemory[] = "Memory Management";
constexpr std::size_t kTooMany = std::size_t{1} << 40;

// A copy of 16 by 16 bytes between two places on the device, right but for what is changed.
CUDA_MEMCPY2D* copy_2d(WrongStage& s) {
  auto* copy = s.zeroed<CUDA_MEMCPY2D>();
  copy->srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy->srcDevice = s.memory;
  copy->srcPitch = 64;
  copy->dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy->dstDevice = s.memory + 65536;
  copy->dstPitch = 64;
  copy->WidthInBytes = 16;
  copy->Height = 16;
  return copy;
}
CUDA_MEMCPY2D* made(WrongStage& s) { return reinterpret_cast<CUDA_MEMCPY2D*>(s.scratch + 8192); }

constexpr WrongCall kCalls[] = {
    WRONG(cuMemcpyHtoD_v2, "unknown destination", 1, kMemory, kContext, (0x1234500, s.scratch, 16)),
    WRONG(cuMemcpyHtoD_v2, "NULL source", 1, kMemory, kContext, (s.memory, nullptr, 16)),
    WRONG(cuMemcpyHtoD_v2, "beyond the allocation", 1, kMemory, kContext,
          (s.memory + Stage::kMemoryBytes - 8, s.scratch, 4096)),
    WRONG(cuMemcpyHtoD_v2, "0 bytes to nowhere", kNotInTheManual, "", kContext, (0, s.scratch, 0)),
    WRONG(cuMemcpyHtoD_v2, "no current context", 201, kMemory, kInit, (0x1234500, s.scratch, 16)),
    WRONG(cuMemcpyDtoH_v2, "unknown source", 1, kMemory, kContext, (s.scratch, 0x1234500, 16)),
    WRONG(cuMemcpyDtoH_v2, "NULL destination", 1, kMemory, kContext, (nullptr, s.memory, 16)),
    WRONG(cuMemcpyDtoH_v2, "beyond the allocation", 1, kMemory, kContext,
          (s.scratch, s.memory + Stage::kMemoryBytes - 8, 4096)),
    WRONG(cuMemcpyDtoD_v2, "unknown source", 1, kMemory, kContext, (s.memory, 0x1234500, 16)),
    WRONG(cuMemcpyDtoD_v2, "unknown destination", 1, kMemory, kContext, (0x1234500, s.memory, 16)),
    WRONG(cuMemcpyDtoD_v2, "too many bytes", 1, kMemory, kContext,
          (s.memory, s.memory + 4096, kTooMany)),
    WRONG(cuMemcpyDtoD_v2, "overlapping ranges", kNotInTheManual, "", kContext,
          (s.memory, s.memory + 8, 64)),
    WRONG(cuMemcpy, "unknown destination", 1, kMemory, kContext, (0x1234500, s.memory, 16)),
    WRONG(cuMemcpyHtoDAsync_v2, "stream of zeros", 400, kMemory, kContext,
          (s.memory, s.scratch, 16, zeros_as<CUstream>())),
    WRONG(cuMemcpyHtoDAsync_v2, "unknown destination", 1, kMemory, kContext,
          (0x1234500, s.scratch, 16, s.stream)),
    WRONG(cuMemcpyDtoHAsync_v2, "unknown source", 1, kMemory, kContext,
          (s.scratch, 0x1234500, 16, s.stream)),
    WRONG(cuMemcpyDtoDAsync_v2, "unknown source", 1, kMemory, kContext,
          (s.memory, 0x1234500, 16, s.stream)),
    WRONG(cuMemcpy2D_v2, "NULL description", 1, kMemory, kContext, (nullptr)),
    WRONG_AFTER(cuMemcpy2D_v2, "source pitch below width", 1, kMemory, kContext,
                copy_2d(s)->srcPitch = 8;
                , (made(s))),
    WRONG_AFTER(cuMemcpy2D_v2, "unknown memory type", 1, kMemory, kContext,
                copy_2d(s)->srcMemoryType = number_as<CUmemorytype>(9);
                , (made(s))),
    WRONG_AFTER(cuMemcpy2D_v2, "pitch over the maximum", 1, kMemory, kContext,
                copy_2d(s)->srcPitch = std::size_t{1} << 40;
                , (made(s))),
    WRONG_AFTER(cuMemcpy2D_v2, "array of zeros", 400, kMemory, kContext,
                copy_2d(s)->srcMemoryType = CU_MEMORYTYPE_ARRAY;
                made(s)->srcArray = zeros_as<CUarray>();, (made(s))),
    WRONG(cuMemcpy3D_v2, "NULL description", 1, kMemory, kContext, (nullptr)),
    WRONG(cuMemcpy3D_v2, "description of zeros", 1, kMemory, kContext, (s.zeroed<CUDA_MEMCPY3D>())),
    WRONG(cuMemcpyPeer, "unknown contexts", 201, kMemory, kContext,
          (s.memory, zeros_as<CUcontext>(), s.memory + 4096, zeros_as<CUcontext>(), 16)),
    WRONG(cuMemcpyAtoH_v2, "array NULL", 400, kMemory, kContext, (s.scratch, nullptr, 0, 16)),
};

}  // namespace

std::span<const WrongCall> wrong_copy_calls() { return kCalls; }

std::span<const WrongCall> wrong_calls(unsigned list) {
  switch (list) {
    case 0:
      return wrong_context_calls();
    case 1:
      return wrong_memory_calls();
    case 2:
      return wrong_copy_calls();
    case 3:
      return wrong_stream_calls();
    case 4:
      return wrong_module_calls();
    case 5:
      return wrong_graph_calls();
    default:
      return {};
  }
}

}  // namespace gpurun::probe
