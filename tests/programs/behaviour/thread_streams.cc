// Driver API: the default streams. Stream 2 and the _ptsz copies of functions mean a stream of each
// thread, in each context. This stream and the legacy stream wait for each other. The legacy stream
// waits for the blocking streams of its context and for no others. A blocked thread does not block
// another.
#include <array>
#include <thread>
#include <vector>

#include "driver_test.h"

namespace {

template <typename Function>
Function found(const char* name, cuuint64_t flags) {
  void* place = nullptr;
  CUdriverProcAddressQueryResult how;
  MUST(cuGetProcAddress(name, &place, 12080, flags, &how));
  return reinterpret_cast<Function>(place);
}

template <typename Body>
std::thread in_context(const Device& device, Body body) {
  return std::thread([&device, body] {
    MUST(cuCtxSetCurrent(device.context));
    body();
  });
}

// While one thread's own stream is blocked, that of another thread continues under the same name.
void each_its_own(const Device& device) {
  using Copy = CUresult (*)(CUdeviceptr, const void*, size_t, CUstream);
  using Wait = CUresult (*)(CUstream);
  const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const auto copy = found<Copy>("cuMemcpyHtoDAsync", per_thread);
  const auto synchronize = found<Wait>("cuStreamSynchronize", per_thread);
  const auto query = found<Wait>("cuStreamQuery", per_thread);
  const CUdeviceptr memory = device.memory(8);
  const CUstream blocking = device.stream(CU_STREAM_DEFAULT);
  Gate gate;
  std::thread standing = in_context(device, [&] {
    gate.stand_in(CU_STREAM_PER_THREAD);
    EXPECT(query(nullptr) == CUDA_ERROR_NOT_READY);
    MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  });
  gate.await_begin();
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 2; ++i) {
    others.push_back(in_context(device, [&, i] {
      const unsigned value = 70 + i;
      // Both names of it are the same stream, in order.
      device.launch_fill(CU_STREAM_PER_THREAD, memory + 4 * i, 1, 3);
      MUST(copy(memory + 4 * i, &value, 4, nullptr));
      MUST(synchronize(nullptr));
      MUST(cuStreamQuery(CU_STREAM_PER_THREAD));
    }));
  }
  for (std::thread& each : others) each.join();
  device.launch_fill(blocking, memory, 1, 70);
  MUST(cuStreamSynchronize(blocking));
  // The legacy stream waits for every thread's own.
  EXPECT(cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY);
  gate.let_go();
  EXPECT(device.read(memory) == 70 && device.read(memory + 4) == 71);
  standing.join();
}

// A thread that waits for its own stream again and again waits for new work each time, and only for
// its own. A copy that has brought its bytes has waited, too.
void wait_again(const Device& device) {
  const CUdeviceptr memory = device.memory(8);
  for (unsigned round = 0; round < 20; ++round) {
    unsigned seen = 0;
    device.launch_fill(CU_STREAM_PER_THREAD, memory, 1, round);
    MUST(cuMemcpyDtoHAsync(&seen, memory, 4, CU_STREAM_PER_THREAD));
    MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    MUST(cuStreamQuery(CU_STREAM_PER_THREAD));
    EXPECT(seen == round);
  }
  Gate gate;
  gate.stand_in(CU_STREAM_PER_THREAD);
  EXPECT(cuStreamQuery(CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_READY);
  in_context(device, [&] {
    device.launch_fill(CU_STREAM_PER_THREAD, memory + 4, 1, 99);
    MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    MUST(cuStreamQuery(CU_STREAM_PER_THREAD));
  }).join();
  EXPECT(cuStreamQuery(CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_READY);
  // The thread's stream of another context is another stream.
  CUcontext other;
  MUST(cuCtxCreate(&other, nullptr, 0, device.device));
  MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  MUST(cuCtxPopCurrent(&other));
  EXPECT(cuStreamQuery(CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_READY);
  gate.let_go();
  MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  EXPECT(device.read(memory + 4) == 99);
  MUST(cuCtxDestroy(other));
}

// The streams that wait for the legacy stream, and the streams that it waits for.
void legacy(const Device& device) {
  const CUstream blocking = device.stream(CU_STREAM_DEFAULT);
  const CUstream free_one = device.stream(CU_STREAM_NON_BLOCKING);
  const CUstream helper = device.stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr value = device.memory(4), copied = device.memory(4), flag = device.memory(4);
  unsigned* const one = device.pinned(4);
  *one = 1;
  struct Case {
    CUstream before, after;
    bool ordered;
  };
  const std::array<Case, 6> cases = {{{blocking, nullptr, true},
                                      {nullptr, blocking, true},
                                      {CU_STREAM_PER_THREAD, CU_STREAM_LEGACY, true},
                                      {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, true},
                                      {free_one, nullptr, false},
                                      {nullptr, free_one, false}}};
  unsigned round = 0;
  for (const Case& each : cases) {
    MUST(cuMemsetD32(flag, 0, 1));
    MUST(cuCtxSynchronize());
    if (each.ordered) {
      device.launch_linger(each.before, value, ++round);
      MUST(cuMemcpyDtoDAsync(copied, value, 4, each.after));
      EXPECT(device.read(copied) == round);
    } else {
      device.launch_wait(each.before, flag, value);
      MUST(cuMemcpyDtoDAsync(copied, flag, 4, each.after));
      MUST(cuStreamSynchronize(each.after));
      EXPECT(cuStreamQuery(each.before) == CUDA_ERROR_NOT_READY);
      MUST(cuMemcpyHtoDAsync(flag, one, 4, helper));
      MUST(cuStreamSynchronize(each.before));
      // A kernel that has seen the copy's write does not order the copy before the next fill.
      MUST(cuStreamSynchronize(helper));
    }
  }
  // Several threads in turn: the legacy stream is one for all of them.
  MUST(cuMemsetD32(value, 0, 1));
  for (unsigned i = 0; i < 8; ++i) {
    in_context(device, [&] {
      unsigned count = 1;
      CUdeviceptr at = value;
      void* arguments[] = {&at, &count};
      CUstream stream = i % 3 == 0 ? nullptr : i % 3 == 1 ? blocking : CU_STREAM_PER_THREAD;
      MUST(cuLaunchKernel(device.pass_on, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
      if (i % 3 != 0) MUST(cuMemcpyDtoDAsync(copied, value, 4, CU_STREAM_LEGACY));
    }).join();
    if (i % 3 != 0) EXPECT(device.read(copied) == i + 1);
  }
}

// In another context the same name is another stream.
void of_each_context(const Device& device) {
  CUcontext second;
  MUST(cuCtxCreate(&second, nullptr, 0, device.device));
  const CUdeviceptr there = device.memory(4);
  MUST(cuCtxSetCurrent(device.context));
  for (const CUstream stream : {CU_STREAM_PER_THREAD, CU_STREAM_LEGACY}) {
    Gate gate;
    gate.stand_in(stream);
    MUST(cuCtxSetCurrent(second));
    MUST(cuMemsetD32Async(there, 6, 1, stream));
    MUST(cuStreamSynchronize(stream));
    EXPECT(device.read(there) == 6);
    MUST(cuCtxSetCurrent(device.context));
    EXPECT(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    gate.let_go();
    MUST(cuStreamSynchronize(stream));
  }
  MUST(cuCtxDestroy(second));
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  end_after(100);
  const Device device(argv[1]);
  each_its_own(device);
  wait_again(device);
  legacy(device);
  of_each_context(device);
  std::printf("PASSED\n");
  return 0;
}
