// Driver API: early answers. Work that CUDA completes before it returns is complete, as far as a
// program can tell. A synchronous copy in, a free and the end of pinned memory wait for earlier
// work, and a wait for a stream waits for its fills. The bytes, host functions and graphs of that
// work are done by then, and queries report it complete. Later calls, on any stream and in any
// context, find the written values.
#include <sys/wait.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "driver_test.h"

namespace {

constexpr size_t kLarge = 1 << 20;

// The ways in which a program can observe earlier work.
class Witness {
 public:
  enum Kind { kCopyOut, kFunction, kCallback, kGraph, kKinds };

  Witness(const Device& device, Kind kind, CUstream stream) : kind_(kind), value_(++last_) {
    bytes_ = device.pinned(4);
    *bytes_ = 0;
    const CUdeviceptr memory = device.memory(4);
    device.launch_linger(stream, memory, value_);
    if (kind == kCopyOut) MUST(cuMemcpyDtoHAsync(bytes_, memory, 4, stream));
    if (kind == kFunction) MUST(cuLaunchHostFunc(stream, &Witness::called, this));
    if (kind == kCallback) {
      const auto called = [](CUstream, CUresult, void* of) { Witness::called(of); };
      MUST(cuStreamAddCallback(stream, called, this, 0));
    }
    if (kind == kGraph) launch_graph(device, memory, stream);
  }

  void expect(const char* after) {
    const unsigned now = kind_ == kCopyOut || kind_ == kGraph ? volatile_value() : called_.load();
    if (now == value_ || (kind_ != kCopyOut && kind_ != kGraph && now != 0)) return;
    std::printf("FAILED: %s returned before what a witness of kind %d was to see\n", after, kind_);
    std::exit(1);
  }
  void end() {
    if (executable_ != nullptr) MUST(cuGraphExecDestroy(executable_));
    if (graph_ != nullptr) MUST(cuGraphDestroy(graph_));
  }

 private:
  static void CUDA_CB called(void* of) { ++static_cast<Witness*>(of)->called_; }
  unsigned volatile_value() const { return *static_cast<const volatile unsigned*>(bytes_); }

  void launch_graph(const Device& device, CUdeviceptr memory, CUstream stream) {
    CUDA_MEMCPY3D box = {};
    box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcDevice = memory;
    box.dstMemoryType = CU_MEMORYTYPE_HOST;
    box.dstHost = bytes_;
    box.WidthInBytes = 4;
    box.Height = box.Depth = 1;
    CUgraphNode node;
    MUST(cuGraphCreate(&graph_, 0));
    MUST(cuGraphAddMemcpyNode(&node, graph_, nullptr, 0, &box, device.context));
    MUST(cuGraphInstantiate(&executable_, graph_, 0));
    MUST(cuGraphLaunch(executable_, stream));
  }

  static unsigned last_;
  const Kind kind_;
  const unsigned value_;
  unsigned* bytes_ = nullptr;
  std::atomic<unsigned> called_{0};
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};
unsigned Witness::last_ = 100;

// The copy waits for the legacy stream and so for blocking streams. A free waits for all streams.
void witnesses(const Device& device) {
  const CUstream blocking = device.stream(CU_STREAM_DEFAULT);
  const CUstream other = device.stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr to = device.memory(kLarge);
  const std::vector<unsigned char> from(kLarge, 1);
  for (int kind = 0; kind < Witness::kKinds; ++kind) {
    for (const size_t bytes : {size_t{100}, kLarge}) {
      Witness witness(device, static_cast<Witness::Kind>(kind), blocking);
      MUST(cuMemcpyHtoD(to, from.data(), bytes));
      witness.expect("a copy in");
      witness.end();
    }
    Witness box_witness(device, static_cast<Witness::Kind>(kind), blocking);
    CUDA_MEMCPY2D box = {};
    box.srcMemoryType = CU_MEMORYTYPE_HOST;
    box.srcHost = from.data();
    box.srcPitch = 64;
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.dstDevice = to;
    box.dstPitch = 128;
    box.WidthInBytes = 60;
    box.Height = 3;
    MUST(cuMemcpy2D(&box));
    box_witness.expect("a copy of a box");
    box_witness.end();

    const CUdeviceptr gone = device.memory(4096);
    Witness free_witness(device, static_cast<Witness::Kind>(kind), other);
    MUST(cuMemFree(gone));
    free_witness.expect("a free");
    free_witness.end();

    unsigned* const pinned = device.pinned(4096);
    Witness pinned_witness(device, static_cast<Witness::Kind>(kind), other);
    MUST(cuMemFreeHost(pinned));
    pinned_witness.expect("the end of pinned memory");
    pinned_witness.end();
  }
}

// Without work that writes into the program's memory, the program can still query.
void questions(const Device& device) {
  const CUstream blocking = device.stream(CU_STREAM_DEFAULT);
  const CUstream other = device.stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr to = device.memory(kLarge), scratch = device.memory(4), flag = device.memory(4);
  const std::vector<unsigned char> from(kLarge, 1);
  const CUevent begin = device.event(), end = device.event();
  const auto work = [&](CUstream stream) {
    MUST(cuEventRecord(begin, stream));
    device.launch_linger(stream, scratch, 1);
    MUST(cuEventRecord(end, stream));
  };
  float milliseconds = -1;
  for (const size_t bytes : {size_t{100}, kLarge}) {
    work(nullptr);
    MUST(cuMemcpyHtoD(to, from.data(), bytes));
    MUST(cuEventElapsedTime(&milliseconds, begin, end));
    work(blocking);
    MUST(cuMemcpyHtoD(to, from.data(), bytes));
    MUST(cuEventQuery(end));
    work(nullptr);
    MUST(cuMemcpyHtoD(to, from.data(), bytes));
    MUST(cuStreamQuery(nullptr));
    // The copy does not wait for this stream, and later queries do not either.
    MUST(cuMemsetD32(flag, 0, 1));
    MUST(cuCtxSynchronize());
    device.launch_wait(other, flag, scratch);
    MUST(cuEventRecord(end, other));
    MUST(cuMemcpyHtoD(to, from.data(), bytes));
    EXPECT(cuStreamQuery(other) == CUDA_ERROR_NOT_READY);
    EXPECT(cuEventQuery(end) == CUDA_ERROR_NOT_READY);
    MUST(cuMemsetD32(flag, 1, 1));
    MUST(cuStreamSynchronize(other));
  }
  for (int question = 0; question < 3; ++question) {
    const CUdeviceptr gone = device.memory(4096);
    work(other);
    MUST(cuMemFree(gone));
    if (question == 0) MUST(cuEventElapsedTime(&milliseconds, begin, end));
    if (question == 1) MUST(cuEventQuery(end));
    if (question == 2) MUST(cuStreamQuery(other));
  }
}

// A meeting of threads without CUDA.
class Meeting {
 public:
  explicit Meeting(unsigned count) : count_(count) {}
  void meet() {
    std::unique_lock<std::mutex> lock(mutex_);
    const unsigned turn = turn_;
    if (++here_ == count_) {
      here_ = 0;
      ++turn_;
      all_here_.notify_all();
    }
    all_here_.wait(lock, [&] { return turn_ != turn; });
  }

 private:
  const unsigned count_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  unsigned here_ = 0, turn_ = 0;
};

// A wait for a stream that has only fills and small copies. A thread that learns of its end, in any
// way, finds it complete: by queries, and by launches on non-blocking streams.
void waits(const Device& device) {
  constexpr unsigned kThreads = 4, kRounds = 100, kCount = 64 << 10;
  Meeting all(kThreads);
  std::vector<CUstream> streams;
  std::vector<CUevent> events;
  std::vector<CUdeviceptr> filled;
  for (unsigned i = 0; i < kThreads; ++i) {
    streams.push_back(device.stream(CU_STREAM_NON_BLOCKING));
    events.push_back(device.event());
    filled.push_back(device.memory(kCount * 4));
  }
  const auto work = [&](unsigned mine) {
    MUST(cuCtxSetCurrent(device.context));
    const CUstream own = device.stream(CU_STREAM_NON_BLOCKING);
    unsigned* const seen = device.pinned(4);
    const unsigned other = (mine + 1) % kThreads;
    for (unsigned round = 1; round <= kRounds; ++round) {
      const unsigned value = round * 10 + mine;
      MUST(cuMemsetD32Async(filled[mine], value - 1, kCount, streams[mine]));
      MUST(cuMemcpyHtoDAsync(filled[mine] + (kCount - 1) * 4, &value, 4, streams[mine]));
      MUST(cuEventRecord(events[mine], streams[mine]));
      MUST(cuStreamSynchronize(streams[mine]));
      MUST(cuStreamQuery(streams[mine]));
      MUST(cuEventQuery(events[mine]));
      all.meet();
      MUST(cuStreamQuery(streams[other]));
      MUST(cuEventQuery(events[other]));
      CUdeviceptr at = filled[other] + (kCount - 1) * 4;
      unsigned one = 1;
      void* arguments[] = {&at, &one};
      MUST(cuLaunchKernel(device.pass_on, 1, 1, 1, 1, 1, 1, 0, own, arguments, nullptr));
      MUST(cuMemcpyDtoHAsync(seen, at, 4, own));
      MUST(cuStreamSynchronize(own));
      EXPECT(*seen == round * 10 + other + 1);
      all.meet();
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& each : threads) each.join();
  // A wait behind other work really waits.
  const CUdeviceptr value = device.memory(4);
  device.launch_linger(streams[0], value, 5);
  MUST(cuMemsetD32Async(value, 6, 1, streams[0]));
  MUST(cuEventRecord(events[0], streams[0]));
  MUST(cuStreamSynchronize(streams[0]));
  MUST(cuEventQuery(events[0]));
}

// Calls that end memory, or show it to others, may directly follow the wait.
void ends(const Device& device, const char* image) {
  const CUdeviceptr scratch = device.memory(4);
  for (unsigned long long round = 0; round < 5; ++round) {
    CUmodule module;
    CUdeviceptr variable;
    MUST(cuModuleLoad(&module, image));
    MUST(cuModuleGetGlobal(&variable, nullptr, module, "visits"));
    device.launch_linger(nullptr, scratch, 1);
    MUST(cuMemcpyHtoD(variable, &round, sizeof round));
    MUST(cuModuleUnload(module));
  }
  MUST(cuCtxSynchronize());
  const CUstream stream = device.stream(CU_STREAM_NON_BLOCKING);
  CUmemAllocationProp of = {};
  of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  of.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.device};
  size_t granule = 0;
  MUST(cuMemGetAllocationGranularity(&granule, &of, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  const std::vector<unsigned char> from(4096, 1);
  for (int round = 0; round < 20; ++round) {
    CUdeviceptr at;
    CUmemGenericAllocationHandle memory;
    CUmemAccessDesc access = {of.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemAddressReserve(&at, granule, 0, 0, 0));
    MUST(cuMemCreate(&memory, granule, &of, 0));
    MUST(cuMemMap(at, granule, 0, memory, 0));
    MUST(cuMemSetAccess(at, granule, &access, 1));
    if (round % 2 == 0) {
      MUST(cuMemcpyHtoD(at, from.data(), from.size()));
    } else {
      for (size_t i = 0; i + 4096 <= granule; i += 4096)
        MUST(cuMemsetD8Async(at + i, 1, 4096, stream));
      MUST(cuStreamSynchronize(stream));
    }
    MUST(cuMemUnmap(at, granule));
    MUST(cuMemRelease(memory));
    MUST(cuMemAddressFree(at, granule));
  }
  CUcontext second;
  MUST(cuCtxCreate(&second, nullptr, 0, device.device));
  const CUdeviceptr theirs = device.memory(kLarge);
  MUST(cuCtxSetCurrent(device.context));
  for (size_t i = 0; i < kLarge; i += 64 << 10) {
    MUST(cuMemsetD8Async(theirs + i, 1, 64 << 10, stream));
  }
  MUST(cuStreamSynchronize(stream));
  MUST(cuCtxSetCurrent(second));
  MUST(cuMemFree(theirs));
  // The time between two events can be queried in any context.
  MUST(cuCtxSetCurrent(device.context));
  const CUdeviceptr mine = device.memory(kLarge);
  const CUevent begin = device.event(), end = device.event();
  for (int round = 0; round < 20; ++round) {
    MUST(cuCtxSetCurrent(device.context));
    MUST(cuEventRecord(begin, stream));
    for (size_t i = 0; i < kLarge; i += 64 << 10) {
      MUST(cuMemsetD8Async(mine + i, 1, 64 << 10, stream));
    }
    MUST(cuEventRecord(end, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuCtxSetCurrent(second));
    float milliseconds = -1;
    MUST(cuEventElapsedTime(&milliseconds, begin, end));
    EXPECT(milliseconds >= 0);
  }
  MUST(cuCtxDestroy(second));
  MUST(cuCtxSetCurrent(device.context));
  MUST(cuCtxSynchronize());
}

// Earlier work may still write the source of a copy. The copy carries the values after that.
void sources(const Device& device) {
  const CUstream blocking = device.stream(CU_STREAM_DEFAULT);
  const CUstream other = device.stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr value = device.memory(4), to = device.memory(4);
  unsigned* const pinned = device.pinned(4);
  const auto store = [](void* at) { *static_cast<unsigned*>(at) = 21; };

  *pinned = 0;
  device.launch_linger(blocking, value, 20);
  MUST(cuMemcpyDtoHAsync(pinned, value, 4, blocking));
  MUST(cuMemcpyHtoD(to, pinned, 4));
  EXPECT(device.read(to) == 20);

  *pinned = 0;
  device.launch_linger(blocking, value, 1);
  MUST(cuLaunchHostFunc(blocking, store, pinned));
  MUST(cuMemcpyHtoD(to, pinned, 4));
  EXPECT(device.read(to) == 21);

  // Work of another context's stream. The copy's stream waits for its event.
  CUcontext second;
  MUST(cuCtxCreate(&second, nullptr, 0, device.device));
  const CUstream theirs = device.stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr their_to = device.memory(4);
  const CUevent written = device.event(CU_EVENT_DISABLE_TIMING);
  MUST(cuCtxSetCurrent(device.context));
  const CUevent brought = device.event(CU_EVENT_DISABLE_TIMING);
  *pinned = 0;
  device.launch_linger(other, value, 22);
  MUST(cuMemcpyDtoHAsync(pinned, value, 4, other));
  MUST(cuEventRecord(brought, other));
  MUST(cuCtxSetCurrent(second));
  MUST(cuStreamWaitEvent(theirs, brought, 0));
  MUST(cuMemcpyHtoDAsync(their_to, pinned, 4, theirs));
  MUST(cuEventRecord(written, theirs));
  MUST(cuCtxSetCurrent(device.context));
  MUST(cuStreamWaitEvent(other, written, 0));
  MUST(cuStreamSynchronize(other));
  MUST(cuCtxSetCurrent(second));
  EXPECT(device.read(their_to) == 22);
  MUST(cuCtxDestroy(second));
  MUST(cuCtxSetCurrent(device.context));
}

// A launch on a non-blocking stream finds the data of earlier copies.
void barriers(const Device& device, const char* image) {
  const CUstream first = device.stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr scratch = device.memory(4), data = device.memory(kLarge);
  unsigned* const seen = device.pinned(4);
  CUcontext second;
  MUST(cuCtxCreate(&second, nullptr, 0, device.device));
  CUmodule module;
  CUfunction pass_on;
  MUST(cuModuleLoad(&module, image));
  MUST(cuModuleGetFunction(&pass_on, module, "pass_on"));
  const CUstream theirs = device.stream(CU_STREAM_NON_BLOCKING);
  std::vector<unsigned> host(kLarge / 4);
  for (unsigned round = 1; round <= 20; ++round) {
    const bool there = round % 2 == 0;
    const unsigned count = round % 4 < 2 ? 16 : static_cast<unsigned>(host.size());
    MUST(cuCtxSetCurrent(device.context));
    // The copy must wait for this. A launch on another stream need not.
    if (round % 5 == 0) device.launch_linger(nullptr, scratch, round);
    for (unsigned& each : host) each = round * 1'000;
    MUST(cuMemcpyHtoD(data, host.data(), count * 4));
    for (unsigned& each : host) each = 7;
    if (there) MUST(cuCtxSetCurrent(second));
    const CUdeviceptr last = data + (count - 1) * 4;
    CUdeviceptr at = last;
    unsigned one = 1;
    void* arguments[] = {&at, &one};
    const CUstream stream = there ? theirs : first;
    MUST(cuLaunchKernel(there ? pass_on : device.pass_on, 1, 1, 1, 1, 1, 1, 0, stream, arguments,
                        nullptr));
    MUST(cuMemcpyDtoHAsync(seen, last, 4, stream));
    MUST(cuStreamSynchronize(stream));
    EXPECT(*seen == round * 1'000 + 1);
  }
  MUST(cuCtxSetCurrent(second));
  MUST(cuCtxDestroy(second));
  MUST(cuCtxSetCurrent(device.context));
}

// One process may tell another what it has read, in any way, here by a pipe.
int processes(const char* image) {
  int pipes[2][2];
  EXPECT(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0);
  const pid_t other = fork();  // Before CUDA is used.
  EXPECT(other >= 0);
  const bool leads = other != 0;
  const int from = pipes[leads ? 1 : 0][0], to = pipes[leads ? 0 : 1][1];
  end_after(100);
  const Device device(image);
  const CUstream stream = device.stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr data = device.memory(kLarge);
  std::vector<unsigned> host(kLarge / 4);
  unsigned* const pinned = device.pinned(kLarge);
  unsigned value = 0;
  for (unsigned round = 0; round < 20; ++round) {
    if (!leads || round != 0) EXPECT(read(from, &value, 4) == 4);
    for (unsigned& each : host) each = value;
    MUST(cuMemcpyHtoD(data, host.data(), kLarge));
    CUdeviceptr at = data;
    unsigned count = kLarge / 4;
    void* arguments[] = {&at, &count};
    MUST(cuLaunchKernel(device.pass_on, 8, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
    MUST(cuMemcpyDtoHAsync(pinned, data, kLarge, stream));
    MUST(cuStreamSynchronize(stream));
    EXPECT(pinned[0] == value + 1 && pinned[count - 1] == value + 1);
    EXPECT(write(to, pinned + count - 1, 4) == 4);
  }
  if (!leads) return 0;
  EXPECT(read(from, &value, 4) == 4 && value == 40);
  int status = -1;
  EXPECT(waitpid(other, &status, 0) == other && status == 0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2 || (argc == 3 && std::strcmp(argv[2], "processes") == 0));
  if (argc == 3) {
    const int result = processes(argv[1]);
    std::exit(result);
  }
  end_after(100);
  const Device device(argv[1]);
  // First the parts without a witness, because each copy waits while a graph with copies out
  // exists.
  waits(device);
  ends(device, argv[1]);
  questions(device);
  barriers(device, argv[1]);
  sources(device);
  witnesses(device);
  std::printf("PASSED\n");
  return 0;
}
