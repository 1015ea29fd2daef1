// Without a context: calls of a thread that has no current one. It matters to libraries with helper
// threads that wait for streams, query events and free memory of another thread (DALI queries a
// stream's context). Handles and addresses imply their context. A call that works in "the current
// context" is refused. Its word: the image.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // Of the old calls.
#include <cstring>

#include "driver_test.h"

namespace {

int g_wrong = 0;

void compare(const char* call, CUresult got, CUresult right) {
  std::printf("%-60s %d\n", call, static_cast<int>(got));
  if (got == right) return;
  std::printf("  should be %d\n", static_cast<int>(right));
  ++g_wrong;
}
#define WORKS(call) compare(#call, call, CUDA_SUCCESS)
#define REFUSED(call) compare(#call, call, CUDA_ERROR_INVALID_CONTEXT)

struct World {
  const Device& device;
  CUstream stream, special = nullptr;
  CUevent event, second;
  CUdeviceptr memory, other, pooled;
  void* pinned;
  CUarray array;
  CUmodule module;
  CUfunction fill;
  CUgraph graph;
  CUgraphExec exec;
};

void streams_and_events(World& w) {
  CUcontext context = nullptr;
  CUdevice device = -1;
  unsigned flags = 0;
  int priority = 1;
  unsigned long long id = 0;
  float ms = -1;
  CUstreamCaptureStatus status;
  WORKS(cuStreamGetCtx(w.stream, &context));
  EXPECT(context == w.device.context);
  WORKS(cuStreamGetDevice(w.stream, &device));
  EXPECT(device == w.device.device);
  WORKS(cuStreamGetFlags(w.stream, &flags));
  EXPECT(flags == CU_STREAM_NON_BLOCKING);
  WORKS(cuStreamGetPriority(w.stream, &priority));
  WORKS(cuStreamGetId(w.stream, &id));
  WORKS(cuStreamIsCapturing(w.stream, &status));
  WORKS(cuEventRecord(w.event, w.stream));
  WORKS(cuEventRecord(w.second, w.stream));
  WORKS(cuStreamWaitEvent(w.stream, w.event, 0));
  WORKS(cuEventSynchronize(w.second));
  WORKS(cuEventQuery(w.event));
  WORKS(cuEventElapsedTime(&ms, w.event, w.second));
  EXPECT(ms >= 0);
  WORKS(cuStreamSynchronize(w.stream));
  WORKS(cuStreamQuery(w.stream));
  for (CUstream special : {CUstream(nullptr), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    w.special = special;
    REFUSED(cuStreamGetCtx(w.special, &context));
    REFUSED(cuStreamGetId(w.special, &id));
    REFUSED(cuStreamGetFlags(w.special, &flags));
    REFUSED(cuEventRecord(w.event, w.special));
    REFUSED(cuStreamSynchronize(w.special));
    REFUSED(cuStreamQuery(w.special));
    REFUSED(cuMemsetD8Async(w.memory, 0, 4, w.special));
    REFUSED(cuStreamWaitEvent(w.special, w.event, 0));
  }
}

void work(World& w) {
  unsigned words[4] = {1, 2, 3, 4}, back[4] = {}, count = 4, value = 9;
  CUdeviceptr allocated = 0;
  WORKS(cuMemcpyHtoDAsync(w.memory, words, 16, w.stream));
  WORKS(cuMemsetD32Async(w.memory, 7, 2, w.stream));
  WORKS(cuMemcpyDtoDAsync(w.other, w.memory, 16, w.stream));
  WORKS(cuMemcpyDtoHAsync(back, w.other, 16, w.stream));
  WORKS(cuStreamSynchronize(w.stream));
  EXPECT(back[0] == 7 && back[1] == 7 && back[2] == 3 && back[3] == 4);
  void* arguments[] = {&w.memory, &count, &value};
  WORKS(cuLaunchKernel(w.fill, 1, 1, 1, 4, 1, 1, 0, w.stream, arguments, nullptr));
  WORKS(cuMemcpyAsync(w.other, w.memory, 16, w.stream));
  WORKS(cuMemcpyDtoHAsync(back, w.other, 16, w.stream));
  WORKS(cuMemAllocAsync(&allocated, 4096, w.stream));
  WORKS(cuMemFreeAsync(allocated, w.stream));
  WORKS(cuGraphLaunch(w.exec, w.stream));
  WORKS(cuStreamSynchronize(w.stream));
  EXPECT(back[0] == 9 && back[3] == 12);
  REFUSED(cuMemcpyHtoD(w.memory, words, 16));
  REFUSED(cuMemcpyDtoH(back, w.memory, 16));
  REFUSED(cuMemsetD8(w.memory, 0, 16));
  REFUSED(cuLaunchKernel(w.fill, 1, 1, 1, 4, 1, 1, 0, nullptr, arguments, nullptr));
  REFUSED(cuMemAllocAsync(&allocated, 4096, nullptr));
  REFUSED(cuGraphLaunch(w.exec, nullptr));
}

void makers(World& w, const char* image) {
  CUstream stream;
  CUevent event;
  CUdeviceptr memory;
  CUmodule module;
  void* pinned;
  size_t bytes;
  REFUSED(cuStreamCreate(&stream, 0));
  REFUSED(cuEventCreate(&event, 0));
  REFUSED(cuMemAlloc(&memory, 16));
  REFUSED(cuMemHostAlloc(&pinned, 16, 0));
  REFUSED(cuMemGetInfo(&bytes, &bytes));
  REFUSED(cuModuleLoad(&module, image));
  REFUSED(cuCtxSynchronize());
  static_cast<void>(w);
}

void modules_and_memory(World& w) {
  CUfunction function;
  CUmodule module = nullptr;
  const char* name = nullptr;
  int threads = 0;
  size_t offset = 0, bytes = 0;
  unsigned flags = 9;
  CUdeviceptr base = 0;
  CUDA_ARRAY_DESCRIPTOR descriptor;
  CUmemorytype type;
  WORKS(cuModuleGetFunction(&function, w.module, "fill"));
  WORKS(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, w.fill));
  EXPECT(threads > 0);
  WORKS(cuFuncGetModule(&module, w.fill));
  EXPECT(module == w.module);
  WORKS(cuFuncGetName(&name, w.fill));
  EXPECT(std::strcmp(name, "fill") == 0);
  WORKS(cuFuncGetParamInfo(w.fill, 1, &offset, &bytes));
  WORKS(cuFuncSetCacheConfig(w.fill, CU_FUNC_CACHE_PREFER_L1));
  WORKS(cuFuncSetBlockShape(w.fill, 4, 1, 1));
  REFUSED(cuLaunch(w.fill));
  WORKS(cuArrayGetDescriptor(&descriptor, w.array));
  EXPECT(descriptor.Width == 16);
  WORKS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, w.memory));
  WORKS(cuMemGetAddressRange(&base, &bytes, w.memory + 4));
  EXPECT(base == w.memory && bytes == 4096);
  WORKS(cuMemHostGetFlags(&flags, w.pinned));
}

void ends(World& w) {
  WORKS(cuGraphExecDestroy(w.exec));
  WORKS(cuGraphDestroy(w.graph));
  WORKS(cuArrayDestroy(w.array));
  WORKS(cuModuleUnload(w.module));
  WORKS(cuMemFreeHost(w.pinned));
  WORKS(cuMemFree(w.memory));
  WORKS(cuMemFree(w.pooled));
  WORKS(cuEventDestroy(w.event));
  WORKS(cuEventDestroy(w.second));
  WORKS(cuStreamDestroy(w.stream));
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  end_after(60);
  const Device device(argv[1]);
  World w{device,
          Device::stream(CU_STREAM_NON_BLOCKING),
          nullptr,
          Device::event(),
          Device::event(),
          Device::memory(4096),
          Device::memory(4096)};
  MUST(cuMemAllocAsync(&w.pooled, 4096, w.stream));
  MUST(cuMemHostAlloc(&w.pinned, 4096, 0));
  const CUDA_ARRAY_DESCRIPTOR descriptor{16, 1, CU_AD_FORMAT_FLOAT, 1};
  MUST(cuArrayCreate(&w.array, &descriptor));
  MUST(cuModuleLoad(&w.module, argv[1]));
  MUST(cuModuleGetFunction(&w.fill, w.module, "fill"));
  CUgraphNode node;
  MUST(cuGraphCreate(&w.graph, 0));
  MUST(cuGraphAddEmptyNode(&node, w.graph, nullptr, 0));
  MUST(cuGraphInstantiate(&w.exec, w.graph, 0));
  MUST(cuStreamSynchronize(w.stream));

  MUST(cuCtxSetCurrent(nullptr));
  streams_and_events(w);
  work(w);
  makers(w, argv[1]);
  modules_and_memory(w);
  ends(w);
  CUcontext current = device.context;
  MUST(cuCtxGetCurrent(&current));
  EXPECT(current == nullptr);
  EXPECT(g_wrong == 0);
  std::printf("PASSED\n");
  return 0;
}
