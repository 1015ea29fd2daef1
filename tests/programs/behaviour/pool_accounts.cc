// Driver API: pool accounts. What a program knows to be free, it finds free in the accounts of the
// device's own pool and for other allocations, whatever newer work a stream has. What it does not
// know to be free stays in use. No question about accounts waits for work.
#include <thread>

#include "pool_test.h"

namespace {

using namespace pool_test;  // NOLINT(google-build-using-namespace)

constexpr size_t kBytes = 8192;

// Newer work waits behind the free. It ends when the flag is set. All that it needs is made before,
// because making it brings reports of the streams.
class StuckWork {
 public:
  StuckWork() = default;
  ~StuckWork() { MUST(cuStreamDestroy(other_)); }
  StuckWork(const StuckWork&) = delete;
  StuckWork& operator=(const StuckWork&) = delete;

  void begin(const Device& device, CUstream stream) {
    stream_ = stream;
    device.launch_wait(stream, words_.flag, words_.seen);
  }
  void end() {
    MUST(cuMemsetD32Async(words_.flag, 1, 1, other_));
    MUST(cuStreamSynchronize(stream_));
    MUST(cuStreamSynchronize(other_));
    words_.clear();
  }

 private:
  const Words words_;
  const CUstream other_ = Device::stream(CU_STREAM_NON_BLOCKING);
  CUstream stream_ = nullptr;
};

class Stuck {
 public:
  Stuck(StuckWork& work, const Device& device, CUstream stream) : work_(work) {
    work.begin(device, stream);
  }
  ~Stuck() { work_.end(); }
  Stuck(const Stuck&) = delete;
  Stuck& operator=(const Stuck&) = delete;

 private:
  StuckWork& work_;
};

// The program knows of the free by a wait, and of a later one by a copy.
void ask_behind_newer_work(const Device& device, StuckWork& work) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const Words words;
  free_in(stream, allocate(kBytes, stream));
  {
    const Stuck newer(work, device, stream);
    expect(used(device.device), 0, "in use behind a wait");
    expect(high(device.device), kBytes, "high mark behind a wait");
  }
  unsigned word = 0;
  MUST(cuMemFreeAsync(allocate(kBytes, stream), stream));
  MUST(cuMemcpyDtoHAsync(&word, words.seen, 4, stream));
  {
    const Stuck newer(work, device, stream);
    expect(used(device.device), 0, "in use behind a copy");
  }
  MUST(cuStreamDestroy(stream));
}

// Another thread learns of the free from the one that has waited. Both ask at the same time.
void ask_in_two_threads(const Device& device, StuckWork& work) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  free_in(stream, allocate(kBytes, stream));
  const Stuck newer(work, device, stream);
  cuuint64_t seen[2] = {1, 1};
  std::thread other([&device, &seen] {
    MUST(cuCtxSetCurrent(device.context));
    seen[1] = used(device.device);
  });
  seen[0] = used(device.device);
  other.join();
  expect(seen[0], 0, "in use, for the thread that has waited");
  expect(seen[1], 0, "in use, for another thread");
}

// The wait is for a fill alone, and a client may answer it early.
void ask_after_wait_for_fill(const Device& device, StuckWork& work) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const Words words;
  const CUdeviceptr memory = allocate(kBytes, stream);
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemsetD32Async(words.result, 3, 1, stream));
  free_in(stream, memory);
  {
    const Stuck newer(work, device, stream);
    expect(used(device.device), 0, "in use behind a fill and a wait");
  }
  MUST(cuStreamDestroy(stream));
}

// A synchronous copy to the device is behind the legacy stream's free.
void ask_after_copy_in(const Device& device, StuckWork& work) {
  const Words words;
  const unsigned word = 5;
  MUST(cuMemFreeAsync(allocate(kBytes, nullptr), nullptr));
  MUST(cuMemcpyHtoD(words.result, &word, 4));
  const Stuck newer(work, device, nullptr);
  expect(used(device.device), 0, "in use behind a copy to the device");
}

// The device writes the word in between, which is a race for ThreadSanitizer.
__attribute__((no_sanitize("thread"), noinline)) bool holds(const volatile unsigned* word) {
  return *word == 9;
}
__attribute__((no_sanitize("thread"), noinline)) void clear(volatile unsigned* word) { *word = 0; }

// The program learns from host memory that the stream is behind the free.
void ask_after_host_memory(const Device& device, StuckWork& work) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  auto* const word = reinterpret_cast<volatile unsigned*>(Device::pinned(4));
  const CUdeviceptr source = Device::memory(4);
  MUST(cuMemsetD32(source, 9, 1));
  MUST(cuCtxSynchronize());
  for (const bool kernel : {false, true}) {
    clear(word);
    MUST(cuMemFreeAsync(allocate(kBytes, stream), stream));
    if (kernel) {
      CUdeviceptr reached;
      MUST(cuMemHostGetDevicePointer(&reached, const_cast<unsigned*>(word), 0));
      device.launch_fill(stream, reached, 1, 9);
    } else {
      MUST(cuMemcpyDtoHAsync(const_cast<unsigned*>(word), source, 4, stream));
    }
    while (!holds(word)) std::this_thread::yield();
    const Stuck newer(work, device, stream);
    expect(used(device.device), 0, kernel ? "in use behind a kernel" : "in use behind bytes");
  }
  MUST(cuMemFree(source));
  MUST(cuMemFreeHost(const_cast<unsigned*>(word)));
  MUST(cuStreamDestroy(stream));
}

// An allocation without a stream, and one in another stream, get the memory.
void allocate_what_is_free(const Device& device, StuckWork& work) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  size_t available = 0, total = 0;
  MUST(cuMemGetInfo(&available, &total));
  const size_t most = available / 4 * 3;
  for (const bool plain : {true, false}) {
    free_in(stream, allocate(most, stream));
    const Stuck newer(work, device, stream);
    CUdeviceptr memory = 0;
    expect(plain ? cuMemAlloc(&memory, most) : cuMemAllocAsync(&memory, most, other), CUDA_SUCCESS,
           plain ? "memory without a stream" : "memory in another stream");
    if (!plain) free_in(other, memory);
    if (plain) MUST(cuMemFreeAsync(memory, other));
  }
  MUST(cuCtxSynchronize());
  MUST(cuStreamDestroy(stream));
  MUST(cuStreamDestroy(other));
}

// A blocking stream is behind earlier legacy work, and so are its frees.
void free_behind_legacy_work(const Device& device, StuckWork& work) {
  const CUstream blocking = Device::stream(CU_STREAM_DEFAULT);
  const CUevent event = Device::event(CU_EVENT_DISABLE_TIMING);
  const LongFill fill;
  const CUdeviceptr memory = allocate(kBytes, blocking);
  MUST(cuStreamSynchronize(blocking));
  {
    const Stuck earlier(work, device, nullptr);
    MUST(cuMemFreeAsync(memory, blocking));
    expect(used(device.device), kBytes, "in use behind legacy work");
  }
  const CUdeviceptr next = allocate(kBytes, blocking);
  MUST(cuCtxSynchronize());
  fill.run_in(nullptr);
  MUST(cuEventRecord(event, nullptr));
  free_in(blocking, next);
  expect(cuEventQuery(event), CUDA_SUCCESS, "legacy work, when the blocking stream is done");
  MUST(cuStreamDestroy(blocking));
  MUST(cuEventDestroy(event));
}

// cuMemFree of memory of a pool waits for no work. It is behind the fill that the program has
// waited for.
void free_without_wait(const Device& device, StuckWork& work) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr memory = allocate(kBytes, other), filled = allocate(kBytes, other);
  MUST(cuStreamSynchronize(other));
  {
    const Stuck newer(work, device, stream);
    MUST(cuMemsetD32Async(filled, 1, kBytes / 4, other));
    MUST(cuStreamSynchronize(other));
    MUST(cuMemFree(filled));
    MUST(cuMemFree(memory));
    expect(used(device.device), 0, "in use after cuMemFree");
  }
  MUST(cuStreamDestroy(stream));
  MUST(cuStreamDestroy(other));
}

// Another thread frees the memory when the copy has returned. The copy is behind long work, and a
// client may answer it early.
void free_in_another_thread(const Device& device, StuckWork&) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const LongFill fill;
  const unsigned word = 1;
  for (const bool plain : {true, false}) {
    const CUdeviceptr memory = allocate(kBytes, stream);
    MUST(cuStreamSynchronize(stream));
    fill.run_in(nullptr);
    MUST(cuMemcpyHtoD(memory, &word, 4));
    std::thread([&device, plain, memory, stream] {
      MUST(cuCtxSetCurrent(device.context));
      plain ? MUST(cuMemFree(memory)) : free_in(stream, memory);
      expect(used(device.device), 0, "in use after a free by another thread");
    }).join();
    expect(cuCtxSynchronize(), CUDA_SUCCESS, "the copy, after its memory was freed");
  }
  MUST(cuStreamDestroy(stream));
}

// The contexts of a device share its pool.
void free_in_another_context(const Device& device, StuckWork&) {
  const CUmemoryPool own = own_pool(device.device);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  CUcontext second;
  MUST(cuCtxCreate(&second, nullptr, 0, device.device));
  const CUstream of_second = Device::stream(CU_STREAM_NON_BLOCKING);
  MUST(cuCtxSetCurrent(device.context));
  set(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  for (int i = 0; i < 50; ++i) {
    free_in(stream, allocate(kBytes, stream));
    MUST(cuCtxSetCurrent(second));
    free_in(of_second, allocate(kBytes, of_second));
    MUST(cuCtxSetCurrent(device.context));
  }
  expect(high(device.device), kBytes, "high mark of two contexts");
  MUST(cuCtxSetCurrent(second));
  MUST(cuStreamDestroy(of_second));
  MUST(cuCtxDestroy(second));
  MUST(cuCtxSetCurrent(device.context));
  MUST(cuStreamDestroy(stream));
}

// A free that the program does not know to be done counts, also in the high mark.
void mark_what_is_in_use(const Device& device, StuckWork& work) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUmemoryPool own = own_pool(device.device);
  set(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  const CUdeviceptr first = allocate(kBytes, stream);
  CUdeviceptr second;
  {
    const Stuck newer(work, device, stream);
    MUST(cuMemFreeAsync(first, stream));
    second = allocate(2 * kBytes, stream);
    expect(high(device.device), 3 * kBytes, "high mark with a free that is not done");
  }
  free_in(stream, second);
  expect(high(device.device), 3 * kBytes, "high mark after it");
  {
    // Newer work changes nothing in what is reset.
    free_in(stream, allocate(kBytes, stream));
    const Stuck newer(work, device, stream);
    set(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
    expect(high(device.device), 0, "high mark after a reset");
  }
  expect(high(device.device), 0, "high mark when the work is done");
  MUST(cuStreamDestroy(stream));
}

// The program keeps the pool's handle. A client that forgets what it knows of the handle, as at the
// end of a context, must not miss the reset.
void reset_by_old_handle(const Device& device, StuckWork& work) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUmemoryPool pool = own_pool(device.device);
  free_in(stream, allocate(kBytes, stream));
  CUcontext ended;
  MUST(cuCtxCreate(&ended, nullptr, 0, device.device));
  MUST(cuCtxDestroy(ended));
  MUST(cuCtxSetCurrent(device.context));
  set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  hold_memory(device.device, true);
  free_in(stream, allocate(kBytes / 2, stream));
  free_in(stream, allocate(kBytes / 4, stream));
  expect(account(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), kBytes / 2, "high mark by an old handle");
  MUST(cuStreamDestroy(stream));
}

// A question in a capture, and a capture that begins while frees are kept.
void ask_beside_capture(const Device& device, StuckWork& work) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUstream captured = Device::stream(CU_STREAM_NON_BLOCKING);
  free_in(stream, allocate(kBytes, stream));
  {
    const Stuck newer(work, device, stream);
    CUgraph graph = nullptr;
    MUST(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    expect(used(device.device), 0, "in use beside a capture");
    expect(cuStreamEndCapture(captured, &graph), CUDA_SUCCESS, "end of the capture");
    MUST(cuGraphDestroy(graph));
  }
  MUST(cuStreamDestroy(stream));
  MUST(cuStreamDestroy(captured));
}

// The last one: the program names its pool. Memory that was allocated so counts as well.
void mark_named_pool(const Device& device, StuckWork& work) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUmemoryPool own = own_pool(device.device);
  set(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  const Words words;
  unsigned word = 0;
  MUST(cuMemFreeAsync(allocate(512, stream), stream));
  MUST(cuMemcpyDtoHAsync(&word, words.seen, 4, stream));
  CUdeviceptr named = 0;
  MUST(cuMemAllocFromPoolAsync(&named, kBytes, own, stream));
  free_in(stream, named);
  expect(used(device.device), 0, "in use of the named pool");
  expect(high(device.device), kBytes, "high mark of the named pool");
  MUST(cuStreamDestroy(stream));
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  end_after(100);
  const Device device(words[1]);
  hold_memory(device.device, true);
  StuckWork work;
  ask_behind_newer_work(device, work);
  ask_in_two_threads(device, work);
  ask_after_wait_for_fill(device, work);
  ask_after_copy_in(device, work);
  ask_after_host_memory(device, work);
  allocate_what_is_free(device, work);
  free_without_wait(device, work);
  free_in_another_thread(device, work);
  free_in_another_context(device, work);
  mark_what_is_in_use(device, work);
  reset_by_old_handle(device, work);
  ask_beside_capture(device, work);
  free_behind_legacy_work(device, work);
  mark_named_pool(device, work);
  std::printf("PASSED\n");
  return 0;
}
