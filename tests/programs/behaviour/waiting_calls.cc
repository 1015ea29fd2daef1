// Driver API: calls wait only for what CUDA makes them wait for. A function of the host blocks a
// stream, or a kernel spins with 2,000 launches behind it. Other calls continue that the function
// or kernel may itself wait for: queries, allocation, loads, other streams, other threads.
#include <poll.h>

#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "driver_test.h"

namespace {

void questions(const Device& device) {
  for (const unsigned flags : {CU_STREAM_NON_BLOCKING, CU_STREAM_DEFAULT}) {
    const CUstream stream = device.stream(flags), other = device.stream(CU_STREAM_NON_BLOCKING);
    const CUevent begin = device.event(), end = device.event();
    Gate gate;
    MUST(cuEventRecord(begin, stream));
    gate.stand_in(stream);
    MUST(cuEventRecord(end, stream));
    float milliseconds = -1;
    EXPECT(cuEventQuery(end) == CUDA_ERROR_NOT_READY);
    EXPECT(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    EXPECT(cuEventElapsedTime(&milliseconds, begin, end) == CUDA_ERROR_NOT_READY);
    MUST(cuStreamQuery(other));
    const CUresult legacy = flags == CU_STREAM_DEFAULT ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    EXPECT(cuStreamQuery(nullptr) == legacy);
    gate.let_go();
    MUST(cuEventSynchronize(end));
    MUST(cuEventQuery(end));
    MUST(cuEventElapsedTime(&milliseconds, begin, end));
  }
}

void CUDA_CB do_nothing(void*) {}

// A graph that no launch uses is changed beside the work of streams.
void changes_of_graphs(const Device& device, CUdeviceptr to, CUDA_MEMSET_NODE_PARAMS memset) {
  CUgraph graph;
  CUgraphNode fill, host, copy;
  CUDA_HOST_NODE_PARAMS function = {};
  function.fn = do_nothing;
  CUDA_MEMCPY3D box = {};
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = device.pinned(4);
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = to;
  box.WidthInBytes = 4;
  box.Height = box.Depth = 1;
  MUST(cuGraphCreate(&graph, 0));
  MUST(cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &memset, device.context));
  MUST(cuGraphAddHostNode(&host, graph, &fill, 1, &function));
  MUST(cuGraphAddMemcpyNode(&copy, graph, nullptr, 0, &box, device.context));
  MUST(cuGraphMemsetNodeSetParams(fill, &memset));
  MUST(cuGraphHostNodeSetParams(host, &function));
  MUST(cuGraphMemcpyNodeSetParams(copy, &box));
  MUST(cuGraphAddDependencies(graph, &host, &copy, nullptr, 1));
  MUST(cuGraphRemoveDependencies(graph, &host, &copy, nullptr, 1));
  CUmemoryPool pool;
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device.device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  MUST(cuDeviceGetDefaultMemPool(&pool, device.device));
  MUST(cuMemPoolSetAccess(pool, &access, 1));
  MUST(cuMemGetDefaultMemPool(&pool, &access.location, CU_MEM_ALLOCATION_TYPE_PINNED));
  MUST(cuMemGetMemPool(&pool, &access.location, CU_MEM_ALLOCATION_TYPE_PINNED));
  MUST(cuMemSetMemPool(&access.location, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
  MUST(cuDeviceSetMemPool(device.device, pool));
  MUST(cuGraphDestroy(graph));
}

// First uses that a program may make while the function blocks.
void first_uses(const Device& device, const char* image, CUstream other) {
  const CUdeviceptr small = device.memory(4), large = device.memory(100 << 20);
  size_t free_bytes = 0, total_bytes = 0;
  MUST(cuMemGetInfo(&free_bytes, &total_bytes));
  CUmodule module;
  CUfunction fill;
  MUST(cuModuleLoad(&module, image));
  MUST(cuModuleGetFunction(&fill, module, "fill"));
  int registers = 0;
  MUST(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, fill));
  CUdeviceptr visits;
  size_t bytes = 0;
  MUST(cuModuleGetGlobal(&visits, &bytes, module, "visits"));
  unsigned count = 1, value = 5;
  CUdeviceptr to = small;
  void* arguments[] = {&to, &count, &value};
  MUST(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, other, arguments, nullptr));
  MUST(cuStreamSynchronize(other));
  EXPECT(device.read(small) == 5);

  CUgraph graph;
  CUgraphNode node;
  CUgraphExec executable;
  CUDA_MEMSET_NODE_PARAMS memset = {};
  memset.dst = small;
  memset.value = 9;
  memset.elementSize = 4;
  memset.width = memset.height = 1;
  MUST(cuGraphCreate(&graph, 0));
  MUST(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &memset, device.context));
  MUST(cuGraphInstantiate(&executable, graph, 0));
  MUST(cuGraphLaunch(executable, other));
  MUST(cuStreamSynchronize(other));
  EXPECT(device.read(small) == 9);
  MUST(cuMemFreeAsync(large, other));
  changes_of_graphs(device, small, memset);
}

void other_calls(const Device& device, const char* image) {
  const CUstream stream = device.stream(CU_STREAM_NON_BLOCKING);
  const CUstream other = device.stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr early = device.memory(4);
  Gate gate;
  gate.stand_in(stream);
  gate.await_begin();
  // Another thread waits for the whole context meanwhile, and this one continues.
  std::thread waiting([&] {
    MUST(cuCtxSetCurrent(device.context));
    MUST(cuCtxSynchronize());
  });
  first_uses(device, image, other);
  MUST(cuMemFreeAsync(early, stream));
  CUdeviceptr late = 0;
  MUST(cuMemAllocAsync(&late, 4, stream));
  device.launch_fill(stream, late, 1, 3);
  gate.let_go();
  waiting.join();
  MUST(cuStreamSynchronize(stream));
  EXPECT(device.read(late) == 3);
}

// The function waits for work of another thread while this thread waits in a copy.
void a_copy_behind_a_function(const Device& device) {
  const CUstream blocking = device.stream(CU_STREAM_DEFAULT);
  const CUstream other = device.stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr to = device.memory(1 << 20), value = device.memory(4);
  const std::vector<unsigned char> from(1 << 20, 5);
  for (const size_t bytes : {size_t{100}, from.size()}) {
    Gate gate;
    gate.stand_in(blocking);
    std::thread helper([&] {
      MUST(cuCtxSetCurrent(device.context));
      gate.await_begin();
      // By then the copy has usually been called, which is the case to test.
      for (int i = 0; i < 50; ++i) EXPECT(cuStreamQuery(blocking) == CUDA_ERROR_NOT_READY);
      device.launch_fill(other, value, 1, 8);
      MUST(cuStreamSynchronize(other));
      gate.let_go();
    });
    MUST(cuMemcpyHtoD(to, from.data(), bytes));
    MUST(cuStreamQuery(nullptr));
    helper.join();
  }
}

// One thread waits for a kernel in each possible way, and another thread's copy ends the kernel.
void a_kernel_that_waits(const Device& device, int launches_behind) {
  const CUstream stream = device.stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr flag = device.memory(4), seen = device.memory(4), scratch = device.memory(4);
  const CUevent event = device.event(CU_EVENT_DISABLE_TIMING);
  unsigned* const source = device.pinned(4);
  for (unsigned way = 0; way < 4; ++way) {
    MUST(cuMemsetD32(flag, 0, 1));
    MUST(cuCtxSynchronize());
    device.launch_wait(stream, flag, seen);
    for (int i = 0; i < launches_behind; ++i) device.launch_fill(stream, scratch, 1, way);
    MUST(cuEventRecord(event, stream));
    std::thread helper([&] {
      MUST(cuCtxSetCurrent(device.context));
      // Polls until the other thread has usually called. Creates streams and memory meanwhile.
      for (int i = 0; i < 50; ++i) EXPECT(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
      const CUstream own = device.stream(CU_STREAM_NON_BLOCKING);
      const CUdeviceptr fresh = device.memory(65 << 20);
      *source = 42 + way;
      MUST(cuMemcpyHtoDAsync(flag, source, 4, own));
      MUST(cuStreamSynchronize(own));
      MUST(cuMemFree(fresh));
    });
    unsigned host = 0;
    if (way == 0) MUST(cuStreamSynchronize(stream));
    if (way == 1) MUST(cuEventSynchronize(event));
    if (way == 2) MUST(cuCtxSynchronize());
    if (way == 3) MUST(cuMemcpyDtoHAsync(&host, seen, 4, stream));  // Into pageable memory.
    MUST(cuEventQuery(event));
    EXPECT(way != 3 || host == 42 + way);
    helper.join();
    EXPECT(device.read(seen) == 42 + way);
  }
}

// A stream waits for a value in memory, which another thread writes through another stream. 32 and
// 64 bits, with each comparison. A value that does not end the wait is written first.
struct Awaited {
  unsigned flags;
  cuuint64_t value, wrong, right;
};

void value_awaited(const Device& device, bool wide, const Awaited& of, int launches_behind) {
  const CUstream stream = device.stream(CU_STREAM_NON_BLOCKING);
  const CUstream other = device.stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr word = device.memory(8), seen = device.memory(8), scratch = device.memory(4);
  MUST(cuMemsetD32(word, of.flags == CU_STREAM_WAIT_VALUE_NOR ? ~0u : 0u, 2));
  MUST(cuCtxSynchronize());
  MUST(wide ? cuStreamWaitValue64(stream, word, of.value, of.flags)
            : cuStreamWaitValue32(stream, word, static_cast<cuuint32_t>(of.value), of.flags));
  for (int i = 0; i < launches_behind; ++i) device.launch_fill(stream, scratch, 1, 1);
  MUST(cuMemcpyDtoDAsync(seen, word, 8, stream));
  const auto write = [&](cuuint64_t value) {
    MUST(wide ? cuStreamWriteValue64(other, word, value, CU_STREAM_WRITE_VALUE_DEFAULT)
              : cuStreamWriteValue32(other, word, static_cast<cuuint32_t>(value),
                                     CU_STREAM_WRITE_VALUE_DEFAULT));
    MUST(cuStreamSynchronize(other));
  };
  std::thread helper([&] {
    MUST(cuCtxSetCurrent(device.context));
    write(of.wrong);
    // The other thread usually waits by then.
    for (int i = 0; i < 50; ++i) EXPECT(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    write(of.right);
  });
  MUST(cuStreamSynchronize(stream));
  helper.join();
  cuuint64_t value = 0;
  MUST(cuMemcpyDtoH(&value, seen, wide ? 8 : 4));
  EXPECT(value == of.right);
}

void values_awaited(const Device& device) {
  constexpr cuuint64_t kHigh = cuuint64_t{1} << 40;
  for (const bool wide : {false, true}) {
    const cuuint64_t high = wide ? kHigh : 0, ones = wide ? ~cuuint64_t{0} : ~0u;
    value_awaited(device, wide, {CU_STREAM_WAIT_VALUE_EQ, 7 + high, 8 + high, 7 + high}, 0);
    value_awaited(device, wide, {CU_STREAM_WAIT_VALUE_GEQ, 7 + high, 6 + high, 9 + high}, 2'000);
    value_awaited(device, wide, {CU_STREAM_WAIT_VALUE_AND, 6 + high, 1, 4}, 0);
    value_awaited(device, wide, {CU_STREAM_WAIT_VALUE_NOR, ones - 4, 12, 8}, 0);
  }
}

// A copy that must wait for bytes in flight does not delay another thread's copy.
void a_copy_that_waits(const Device& device) {
  const CUstream blocking = device.stream(CU_STREAM_DEFAULT);
  const CUstream other = device.stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr flag = device.memory(4), seen = device.memory(4), to = device.memory(1 << 20);
  unsigned *const out = device.pinned(4), *const source = device.pinned(4);
  const std::vector<unsigned char> from(1 << 20, 5);
  *source = 43;
  MUST(cuMemsetD32(flag, 0, 1));
  MUST(cuCtxSynchronize());
  device.launch_wait(blocking, flag, seen);
  MUST(cuMemcpyDtoHAsync(out, seen, 4, blocking));
  std::thread helper([&] {
    MUST(cuCtxSetCurrent(device.context));
    for (int i = 0; i < 200; ++i) EXPECT(cuStreamQuery(blocking) == CUDA_ERROR_NOT_READY);
    MUST(cuMemcpyHtoDAsync(flag, source, 4, other));
  });
  MUST(cuMemcpyHtoD(to, from.data(), from.size()));
  EXPECT(*static_cast<volatile unsigned*>(out) == 43);
  helper.join();
}

// A synchronous copy waits behind a kernel, in the kernel's stream or in the legacy stream, which
// waits for it. Another thread's copy, which waits for neither, ends the kernel.
void a_copy_behind_a_kernel(const Device& device, CUstream of_kernel, size_t bytes, int launches) {
  const CUstream other = device.stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr flag = device.memory(4), seen = device.memory(4), to = device.memory(bytes);
  const CUdeviceptr scratch = device.memory(4);
  const std::vector<unsigned char> from(bytes, 5);
  unsigned* const source = device.pinned(4);
  *source = 44;
  MUST(cuMemsetD32(flag, 0, 1));
  MUST(cuCtxSynchronize());
  device.launch_wait(of_kernel, flag, seen);
  for (int i = 0; i < launches; ++i) device.launch_fill(of_kernel, scratch, 1, 2);
  std::thread helper([&] {
    MUST(cuCtxSetCurrent(device.context));
    // By then the copy has usually been called.
    for (int i = 0; i < 100; ++i) EXPECT(cuStreamQuery(of_kernel) == CUDA_ERROR_NOT_READY);
    MUST(cuMemcpyHtoDAsync(flag, source, 4, other));
    MUST(cuStreamSynchronize(other));
  });
  MUST(cuMemcpyHtoD(to, from.data(), bytes));
  EXPECT(device.read(seen) == 44);
  helper.join();
}

void copies_behind_kernels(const Device& device) {
  for (const CUstream of_kernel : {CUstream(nullptr), device.stream(CU_STREAM_DEFAULT)}) {
    for (const size_t bytes : {size_t{100}, size_t{1} << 20}) {
      for (const int launches : {0, 100}) {
        a_copy_behind_a_kernel(device, of_kernel, bytes, launches);
      }
    }
  }
}

// The client library's stderr, as it arrives.
class Stderr {
 public:
  Stderr() {
    int ends[2];
    EXPECT(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    from_ = ends[0];
  }
  bool silent() const {
    pollfd polled = {from_, POLLIN, 0};
    return poll(&polled, 1, 0) == 0;
  }
  std::string line() const {
    std::string text;
    for (char byte = 0; byte != '\n' && read(from_, &byte, 1) == 1;) text += byte;
    return text;
  }

 private:
  int from_;
};

// A copy that was answered early blocks another thread's call, which would end the kernel before
// it. Only the message tells the program the cause.
[[noreturn]] void expect_stall_warning(const Device& device, const Stderr& said, int launches) {
  const CUdeviceptr flag = device.memory(4), seen = device.memory(4), to = device.memory(100);
  const CUdeviceptr scratch = device.memory(4);
  const std::vector<unsigned char> from(100, 5);
  // A wait that CUDA also makes is not reported.
  device.launch_long(nullptr, scratch);
  MUST(cuMemcpyHtoD(to, from.data(), from.size()));
  std::thread([&] {
    MUST(cuCtxSetCurrent(device.context));
    const CUstream blocking = device.stream(CU_STREAM_DEFAULT);
    device.launch_fill(blocking, scratch, 1, 1);
    device.launch_fill(nullptr, scratch, 1, 1);
    MUST(cuStreamSynchronize(blocking));
    MUST(cuCtxSynchronize());
  }).join();
  EXPECT(said.silent());

  MUST(cuMemsetD32(flag, 0, 1));
  MUST(cuCtxSynchronize());
  device.launch_wait(nullptr, flag, seen);
  for (int i = 0; i < launches; ++i) device.launch_fill(nullptr, scratch, 1, 2);
  MUST(cuMemcpyHtoD(to, from.data(), from.size()));
  std::thread([&] {
    MUST(cuCtxSetCurrent(device.context));
    const CUstream other = device.stream(CU_STREAM_NON_BLOCKING);
    MUST(cuMemsetD32Async(flag, 1, 1, other));
    MUST(cuCtxSynchronize());  // A wait for the stream alone is answered early.
    EXPECT(!"the copy came to its turn");
  }).detach();
  const std::string line = said.line();
  EXPECT(line.find("cuMemsetD32Async of one thread has waited for 100 ms") != std::string::npos);
  EXPECT(line.find("GPURUN_SYNC=1") != std::string::npos);
  std::printf("PASSED\n");
  std::fflush(stdout);
  _exit(0);
}

// As expect_stall_warning(), but after a free, where a query is blocked, too.
[[noreturn]] void expect_stall_warning_behind_free(const Device& device, const Stderr& said,
                                                   bool asks) {
  const CUdeviceptr flag = device.memory(4), seen = device.memory(4), scratch = device.memory(4);
  const CUdeviceptr first = device.memory(4096), second = device.memory(4096);
  const CUstream other = device.stream(CU_STREAM_NON_BLOCKING);
  // A call in the kernel's own stream would wait for the kernel anyway, so it is not reported.
  device.launch_long(nullptr, scratch);
  MUST(cuMemFree(first));
  std::thread([&] {
    MUST(cuCtxSetCurrent(device.context));
    device.launch_fill(nullptr, scratch, 1, 1);
    MUST(cuStreamSynchronize(nullptr));
  }).join();
  EXPECT(said.silent());

  MUST(cuMemsetD32(flag, 0, 1));
  MUST(cuCtxSynchronize());
  device.launch_wait(nullptr, flag, seen);
  MUST(cuMemFree(second));
  std::thread([&] {
    MUST(cuCtxSetCurrent(device.context));
    if (asks) (void)cuStreamQuery(other);
    MUST(cuMemsetD32Async(flag, 1, 1, other));
    MUST(cuCtxSynchronize());
    EXPECT(!"the free came to its turn");
  }).detach();
  const std::string line = said.line();
  const char* const call = asks ? "cuStreamQuery of one" : "cuMemsetD32Async of one";
  EXPECT(line.find(call) != std::string::npos);
  EXPECT(line.find("behind a free of another") != std::string::npos);
  EXPECT(line.find("GPURUN_SYNC=1") != std::string::npos);
  std::printf("PASSED\n");
  std::fflush(stdout);
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2 || argc == 3);
  end_after(100);
  const std::string what = argc == 3 ? argv[2] : "";
  const bool stalled = what.rfind("stalled", 0) == 0;
  const bool behind_free = what == "stalled-behind-free" || what == "stalled-asked-behind-free";
  const std::optional<Stderr> said = stalled ? std::make_optional<Stderr>() : std::nullopt;
  const Device device(argv[1]);
  if (behind_free) {
    expect_stall_warning_behind_free(device, *said, what == "stalled-asked-behind-free");
  }
  if (stalled) expect_stall_warning(device, *said, what == "stalled" ? 0 : 2'000);
  if (what == "behind-kernels") {
    copies_behind_kernels(device);
    std::printf("PASSED\n");
    return 0;
  }
  EXPECT(what.empty());
  questions(device);
  other_calls(device, argv[1]);
  a_copy_behind_a_function(device);
  a_copy_that_waits(device);
  values_awaited(device);
  a_kernel_that_waits(device, 0);
  a_kernel_that_waits(device, 2'000);
  std::printf("PASSED\n");
  return 0;
}
