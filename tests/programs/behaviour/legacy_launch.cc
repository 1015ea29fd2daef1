// Legacy launch calls from before CUDA 4 (cuFuncSetBlockShape, cuParamSetv, cuLaunchGridAsync,
// ...), which PyCUDA makes. A kernel gets shape, shared memory and parameters from them. A wrong
// one fails at the call and has no effect on a later one. Its word: the image.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // Of the old calls.
#include <vector>

#include "driver_test.h"

namespace {

// One 1 in each word of the grid: block x + width * block y, thread x and y.
const char kWhere[] = R"ptx(
.version 7.0
.target sm_70
.address_size 64
.visible .entry where(.param .u64 out, .param .f32 scale, .param .u32 add)
{
  .reg .b64 %a, %o;
  .reg .b32 %w, %x, %y, %i, %n, %v;
  .reg .f32 %s, %f;
  ld.param.u64 %a, [out];
  ld.param.f32 %s, [scale];
  ld.param.u32 %v, [add];
  mov.u32 %x, %ctaid.x;
  mov.u32 %y, %ctaid.y;
  mov.u32 %w, %nctaid.x;
  mad.lo.u32 %i, %y, %w, %x;
  mov.u32 %n, %ntid.x;
  mov.u32 %x, %tid.x;
  mad.lo.u32 %i, %i, %n, %x;
  cvt.rn.f32.u32 %f, %i;
  mul.f32 %f, %f, %s;
  cvt.rzi.u32.f32 %n, %f;
  add.u32 %n, %n, %v;
  mul.wide.u32 %o, %i, 4;
  add.u64 %a, %a, %o;
  st.global.u32 [%a], %n;
  ret;
}
)ptx";

constexpr int kOut = 0, kScale = 8, kAdd = 12, kBytes = 16;

void expect_words(CUdeviceptr memory, unsigned count, unsigned add) {
  std::vector<unsigned> words(count + 1, 0);
  MUST(cuMemcpyDtoH(words.data(), memory, 4 * (count + 1)));
  for (unsigned i = 0; i < count; ++i) EXPECT(words[i] == 2 * i + add);
  EXPECT(words[count] == 0);
  MUST(cuMemsetD8(memory, 0, 4 * (count + 1)));
  MUST(cuCtxSynchronize());  // A non-blocking stream does not wait for it.
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  end_after(60);
  const Device device(argv[1]);
  CUmodule module;
  CUfunction where;
  MUST(cuModuleLoadData(&module, kWhere));
  MUST(cuModuleGetFunction(&where, module, "where"));
  CUdeviceptr memory = Device::memory(1 << 16);
  MUST(cuMemsetD8(memory, 0, 1 << 16));

  // Without a block shape, and with the parameters too short.
  EXPECT(cuLaunch(where) == CUDA_ERROR_INVALID_VALUE);
  MUST(cuFuncSetBlockShape(where, 4, 1, 1));
  EXPECT(cuLaunch(where) == CUDA_ERROR_INVALID_VALUE);

  MUST(cuParamSetv(where, kOut, &memory, sizeof memory));
  MUST(cuParamSetf(where, kScale, 2.0f));
  MUST(cuParamSeti(where, kAdd, 5));
  MUST(cuParamSetSize(where, kBytes));
  MUST(cuFuncSetSharedSize(where, 1024));
  MUST(cuLaunch(where));
  expect_words(memory, 4, 5);
  MUST(cuLaunchGrid(where, 3, 2));
  expect_words(memory, 24, 5);

  // Settings persist, and each may be set again.
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  MUST(cuParamSeti(where, kAdd, 7));
  MUST(cuLaunchGridAsync(where, 5, 5, stream));
  MUST(cuParamSeti(where, kAdd, 9));  // The launch has its own copy.
  MUST(cuStreamSynchronize(stream));
  expect_words(memory, 100, 7);
  // Captured, as any launch in a stream.
  CUgraph graph;
  CUgraphExec exec;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  MUST(cuLaunchGridAsync(where, 2, 1, stream));
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiate(&exec, graph, 0));
  expect_words(memory, 0, 0);
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuStreamSynchronize(stream));
  expect_words(memory, 8, 9);

  // Wrong ones fail at the call.
  EXPECT(cuFuncSetBlockShape(where, 0, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuLaunchGrid(where, 0, 1) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuLaunchGrid(where, -1, 1) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuParamSetv(where, -4, &memory, 4) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuParamSetv(where, 32764, &memory, 4) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuParamSetv(where, 0, nullptr, 4) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuParamSetSize(where, 32765) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuLaunch(nullptr) == CUDA_ERROR_INVALID_HANDLE);
  EXPECT(cuFuncSetSharedSize(nullptr, 0) == CUDA_ERROR_INVALID_HANDLE);
  MUST(cuFuncSetBlockShape(where, 2048, 1, 1));
  EXPECT(cuLaunch(where) == CUDA_ERROR_INVALID_VALUE);
  MUST(cuCtxSynchronize());
  expect_words(memory, 0, 0);
  std::printf("PASSED\n");
  return 0;
}
