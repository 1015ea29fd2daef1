// Driver API: output of kernels appears at each call that the Programming Guide names under
// "Formatted Output", also when the kernel was complete before the call. It appears before the
// program's own later output.
#include <cuda.h>

#include <initializer_list>

#include "tests/support/cuda.h"

namespace {

CUfunction g_say;

void say(CUstream stream, int number) {
  void* arguments[] = {&number};
  MUST(cuLaunchKernel(g_say, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
}

// Returns when the kernel is complete, without a query that would show its output.
void settle(CUstream stream) {
  CUresult state;
  while ((state = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
  }
  MUST(state);
}

void after(const char* what) { std::printf("after %s\n", what); }

CUmodule load(const char* path) {
  CUmodule module;
  MUST(cuModuleLoad(&module, path));
  MUST(cuModuleGetFunction(&g_say, module, "say"));
  return module;
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2);  // The module's file.
  MUST(cuInit(0));
  CUcontext context;
  MUST(cuCtxCreate(&context, nullptr, 0, 0));
  CUmodule module = load(argv[1]);
  CUstream stream;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUevent event;
  MUST(cuEventCreate(&event, CU_EVENT_DEFAULT));
  CUdeviceptr memory;
  MUST(cuMemAlloc(&memory, 4));
  unsigned word = 0;

  for (const bool complete : {true, false}) {
    const auto ready = [&](CUstream of) {
      if (complete) settle(of);
    };
    say(nullptr, 1), ready(nullptr);
    MUST(cuStreamSynchronize(nullptr)), after("the legacy stream");
    say(stream, 2), ready(stream);
    MUST(cuStreamSynchronize(stream)), after("a stream");
    say(CU_STREAM_PER_THREAD, 3), ready(CU_STREAM_PER_THREAD);
    MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD)), after("the thread's stream");
    say(stream, 4);
    MUST(cuEventRecord(event, stream));
    ready(stream);
    MUST(cuEventSynchronize(event)), after("an event");
    say(nullptr, 5), ready(nullptr);
    MUST(cuMemcpyDtoH(&word, memory, 4)), after("a copy");
    say(stream, 6), ready(stream);
    MUST(cuCtxSynchronize()), after("the context");
  }
  say(nullptr, 7), settle(nullptr);
  MUST(cuModuleUnload(module)), after("a module's end");
  module = load(argv[1]);
  say(stream, 8);
  MUST(cuCtxDestroy(context)), after("the context's end");
  std::printf("PASSED\n");
  return 0;
}
