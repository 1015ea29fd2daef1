// Driver API: pool reuse. A program allocates and frees memory of the device's own pool in streams,
// round after round. Results, accounts, errors and the order with other streams are those of a
// driver that gets each free at once.
#include <cstring>
#include <thread>
#include <vector>

#include <sys/wait.h>

#include "pool_test.h"

namespace {

using namespace pool_test;  // NOLINT(google-build-using-namespace)

constexpr unsigned kCount = 64, kRounds = 100;
constexpr size_t kBytes = kCount * 4;

// The loop of which promise_pool_reuse counts the round trips. Two sizes live at the same time.
void reuse_in_rounds(const Device& device, CUstream stream, unsigned seed) {
  const CUdeviceptr results = Device::memory(kRounds * 4);
  for (unsigned i = 0; i < kRounds; ++i) {
    const CUdeviceptr first = allocate(kBytes, stream), second = allocate(3 * kBytes, stream);
    device.launch_fill(stream, first, kCount, seed + i);
    MUST(cuMemcpyDtoDAsync(second, first, kBytes, stream));
    MUST(cuMemFreeAsync(first, stream));
    MUST(cuMemcpyDtoDAsync(results + i * 4, second, 4, stream));
    MUST(cuMemFreeAsync(second, stream));
  }
  MUST(cuStreamSynchronize(stream));
  std::vector<unsigned> seen(kRounds);
  MUST(cuMemcpyDtoH(seen.data(), results, kRounds * 4));
  unsigned wrong = 0;
  for (unsigned i = 0; i < kRounds; ++i) wrong += seen[i] != seed + i;
  if (wrong != 0) cuda_check::fail(__FILE__, __LINE__, "rounds", "wrong values");
  MUST(cuMemFree(results));
}

// A wait lies between the free and the allocation, and the pool may hold on to its memory.
void reuse_across_waits(const Device& device) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  hold_memory(device.device, true);
  for (unsigned i = 0; i < kRounds; ++i) {
    const CUdeviceptr memory = allocate(kBytes, stream);
    device.launch_fill(stream, memory, kCount, i);
    unsigned seen = 0;
    MUST(cuMemcpyDtoHAsync(&seen, memory, 4, stream));
    MUST(cuMemFreeAsync(memory, stream));
    MUST(cuStreamSynchronize(stream));
    if (seen != i) cuda_check::fail(__FILE__, __LINE__, "across waits", "wrong value");
  }
  hold_memory(device.device, false);
  MUST(cuStreamDestroy(stream));
}

// What the program knows to be free does not count, also behind work that came later.
void ask_for_accounts(const Device& device) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUstream other_stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr kept = Device::memory(4);
  expect(used(device.device), 0, "in use at first");
  set(own_pool(device.device), CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  expect(high(device.device), 0, "high mark at first");
  const CUdeviceptr small = allocate(1024, stream), large = allocate(8192, stream);
  expect(used(device.device), 9216, "in use");
  expect(high(device.device), 9216, "high mark");
  MUST(cuMemFreeAsync(large, stream));
  MUST(cuStreamSynchronize(stream));
  expect(used(device.device), 1024, "in use after a free and a wait");
  expect(high(device.device), 9216, "high mark after it");

  hold_memory(device.device, true);
  const CUdeviceptr again = allocate(8192, stream);
  MUST(cuMemFreeAsync(again, stream));
  MUST(cuStreamSynchronize(stream));
  device.launch_linger(stream, kept, 1);
  expect(used(device.device), 1024, "in use behind a kernel");
  // The copy waits for the stream, so the memory is free when it returns.
  unsigned word = 0;
  MUST(cuMemFreeAsync(allocate(8192, stream), stream));
  MUST(cuMemcpyDtoHAsync(&word, kept, 4, stream));
  device.launch_linger(stream, kept, 1);
  expect(used(device.device), 1024, "in use behind a copy and a kernel");
  const CUdeviceptr other = allocate(4096, stream);
  expect(used(device.device), 5120, "in use with another size");
  MUST(cuMemFreeAsync(other, stream));
  MUST(cuStreamSynchronize(stream));
  const CUdeviceptr third = allocate(8192, stream);
  MUST(cuMemFreeAsync(third, stream));
  MUST(cuStreamSynchronize(stream));
  // It fits below the high mark only without what is free.
  const CUdeviceptr fourth = allocate(6144, stream);
  expect(high(device.device), 9216, "high mark with another size");
  MUST(cuMemFreeAsync(fourth, stream));
  MUST(cuStreamSynchronize(stream));
  // The record brings the free to the driver, behind the kernel.
  const CUevent event = Device::event(CU_EVENT_DISABLE_TIMING);
  device.launch_linger(stream, kept, 1);
  MUST(cuEventRecord(event, stream));
  const CUdeviceptr sixth = allocate(4096, other_stream);
  expect(high(device.device), 9216, "high mark behind an event");
  MUST(cuMemFreeAsync(sixth, other_stream));
  MUST(cuStreamSynchronize(other_stream));
  MUST(cuEventDestroy(event));
  MUST(cuMemFreeAsync(small, stream));
  MUST(cuStreamSynchronize(stream));
  expect(used(device.device), 0, "in use at the end");
  set(own_pool(device.device), CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  const CUdeviceptr fifth = allocate(512, stream);
  expect(high(device.device), 512, "high mark after its reset");
  MUST(cuMemFreeAsync(fifth, stream));
  hold_memory(device.device, false);
  MUST(cuStreamSynchronize(stream));
  MUST(cuStreamDestroy(stream));
  MUST(cuStreamDestroy(other_stream));
  MUST(cuMemFree(kept));
}

// Memory that is freed is free for all, wherever the free was.
void ask_for_free_memory(const Device& device) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  size_t before = 0, after = 0, total = 0;
  MUST(cuMemGetInfo(&before, &total));
  const CUdeviceptr memory = allocate(32 << 20, stream);
  MUST(cuMemFreeAsync(memory, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemGetInfo(&after, &total));
  expect(before - after, 0, "bytes missing after a free");
  MUST(cuStreamDestroy(stream));
  (void)device;
}

// An allocation that needs the memory of earlier frees gets it: in the stream, and in another one.
void run_out_of_memory(const Device& device) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  size_t available = 0, total = 0;
  MUST(cuMemGetInfo(&available, &total));
  const size_t most = available / 4 * 3;
  set(own_pool(device.device), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, total);
  for (const CUstream next : {stream, other, stream}) {
    const size_t part = most / 4;
    std::vector<CUdeviceptr> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(allocate(part, stream));
    for (const CUdeviceptr each : parts) MUST(cuMemFreeAsync(each, stream));
    MUST(cuStreamSynchronize(stream));
    const CUdeviceptr whole = allocate(most, next);
    MUST(cuMemFreeAsync(whole, next));
    MUST(cuStreamSynchronize(next));
  }
  CUdeviceptr never = 1;
  expect(cuMemAllocAsync(&never, total + (1 << 20), stream), CUDA_ERROR_OUT_OF_MEMORY, "too much");
  expect(never, 1, "its address");
  hold_memory(device.device, false);
  MUST(cuCtxSynchronize());
  MUST(cuStreamDestroy(stream));
  MUST(cuStreamDestroy(other));
}

void free_wrongly(const Device& device) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  hold_memory(device.device, true);
  const CUdeviceptr memory = allocate(kBytes, stream);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  unsigned word = 0;
  MUST(cuMemFreeAsync(memory, stream));
  MUST(cuStreamSynchronize(stream));
  expect(cuMemFreeAsync(memory, stream), CUDA_ERROR_INVALID_VALUE, "freed twice");
  expect(cuMemsetD8(memory, 0, 4), CUDA_ERROR_INVALID_VALUE, "filled after the free");
  expect(cuMemcpyDtoH(&word, memory, 4), CUDA_ERROR_INVALID_VALUE, "copied after the free");
  expect(cuMemGetAddressRange(&base, &bytes, memory), CUDA_ERROR_NOT_FOUND, "range after the free");
  expect(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE, "freed by cuMemFree, too");
  unsigned kind = 0;
  expect(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory),
         CUDA_ERROR_INVALID_VALUE, "an attribute after the free");
  const CUdeviceptr again = allocate(kBytes, stream);
  MUST(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, again));
  MUST(cuMemGetAddressRange(&base, &bytes, again + 4));
  expect(base - again, 0, "distance of its base");
  expect(bytes, kBytes, "its bytes");
  expect(cuMemFreeAsync(again + 4, stream), CUDA_ERROR_INVALID_VALUE, "freed inside");
  hold_memory(device.device, false);
  MUST(cuMemFree(again));
  expect(cuMemFreeAsync(again, stream), CUDA_ERROR_INVALID_VALUE, "freed by both");
  MUST(cuStreamDestroy(stream));
  expect(used(device.device), 0, "in use after wrong frees");
}

// The free is behind the work of its stream, and work of another stream is behind its event.
// `at_once`: each call waits, so that nothing may hold up a stream.
void order_of_streams(const Device& device, bool at_once) {
  const CUstream slow = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUstream quick = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUevent event = Device::event(CU_EVENT_DISABLE_TIMING);
  const CUdeviceptr result = Device::memory(8);
  Gate gate;
  const CUdeviceptr memory = allocate(kBytes, slow);
  device.launch_fill(slow, memory, kCount, 7);
  if (!at_once) {
    gate.stand_in(slow);
    gate.await_begin();
  }
  MUST(cuMemcpyDtoDAsync(result, memory, 4, slow));
  MUST(cuMemFreeAsync(memory, slow));
  // Another stream's memory of the same size is no memory that the slow stream still uses.
  const CUdeviceptr separate = allocate(kBytes, quick);
  device.launch_fill(quick, separate, kCount, 8);
  MUST(cuMemcpyDtoDAsync(result + 4, separate, 4, quick));
  MUST(cuStreamSynchronize(quick));
  gate.let_go();
  MUST(cuStreamSynchronize(slow));
  expect(Device::read(result), 7, "the slow stream's result");
  expect(Device::read(result + 4), 8, "the quick stream's result");
  // Freed in another stream than its own.
  MUST(cuEventRecord(event, quick));
  MUST(cuStreamWaitEvent(slow, event, 0));
  MUST(cuMemFreeAsync(separate, slow));
  reuse_in_rounds(device, slow, 300);
  MUST(cuStreamDestroy(slow));
  MUST(cuStreamDestroy(quick));
  MUST(cuEventDestroy(event));
  MUST(cuMemFree(result));
}

// A stream that has ended takes its frees along.
void end_streams(const Device& device) {
  for (unsigned i = 0; i < 20; ++i) {
    const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr memory = allocate(kBytes, stream);
    MUST(cuMemFreeAsync(memory, stream));
    MUST(cuStreamDestroy(stream));
  }
  MUST(cuCtxSynchronize());
  expect(used(device.device), 0, "in use after the ends of streams");
}

void use_threads(const Device& device) {
  const CUstream shared = Device::stream(CU_STREAM_NON_BLOCKING);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&device, shared, i] {
      MUST(cuCtxSetCurrent(device.context));
      reuse_in_rounds(device, i % 2 == 0 ? shared : CU_STREAM_PER_THREAD, 1000 * i);
    });
  }
  for (std::thread& each : threads) each.join();
  MUST(cuStreamDestroy(shared));
  expect(used(device.device), 0, "in use after threads");
}

// An allocation in a capture is a node, whatever was freed before.
void capture(const Device& device) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr result = Device::memory(4);
  MUST(cuMemFreeAsync(allocate(kBytes, stream), stream));
  CUgraph graph;
  CUgraphExec exec;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  const CUdeviceptr memory = allocate(kBytes, stream);
  device.launch_fill(stream, memory, kCount, 5);
  MUST(cuMemcpyDtoDAsync(result, memory, 4, stream));
  MUST(cuMemFreeAsync(memory, stream));
  MUST(cuStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  MUST(cuGraphGetNodes(graph, nullptr, &nodes));
  expect(nodes, 4, "nodes");
  MUST(cuGraphInstantiate(&exec, graph, 0));
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuStreamSynchronize(stream));
  expect(Device::read(result), 5, "the graph's result");
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphDestroy(graph));
  MUST(cuStreamDestroy(stream));
  MUST(cuMemFree(result));
}

void fork_with_frees(const Device& device) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  MUST(cuMemFreeAsync(allocate(kBytes, stream), stream));
  const pid_t child = fork();
  if (child == 0) {
    CUdeviceptr memory = 0;
    const CUresult results[] = {cuMemAllocAsync(&memory, kBytes, stream), cuCtxSynchronize(),
                                cuMemFreeAsync(1, stream)};
    for (const CUresult each : results) {
      if (each != CUDA_ERROR_NOT_INITIALIZED) _exit(1);
    }
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  expect(static_cast<std::uint64_t>(status), 0, "the child's status");
  reuse_in_rounds(device, stream, 70);
  MUST(cuStreamDestroy(stream));
}

// Sizes beyond the bounds of what is kept: many frees, and more bytes than fit.
void free_many(const Device& device) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  std::vector<CUdeviceptr> all;
  for (size_t i = 0; i < 700; ++i) all.push_back(allocate(512 + 16 * i, stream));
  for (const CUdeviceptr each : all) MUST(cuMemFreeAsync(each, stream));
  MUST(cuStreamSynchronize(stream));
  expect(used(device.device), 0, "in use after many frees");
  MUST(cuStreamDestroy(stream));
}

// From here on the program names pools.
void use_named_pools(const Device& device) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  hold_memory(device.device, true);
  set(own_pool(device.device), CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  free_in(stream, allocate(8192, stream));
  CUdeviceptr named;
  MUST(cuMemAllocFromPoolAsync(&named, 4096, own_pool(device.device), stream));
  free_in(stream, allocate(6144, stream));
  free_in(stream, allocate(2048, stream));
  expect(high(device.device), 10240, "high mark of both kinds");
  free_in(stream, named);
  hold_memory(device.device, false);
  MUST(cuMemFreeAsync(allocate(kBytes, stream), stream));
  CUdeviceptr memory;
  MUST(cuMemAllocFromPoolAsync(&memory, kBytes, own_pool(device.device), stream));
  MUST(cuStreamSynchronize(stream));
  expect(used(device.device), kBytes, "in use of a named pool");
  MUST(cuMemFreeAsync(memory, stream));
  reuse_in_rounds(device, stream, 90);
  MUST(cuStreamDestroy(stream));
  expect(used(device.device), 0, "in use after a named pool");
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  end_after(200);
  const Device device(words[1]);
  if (count > 2 && std::strcmp(words[2], "rounds") == 0) {
    const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < 5; ++i) reuse_in_rounds(device, stream, i);
    reuse_in_rounds(device, nullptr, 5);
    reuse_across_waits(device);
    reuse_in_rounds(device, Device::stream(CU_STREAM_DEFAULT), 6);
  } else {
    reuse_in_rounds(device, nullptr, 0);
    reuse_across_waits(device);
    ask_for_accounts(device);
    ask_for_free_memory(device);
    free_wrongly(device);
    order_of_streams(device, count > 2 && std::strcmp(words[2], "at-once") == 0);
    end_streams(device);
    use_threads(device);
    capture(device);
    fork_with_frees(device);
    free_many(device);
    run_out_of_memory(device);
    use_named_pools(device);
    // Kept at the end of the process.
    MUST(cuMemFreeAsync(allocate(kBytes, nullptr), nullptr));
  }
  std::printf("PASSED\n");
  return 0;
}
