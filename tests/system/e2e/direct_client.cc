// direct_client: a CUDA program with kernels around large copies of pinned memory. A slow kernel
// before a copy reads the old bytes of its destination, and one right behind it reads the new ones.
// With "views", kernels read results of copies by the device's address of pinned memory. It knows
// nothing of gpurun. usage: direct_client BYTES [views]. Prints "right", or what is wrong.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "tests/support/cuda.h"

namespace {

// slow() counts for a while before it copies words. add() writes each word, and 1 more.
constexpr const char* kPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry slow(.param .u64 from, .param .u64 to, .param .u32 words, .param .u32 rounds)
{
  .reg .pred %p;
  .reg .u32 %w, %r, %i, %t;
  .reg .u64 %f, %o;
  ld.param.u64 %f, [from];
  ld.param.u64 %o, [to];
  ld.param.u32 %w, [words];
  ld.param.u32 %r, [rounds];
  mov.u32 %i, 0;
  mov.u32 %t, 0;
WAIT:
  mad.lo.u32 %t, %t, 1664525, %i;
  add.u32 %i, %i, 1;
  setp.lt.u32 %p, %i, %r;
  @%p bra WAIT;
  and.b32 %t, %t, 0;
  mov.u32 %i, 0;
COPY:
  ld.global.u32 %r, [%f];
  add.u32 %r, %r, %t;
  st.global.u32 [%o], %r;
  add.u64 %f, %f, 4;
  add.u64 %o, %o, 4;
  add.u32 %i, %i, 1;
  setp.lt.u32 %p, %i, %w;
  @%p bra COPY;
  ret;
}
.visible .entry add(.param .u64 from, .param .u64 to, .param .u32 words)
{
  .reg .pred %p;
  .reg .u32 %w, %r, %i;
  .reg .u64 %f, %o;
  ld.param.u64 %f, [from];
  ld.param.u64 %o, [to];
  ld.param.u32 %w, [words];
  mov.u32 %i, 0;
COPY:
  ld.global.u32 %r, [%f];
  add.u32 %r, %r, 1;
  st.global.u32 [%o], %r;
  add.u64 %f, %f, 4;
  add.u64 %o, %o, 4;
  add.u32 %i, %i, 1;
  setp.lt.u32 %p, %i, %w;
  @%p bra COPY;
  ret;
}
)";
constexpr unsigned kRounds = 30'000'000;
constexpr unsigned kOld = 0xabababab;

struct Parts {
  std::size_t bytes = 0;
  CUstream stream = nullptr;
  CUfunction slow = nullptr;
  CUfunction add = nullptr;
  unsigned* source = nullptr;  // Pinned.
  unsigned words() const { return static_cast<unsigned>(bytes / 4); }
};

void launch(const Parts& parts, CUfunction function, CUdeviceptr from, CUdeviceptr to,
            unsigned rounds) {
  unsigned words = parts.words();
  void* arguments[] = {&from, &to, &words, &rounds};
  MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, parts.stream, arguments, nullptr));
}

void fill(const Parts& parts, unsigned seed) {
  for (unsigned i = 0; i < parts.words(); ++i) parts.source[i] = i * 2654435761U + seed;
}

// Whether the words at `device` are the source's and `more`, or all `kOld`.
bool holds(const Parts& parts, CUdeviceptr device, unsigned more, bool old, const char* what) {
  std::vector<unsigned> got(parts.words());
  MUST(cuMemcpyDtoH_v2(got.data(), device, parts.bytes));
  for (unsigned i = 0; i < parts.words(); ++i) {
    const unsigned wanted = old ? kOld : parts.source[i] + more;
    if (got[i] == wanted) continue;
    std::printf("%s: word %u is %x and not %x\n", what, i, got[i], wanted);
    return false;
  }
  return true;
}

// The copy's memory is freed right behind the kernel that uses it.
bool between_kernels(const Parts& parts, unsigned seed) {
  CUdeviceptr memory = 0, before = 0, after = 0;
  MUST(cuMemAlloc_v2(&memory, parts.bytes));
  MUST(cuMemAlloc_v2(&before, parts.bytes));
  MUST(cuMemAlloc_v2(&after, parts.bytes));
  MUST(cuMemsetD32_v2(memory, kOld, parts.words()));
  MUST(cuCtxSynchronize());  // The stream does not wait for the legacy one.
  fill(parts, seed);
  launch(parts, parts.slow, memory, before, kRounds);
  MUST(cuMemcpyHtoDAsync_v2(memory, parts.source, parts.bytes, parts.stream));
  launch(parts, parts.add, memory, after, 0);
  MUST(cuMemFree_v2(memory));
  MUST(cuStreamSynchronize(parts.stream));
  const bool right = holds(parts, before, 0, true, "the kernel before the copy") &&
                     holds(parts, after, 1, false, "the kernel behind the copy");
  MUST(cuMemFree_v2(before));
  MUST(cuMemFree_v2(after));
  return right;
}

// Nothing runs before the copy.
bool in_idle_stream(const Parts& parts, unsigned seed) {
  CUdeviceptr memory = 0, after = 0;
  MUST(cuMemAlloc_v2(&memory, parts.bytes));
  MUST(cuMemAlloc_v2(&after, parts.bytes));
  bool right = true;
  for (unsigned round = 0; right && round < 3; ++round) {
    fill(parts, seed + round);
    MUST(cuMemcpyHtoDAsync_v2(memory, parts.source, parts.bytes, parts.stream));
    launch(parts, parts.add, memory, after, 0);
    MUST(cuStreamSynchronize(parts.stream));
    right = holds(parts, memory, 0, false, "the copy") &&
            holds(parts, after, 1, false, "the kernel behind the copy in an idle stream");
  }
  MUST(cuMemFree_v2(memory));
  MUST(cuMemFree_v2(after));
  return right;
}

// A kernel gets the device's address of memory to which a copy is under way.
bool through_view(const Parts& parts, bool registers) {
  std::vector<unsigned> own(registers ? parts.words() : 0);
  void* memory = own.data();
  CUdeviceptr device = 0, after = 0, view = 0;
  if (registers) {
    MUST(cuMemHostRegister_v2(memory, parts.bytes, 0));
  } else {
    MUST(cuMemHostAlloc(&memory, parts.bytes, 0));
  }
  std::memset(memory, 0, parts.bytes);
  MUST(cuMemAlloc_v2(&device, parts.bytes));
  MUST(cuMemAlloc_v2(&after, parts.bytes));
  fill(parts, 11);
  MUST(cuMemcpyHtoD_v2(device, parts.source, parts.bytes));
  MUST(cuMemcpyDtoHAsync_v2(memory, device, parts.bytes, parts.stream));
  MUST(cuMemHostGetDevicePointer_v2(&view, memory, 0));
  launch(parts, parts.add, view, after, 0);
  MUST(cuStreamSynchronize(parts.stream));
  bool right = holds(parts, after, 1, false, "the kernel that reads the result");
  // The device's own copy to what it reaches.
  MUST(cuMemcpyDtoHAsync_v2(memory, after, parts.bytes, parts.stream));
  launch(parts, parts.add, view, after, 0);
  MUST(cuStreamSynchronize(parts.stream));
  right = right && holds(parts, after, 2, false, "the kernel that reads the next result");
  right = right &&
          static_cast<unsigned*>(memory)[parts.words() - 1] == parts.source[parts.words() - 1] + 1;
  MUST(registers ? cuMemHostUnregister(memory) : cuMemFreeHost(memory));
  MUST(cuMemFree_v2(device));
  MUST(cuMemFree_v2(after));
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) return 2;
  const bool views = argc == 3 && std::strcmp(argv[2], "views") == 0;
  Parts parts;
  parts.bytes = std::strtoul(argv[1], nullptr, 10) / 4 * 4;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  void* source = nullptr;
  MUST(cuInit(0));
  MUST(cuCtxCreate_v4(&context, nullptr, 0, 0));
  MUST(cuStreamCreate(&parts.stream, CU_STREAM_NON_BLOCKING));
  MUST(cuModuleLoadData(&module, kPtx));
  MUST(cuModuleGetFunction(&parts.slow, module, "slow"));
  MUST(cuModuleGetFunction(&parts.add, module, "add"));
  MUST(cuMemAllocHost_v2(&source, parts.bytes));
  parts.source = static_cast<unsigned*>(source);
  const bool right = views ? through_view(parts, false) && through_view(parts, true)
                           : in_idle_stream(parts, 1) && between_kernels(parts, 7);
  MUST(cuMemFreeHost(source));
  MUST(cuCtxDestroy_v2(context));
  if (right) std::puts("right");
  return right ? 0 : 1;
}
