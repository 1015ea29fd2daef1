// Copy structures: copies that a structure describes, of two and three dimensions.
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/copy_description.h"
#include "client/interpose/driver/run_copy.h"

namespace gpurun::client::interpose {
namespace {

CUresult run(std::uint16_t code, const DescribedCopy& in, CUstream given, Waiting waiting) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Handle stream = 0;
  if (const int result = resolve_stream(here, given, &stream); result != 0) return cuda(result);
  for (const CUmemorytype type : {in.from.type, in.to.type}) {
    if (type < CU_MEMORYTYPE_HOST || type > CU_MEMORYTYPE_UNIFIED) return CUDA_ERROR_INVALID_VALUE;
  }
  Copy copy = in.copy;
  if (copy.width == 0 || copy.lines == 0 || copy.slices == 0) {
    return cuda(here.session().health(here.context->handle));
  }
  if (const int result = resolve_sides(here, in, &copy); result != 0) return cuda(result);
  return cuda(run_copy(here, code, stream, copy, waiting));
}

CUresult copy_2d(std::uint16_t code, const CUDA_MEMCPY2D* given, CUstream stream, Waiting waiting) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return run(code, described(*given), stream, waiting);
}

CUresult copy_3d(std::uint16_t code, const CUDA_MEMCPY3D* given, CUstream stream, Waiting waiting) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const DescribedCopy in = described(*given);
  if (!in.sound) return CUDA_ERROR_INVALID_VALUE;
  return run(code, in, stream, waiting);
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) {
  return copy_2d(opcode::cuMemcpy2D_v2, copy, nullptr, Waiting::kSynchronous);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) {
  return copy_2d(opcode::cuMemcpy2DUnaligned_v2, copy, nullptr, Waiting::kSynchronous);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return copy_2d(opcode::cuMemcpy2DAsync_v2, copy, stream, Waiting::kAsynchronous);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) {
  return copy_3d(opcode::cuMemcpy3D_v2, copy, nullptr, Waiting::kSynchronous);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return copy_3d(opcode::cuMemcpy3DAsync_v2, copy, stream, Waiting::kAsynchronous);
}

}  // namespace gpurun::client::interpose::custom
