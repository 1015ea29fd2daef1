// Host pointers: a kernel gets a pointer to host memory, which a local device can access.
#include <sys/mman.h>

#include "tests/system/process/cases.h"

namespace process_cases {
namespace {

// Writes through its second parameter if the first is not 0. The third starts with another pointer
// at its second word. The kernel writes through that one if the first parameter is 2.
constexpr const char* kImage = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry touch(.param .u32 follow, .param .u64 to, .param .align 8 .b8 pair[16])
{
 .reg .pred %p<3>;
 .reg .b32 %r<3>;
 .reg .b64 %rd<5>;
 ld.param.u32 %r1, [follow];
 setp.eq.u32 %p1, %r1, 0;
 @%p1 bra DONE;
 ld.param.u64 %rd1, [to];
 setp.eq.u32 %p2, %r1, 1;
 @%p2 bra STORE;
 ld.param.u64 %rd1, [pair+8];
STORE:
 cvta.to.global.u64 %rd2, %rd1;
 mov.u32 %r2, 7;
 st.global.u32 [%rd2], %r2;
DONE:
 ret;
}
)";

struct Arguments {
  unsigned follow = 1;
  CUdeviceptr to = 0;
  CUdeviceptr pair[2] = {};
};

void launch(CUfunction kernel, Arguments& with, bool as_graph) {
  void* parameters[] = {&with.follow, &with.to, with.pair};
  if (!as_graph) {
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    return;
  }
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = kernel;
  node.gridDimX = node.gridDimY = node.gridDimZ = 1;
  node.blockDimX = node.blockDimY = node.blockDimZ = 1;
  node.kernelParams = parameters;
  CUgraph graph = nullptr;
  CUgraphNode made = nullptr;
  CUgraphExec executable = nullptr;
  MUST(cuGraphCreate(&graph, 0));
  MUST(cuGraphAddKernelNode_v2(&made, graph, nullptr, 0, &node));
  MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
  MUST(cuGraphLaunch(executable, nullptr));
}

}  // namespace

// Word: the kernel's argument. Prints the result of a wait for the kernel.
void host_pointer() {
  use_device();
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  MUST(cuModuleLoadData(&module, kImage));
  MUST(cuModuleGetFunction(&kernel, module, "touch"));
  constexpr std::size_t kBytes = 4096;
  void* pinned = nullptr;
  MUST(cuMemHostAlloc(&pinned, kBytes, CU_MEMHOSTALLOC_PORTABLE));
  CUdeviceptr device = 0;
  MUST(cuMemAlloc_v2(&device, kBytes));
  const auto host = reinterpret_cast<CUdeviceptr>(pinned) + 64;
  const std::string what = word(0);
  Arguments arguments;
  arguments.to = host;
  if (what == "structure") {
    arguments = {2, device, {0, host}};
  } else if (what == "registered") {
    void* plain = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(plain != MAP_FAILED);
    MUST(cuMemHostRegister_v2(plain, kBytes, 0));
    arguments.to = reinterpret_cast<CUdeviceptr>(plain);
  } else if (what == "not-followed") {
    arguments.follow = 0;
  } else if (what == "wild") {
    arguments.to = 64;
  } else if (what == "device") {
    arguments.to = device;
  }
  launch(kernel, arguments, what == "graph");
  say("the wait answers " + std::to_string(cuCtxSynchronize()) + "\n");
  if (what == "device") return;
  for (int again = 0; again < 2; ++again) static_cast<void>(cuCtxSynchronize());
}

}  // namespace process_cases
