// Driver API: failures and their effects. Every later call on the lost context returns the fault,
// in every thread, and no other context does. Ending the context ends the fault. Images that cannot
// be loaded give a reason. A failed creation stays failed. Prints all codes.
#include <cuda.h>

#include <cstring>
#include <thread>

#include "tests/support/cuda.h"

using cuda_check::name_of;

namespace {

const char kKernels[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry bad_address()
{
  .reg .u64 %a;
  .reg .u32 %v;
  mov.u64 %a, 16;
  mov.u32 %v, 1;
  st.global.u32 [%a], %v;
  ret;
}
.visible .entry fall_in_trap() { trap; ret; }
)";

CUcontext new_context() {
  CUcontext made;
#if CUDA_VERSION >= 13000
  MUST(cuCtxCreate(&made, nullptr, 0, 0));
#else
  MUST(cuCtxCreate(&made, 0, 0));
#endif
  return made;
}

void show(const char* who, const char* what, CUresult code) {
  std::printf("%s: %s: %s\n", who, what, name_of(code));
}

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  MUST(cuMemGetInfo(&free, &total));
  return free;
}

CUresult launch(CUmodule module, const char* kernel, CUstream stream) {
  CUfunction function;
  MUST(cuModuleGetFunction(&function, module, kernel));
  return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
}

// The calls that a program may try on a lost context.
void try_all(const char* who, CUmodule module, CUstream stream, CUevent event, CUdeviceptr memory) {
  char bytes[16] = {};
  CUdeviceptr more = 0;
  CUfunction function;
  CUstream made;
  show(who, "wait for the stream", cuStreamSynchronize(stream));
  show(who, "wait for the context", cuCtxSynchronize());
  show(who, "ask the event", cuEventQuery(event));
  show(who, "copy out", cuMemcpyDtoH(bytes, memory, sizeof bytes));
  show(who, "copy in", cuMemcpyHtoD(memory, bytes, sizeof bytes));
  show(who, "allocate", cuMemAlloc(&more, 16));
  show(who, "a stream", cuStreamCreate(&made, 0));
  show(who, "a kernel", cuModuleGetFunction(&function, module, "nothing"));
  show(who, "free", cuMemFree(memory));
}

// A context that a kernel loses, beside one that lives on.
void lose_a_context(const char* kernel, bool by_another_thread) {
  std::printf("== %s\n", kernel);
  const CUcontext healthy = new_context();
  CUdeviceptr healthy_memory = 0;
  MUST(cuMemAlloc(&healthy_memory, 4096));
  const std::size_t free_before = free_bytes();
  const CUcontext lost = new_context();
  CUmodule module;
  CUstream stream;
  CUevent event;
  CUdeviceptr memory = 0;
  MUST(cuModuleLoadData(&module, kKernels));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuEventCreate(&event, 0));
  MUST(cuMemAlloc(&memory, std::size_t{96} << 20));
  MUST(cuCtxSynchronize());
  const auto fault = [&] {
    MUST(cuCtxSetCurrent(lost));
    show("who faults", "launch", launch(module, kernel, stream));
    show("who faults", "first fence", cuStreamSynchronize(stream));
  };
  if (by_another_thread) {
    std::thread(fault).join();
  } else {
    fault();
  }
  try_all("first thread", module, stream, event, memory);
  std::thread([&] {
    MUST(cuCtxSetCurrent(lost));
    try_all("second thread", module, stream, event, memory);
    // The other context is not affected.
    MUST(cuCtxSetCurrent(healthy));
    MUST(cuMemsetD8(healthy_memory, 7, 4096));
    MUST(cuCtxSynchronize());
  }).join();
  MUST(cuCtxSetCurrent(healthy));
  unsigned char byte = 0;
  MUST(cuMemcpyDtoH(&byte, healthy_memory, 1));
  EXPECT(byte == 7);
  show("healthy", "end of the lost one", cuCtxDestroy(lost));
  MUST(cuCtxSynchronize());
  EXPECT(free_bytes() == free_before);
  // A new context starts without the fault.
  const CUcontext anew = new_context();
  MUST(cuModuleLoadData(&module, kKernels));
  MUST(launch(module, "nothing", nullptr));
  MUST(cuCtxSynchronize());
  MUST(cuCtxDestroy(anew));
  MUST(cuCtxDestroy(healthy));
}

// A primary context is lost, and works again after a reset.
void lose_the_primary_context() {
  std::printf("== primary context\n");
  CUcontext primary;
  CUmodule module;
  CUdeviceptr memory = 0;
  MUST(cuDevicePrimaryCtxRetain(&primary, 0));
  MUST(cuCtxSetCurrent(primary));
  MUST(cuModuleLoadData(&module, kKernels));
  MUST(launch(module, "bad_address", nullptr));
  show("primary", "fence", cuCtxSynchronize());
  show("primary", "allocate", cuMemAlloc(&memory, 16));
  show("primary", "reset", cuDevicePrimaryCtxReset(0));
  MUST(cuDevicePrimaryCtxRelease(0));
  MUST(cuDevicePrimaryCtxRetain(&primary, 0));
  MUST(cuCtxSetCurrent(primary));
  MUST(cuMemAlloc(&memory, 16));
  MUST(cuMemFree(memory));
  MUST(cuDevicePrimaryCtxRelease(0));
}

// Loads each image twice. At the second load it is known.
void load_what_cannot_be() {
  const struct {
    const char* name;
    const char* text;
  } kImages[] = {
      {"no code", "this is no code at all"},
      {"later version", ".version 99.0\n.target sm_80\n.address_size 64\n"},
      {"later device", ".version 8.0\n.target sm_999\n.address_size 64\n"},
      {"unclosed body",
       ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret;"},
  };
  for (int round = 0; round < 2; ++round) {
    for (const auto& image : kImages) {
      char log[256] = {};
      CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
      void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
      CUmodule module = nullptr;
      CUlibrary library = nullptr;
      show(image.name, "load", cuModuleLoadData(&module, image.text));
      show(image.name, "load, with a log",
           cuModuleLoadDataEx(&module, image.text, 2, options, values));
      std::printf("%s: log of %zu bytes: %s\n", image.name,
                  reinterpret_cast<std::size_t>(values[1]), log);
      EXPECT(std::strlen(log) > 0 && module == nullptr);
      show(image.name, "as library",
           cuLibraryLoadData(&library, image.text, nullptr, nullptr, 0, nullptr, nullptr, 0));
      show(image.name, "afterwards", cuCtxSynchronize());
    }
  }
}

// A node that cannot be created. Its creator and every other user get the error, and nothing else
// is affected.
void use_what_was_not_made() {
  CUgraph graph, other;
  CUgraphNode of_other, node = nullptr;
  MUST(cuGraphCreate(&graph, 0));
  MUST(cuGraphCreate(&other, 0));
  MUST(cuGraphAddEmptyNode(&of_other, other, nullptr, 0));
  const auto use = [&](const char* who) {
    CUgraphNodeType type;
    show(who, "use", cuGraphNodeGetType(node, &type));
  };
  CUresult made = cuGraphAddEmptyNode(&node, graph, &of_other, 1);
  if (made == CUDA_SUCCESS) made = cuCtxSynchronize();  // The next fence returns the failure.
  show("who makes it", "make", made);
  use("who makes it");
  use("who makes it, again");
  std::thread([&] {
    CUcontext primary;
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    use("another");
    MUST(cuDevicePrimaryCtxRelease(0));
  }).join();
  show("who makes it", "fence", cuCtxSynchronize());
  MUST(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  use("one that was made");
  MUST(cuGraphDestroy(other));
  MUST(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  MUST(cuInit(0));
  lose_a_context("bad_address", false);
  lose_a_context("fall_in_trap", true);
  lose_the_primary_context();
  const CUcontext context = new_context();
  load_what_cannot_be();
  use_what_was_not_made();
  MUST(cuCtxDestroy(context));
  std::printf("PASSED\n");
  return 0;
}
