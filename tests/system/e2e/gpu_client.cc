// gpu_client: a CUDA program of few calls for the end-to-end tests. It knows nothing of gpurun. Its
// exit status is the result of its last call, or 1 when an earlier one failed. Its argument selects
// the work:
//   once         uses the GPU.
//   wait         uses the GPU, prints "ready", waits for a line, uses the GPU again.
//   load BYTES   loads an image of at least so many bytes and finds its kernel.
//   where        prints cuInit's result and the file that cuInit came from.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "driver_abi/cuda_abi.h"
#include "tests/support/cuda.h"

namespace {

void make_context() {
  CUcontext context = nullptr;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
}

// Waits for recorded work, because a wait for an idle device may return without the server.
CUresult work() {
  CUevent event = nullptr;
  const CUresult made = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  if (made != CUDA_SUCCESS) return made;
  const CUresult recorded = cuEventRecord(event, nullptr);
  return recorded != CUDA_SUCCESS ? recorded : cuCtxSynchronize();
}

int use_gpu(bool wait) {
  make_context();
  if (wait) {
    MUST(work());
    std::puts("ready");
    std::fflush(stdout);
    while (true) {  // Reads until the line or the input ends.
      const int character = std::getchar();
      if (character == '\n' || character == EOF) break;
    }
  }
  return work();
}

int load(std::size_t bytes) {
  make_context();
  const std::string image = ".version 8.0\n.target sm_80\n.address_size 64\n// " +
                            std::string(bytes, 'x') +
                            "\n.visible .entry axpy(.param .u64 a, .param .u32 n)\n{\n ret;\n}\n";
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  MUST(cuModuleLoadData(&module, image.c_str()));
  MUST(cuModuleGetFunction(&function, module, "axpy"));
  return cuCtxSynchronize();
}

int where() {
  const CUresult started = cuInit(0);
  Dl_info library = {};
  if (dladdr(reinterpret_cast<void*>(&cuInit), &library) == 0) return 1;
  std::printf("%d %s\n", static_cast<int>(started), library.dli_fname);
  return started;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "once" || what == "wait") return use_gpu(what == "wait");
  if (what == "load" && argc == 3) return load(std::strtoul(argv[2], nullptr, 10));
  if (what == "where") return where();
  return 2;
}
