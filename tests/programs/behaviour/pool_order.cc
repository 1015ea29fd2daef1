// Driver API: pool order. Frees and allocations of the device's own pool keep their place in the
// order of the legacy stream with blocking streams. Questions about accounts do not wait for work
// that needs the asking thread, and a lost context does not fail the calls of another one.
#include <cstring>
#include <functional>
#include <thread>

#include "pool_test.h"

namespace {

using namespace pool_test;  // NOLINT(google-build-using-namespace)

constexpr size_t kBytes = 8192;
constexpr CUdeviceptr kNoMemory = 4096;  // No memory is ever there.

size_t free_bytes() {
  size_t bytes = 0, total = 0;
  MUST(cuMemGetInfo(&bytes, &total));
  return bytes;
}

void ask_for_range() {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  expect(cuMemGetAddressRange(&base, &bytes, kNoMemory), CUDA_ERROR_NOT_FOUND,
         "range of no memory");
}

// A fill of host memory that the device reaches waits, so that earlier frees of its stream are
// done.
void fill_host_memory(const Device& device) {
  const Words words;
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  void* host = nullptr;
  CUdeviceptr reached;
  MUST(cuMemHostAlloc(&host, 64, CU_MEMHOSTALLOC_DEVICEMAP));
  MUST(cuMemHostGetDevicePointer(&reached, host, 0));
  MUST(cuMemFreeAsync(allocate(kBytes, nullptr), nullptr));
  MUST(cuMemsetD8(reached, 1, 64));
  device.launch_wait(nullptr, words.flag, words.seen);
  expect(used(device.device), 0, "in use after a fill of host memory");
  MUST(cuMemsetD32Async(words.flag, 1, 1, other));
  MUST(cuCtxSynchronize());
  MUST(cuStreamDestroy(other));
  MUST(cuMemFreeHost(host));
}

// A free in the legacy stream is no barrier to blocking streams that come later.
void begin_to_block(const Device& device) {
  const Words words;
  const CUstream free_stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUevent event = Device::event(CU_EVENT_DISABLE_TIMING);
  MUST(cuMemFreeAsync(allocate(kBytes, nullptr), nullptr));
  const CUstream first = Device::stream(CU_STREAM_DEFAULT);
  const CUstream second = Device::stream(CU_STREAM_DEFAULT);
  device.launch_wait(first, words.flag, words.seen);
  MUST(cuEventRecord(event, free_stream));
  MUST(cuMemsetD32Async(words.flag, 1, 1, second));
  MUST(cuCtxSynchronize());
  expect(Device::read(words.seen), 1, "seen in the first blocking stream");
  for (const CUstream each : {first, second, free_stream}) MUST(cuStreamDestroy(each));
  MUST(cuEventDestroy(event));
}

// In the legacy stream a free is a barrier, and so are a free and an allocation.
void keep_barriers(const Device& device) {
  const Words words;
  const CUstream first = Device::stream(CU_STREAM_DEFAULT);
  const CUstream second = Device::stream(CU_STREAM_DEFAULT);
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  const LongFill fill;
  for (const bool takes : {false, true}) {
    words.clear();
    CUdeviceptr memory = allocate(kBytes, nullptr);
    fill.run_in(other);
    MUST(cuMemsetD32Async(words.flag, 7, 1, other));
    device.launch_wait(first, words.flag, words.seen);
    MUST(cuMemFreeAsync(memory, nullptr));
    if (takes) memory = allocate(kBytes, nullptr);
    MUST(cuMemcpyDtoDAsync(words.result, words.seen, 4, second));
    MUST(cuCtxSynchronize());
    expect(Device::read(words.result), 7, takes ? "behind an allocation" : "behind a free");
    if (takes) MUST(cuMemFreeAsync(memory, nullptr));
  }
  for (const CUstream each : {first, second, other}) MUST(cuStreamDestroy(each));
}

// It is a barrier in its own place alone.
void add_no_barrier(const Device& device) {
  const Words words;
  const CUstream first = Device::stream(CU_STREAM_DEFAULT);
  const CUstream second = Device::stream(CU_STREAM_DEFAULT);
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUevent event = Device::event(CU_EVENT_DISABLE_TIMING);
  MUST(cuMemFreeAsync(allocate(kBytes, nullptr), nullptr));
  device.launch_wait(first, words.flag, words.seen);
  MUST(cuEventRecord(event, other));
  MUST(cuMemsetD32Async(words.flag, 1, 1, second));
  MUST(cuCtxSynchronize());
  expect(Device::read(words.seen), 1, "seen beside a free");
  for (const CUstream each : {first, second, other}) MUST(cuStreamDestroy(each));
  MUST(cuEventDestroy(event));
}

// A free in a blocking stream does not wait for legacy work that comes later.
void free_before_legacy_work(const Device& device) {
  const Words words;
  const CUstream blocking = Device::stream(CU_STREAM_DEFAULT);
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr memory = allocate(kBytes, blocking);
  MUST(cuStreamSynchronize(blocking));
  MUST(cuMemFreeAsync(memory, blocking));
  device.launch_wait(nullptr, words.flag, words.seen);
  expect(cuStreamSynchronize(blocking), CUDA_SUCCESS, "a blocking stream before legacy work");
  MUST(cuMemsetD32Async(words.flag, 1, 1, other));
  MUST(cuCtxSynchronize());
  MUST(cuStreamDestroy(blocking));
  MUST(cuStreamDestroy(other));
}

// CUDA answers such questions while a stream waits for the asking thread.
void ask_beside_waiting_work(const Device& device) {
  const CUstream waiting = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  const std::function<void()> questions[] = {
      [] { (void)free_bytes(); },
      [&device] { (void)used(device.device); },
      &ask_for_range,
  };
  for (const auto& question : questions) {
    const Words words;
    MUST(cuMemFreeAsync(allocate(kBytes, waiting), waiting));
    (void)Device::read(words.seen);
    MUST(cuStreamWaitValue32(waiting, words.flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    question();
    MUST(cuStreamWriteValue32(other, words.flag, 1, 0));
    MUST(cuStreamSynchronize(waiting));
  }
  MUST(cuStreamDestroy(waiting));
  MUST(cuStreamDestroy(other));
}

// A question beside a host function waits for nothing. A later one counts what is free.
void ask_beside_host_function(const Device& device) {
  const LongFill fill;
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  Gate gate;
  hold_memory(device.device, true);
  MUST(cuMemFreeAsync(allocate(kBytes, stream), stream));
  MUST(cuStreamSynchronize(stream));
  fill.run_in(stream);
  gate.stand_in(other);
  gate.await_begin();
  ask_for_range();
  gate.let_go();
  MUST(cuStreamSynchronize(other));
  expect(used(device.device), 0, "in use after a host function");
  hold_memory(device.device, false);
  MUST(cuCtxSynchronize());
  MUST(cuStreamDestroy(stream));
  MUST(cuStreamDestroy(other));
}

// A context that a kernel has lost fails no call of another context.
void lose_another_context(const Device& device) {
  static const char kTrap[] =
      ".version 8.0\n.target sm_80\n.address_size 64\n"
      ".visible .entry fall_in_trap() { trap; ret; }\n";
  const Words words;
  hold_memory(device.device, true);
  for (const bool copies : {false, true}) {
    CUcontext lost;
    CUmodule module;
    CUfunction trap;
    MUST(cuCtxCreate(&lost, nullptr, 0, device.device));
    MUST(cuModuleLoadData(&module, kTrap));
    MUST(cuModuleGetFunction(&trap, module, "fall_in_trap"));
    const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
    MUST(cuMemFreeAsync(allocate(kBytes, stream), stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuLaunchKernel(trap, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
    MUST(cuCtxSetCurrent(device.context));
    unsigned word = 0;
    if (copies) {
      expect(cuMemcpyDtoH(&word, kNoMemory, 4), CUDA_ERROR_INVALID_VALUE, "copy of no memory");
    } else {
      expect(free_bytes() != 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, "free memory");
    }
    MUST(cuCtxDestroy(lost));
    MUST(cuCtxSetCurrent(device.context));
  }
  hold_memory(device.device, false);
}

// The mark of a pool that the program has made is not that of the device's own, which the client
// still knows after the end of a context.
void reset_marks(const Device& device) {
  const Words words;
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUmemoryPool own = own_pool(device.device);
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device.device}};
  CUmemoryPool made;
  MUST(cuMemPoolCreate(&made, &properties));
  hold_memory(device.device, true);
  set(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  MUST(cuMemFreeAsync(allocate(kBytes, stream), stream));
  MUST(cuStreamSynchronize(stream));
  // The free comes late, so that the driver's mark is higher than the program's.
  device.launch_wait(stream, words.flag, words.seen);
  const CUevent event = Device::event(CU_EVENT_DISABLE_TIMING);
  MUST(cuEventRecord(event, stream));
  MUST(cuMemFreeAsync(allocate(4096, other), other));
  MUST(cuMemsetD32Async(words.flag, 1, 1, other));
  MUST(cuCtxSynchronize());
  set(made, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  expect(account(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH), kBytes, "mark beside another pool");
  CUcontext ended;
  MUST(cuCtxCreate(&ended, nullptr, 0, device.device));
  MUST(cuCtxDestroy(ended));
  MUST(cuCtxSetCurrent(device.context));
  set(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  for (const size_t bytes : {2048, 4096}) {
    MUST(cuMemFreeAsync(allocate(bytes, stream), stream));
    MUST(cuStreamSynchronize(stream));
  }
  expect(account(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 4096, "mark after the end of a context");
  hold_memory(device.device, false);
  MUST(cuMemPoolDestroy(made));
  MUST(cuEventDestroy(event));
  MUST(cuStreamDestroy(stream));
  MUST(cuStreamDestroy(other));
}

// The per-thread streams are blocking streams, too.
void use_per_thread_streams(const Device& device) {
  const Words words;
  const auto in_another_thread = [&device](const auto& work) {
    std::thread([&device, &work] {
      MUST(cuCtxSetCurrent(device.context));
      work();
      MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    }).join();
  };
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUevent event = Device::event(CU_EVENT_DISABLE_TIMING);
  CUdeviceptr memory = allocate(kBytes, nullptr);
  MUST(cuMemFreeAsync(memory, nullptr));
  device.launch_wait(CU_STREAM_PER_THREAD, words.flag, words.seen);
  MUST(cuEventRecord(event, other));
  in_another_thread([&words] { MUST(cuMemsetD32Async(words.flag, 1, 1, CU_STREAM_PER_THREAD)); });
  MUST(cuCtxSynchronize());
  expect(Device::read(words.seen), 1, "seen in a thread's stream");
  const LongFill fill;
  words.clear();
  memory = allocate(kBytes, nullptr);
  fill.run_in(other);
  MUST(cuMemsetD32Async(words.flag, 7, 1, other));
  device.launch_wait(CU_STREAM_PER_THREAD, words.flag, words.seen);
  MUST(cuMemFreeAsync(memory, nullptr));
  in_another_thread(
      [&words] { MUST(cuMemcpyDtoDAsync(words.result, words.seen, 4, CU_STREAM_PER_THREAD)); });
  expect(Device::read(words.result), 7, "behind a free, in a thread's stream");
  MUST(cuEventDestroy(event));
  MUST(cuStreamDestroy(other));
}

// Memory is of the stream's device, whatever context is current.
void use_two_devices(const char* image) {
  const Device first(image, 0), second(image, 1);
  const CUstream of_second = Device::stream(CU_STREAM_NON_BLOCKING);
  MUST(cuCtxSetCurrent(first.context));
  const CUstream of_first = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr memory = allocate(kBytes, of_second);
  int ordinal = -1;
  MUST(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
  expect(static_cast<std::uint64_t>(ordinal), 1, "device of the memory");
  expect(used(first.device), 0, "in use of the first device");
  expect(used(second.device), kBytes, "in use of the second device");
  MUST(cuStreamSynchronize(of_second));
  MUST(cuMemFreeAsync(memory, of_first));
  const CUdeviceptr next = allocate(kBytes, of_first);
  MUST(cuStreamSynchronize(of_first));
  expect(used(first.device), kBytes, "then in use of the first device");
  expect(used(second.device), 0, "then in use of the second device");
  MUST(cuMemFreeAsync(next, of_first));
  MUST(cuStreamSynchronize(of_first));
  MUST(cuStreamDestroy(of_first));
  MUST(cuStreamDestroy(of_second));
}

// With CUDA_LAUNCH_BLOCKING=1. A launch waits, so that earlier frees of its stream are done.
void launch_and_wait(const Device& device) {
  const Words words;
  const LongFill fill;
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  MUST(cuMemFreeAsync(allocate(kBytes, stream), stream));
  device.launch_fill(stream, words.flag, 1, 1);
  fill.run_in(stream);
  expect(used(device.device), 0, "in use after a launch");
  MUST(cuStreamDestroy(stream));
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  end_after(60);
  const char* const what = count > 2 ? words[2] : "";
  if (std::strcmp(what, "devices") == 0) {
    use_two_devices(words[1]);
  } else {
    const Device device(words[1]);
    if (std::strcmp(what, "threads") == 0) {
      use_per_thread_streams(device);
    } else if (std::strcmp(what, "blocking-launches") == 0) {
      launch_and_wait(device);
    } else {
      fill_host_memory(device);
      begin_to_block(device);
      keep_barriers(device);
      add_no_barrier(device);
      free_before_legacy_work(device);
      ask_beside_waiting_work(device);
      ask_beside_host_function(device);
      reset_marks(device);
      lose_another_context(device);  // The last one: it may take memory along.
    }
  }
  std::printf("PASSED\n");
  return 0;
}
