// Driver API: while the server is stopped. A thousand of each call that returns at once, including
// each kind of handle that is created without a reply, and copies to the device that are too large
// for the command log. Prints "ready", waits for a line, makes the calls, prints "all returned",
// waits for a line, then checks the results.
//
// A copy to the device returns when its bytes lie in the client's window. The window holds
// kBulkWindowBytes (64 MiB, protocol/limits.h) in slots of kBulkChunkBytes (512 KiB). Each transfer
// begins a slot, and one transfer holds at most 16 MiB (client/bulk/bulk.h). Larger pinned sources
// are read later, and still fill the window. Beyond the window, a copy with an immediate read waits
// for the server, and fails after kSilenceDeadlineS of silence. The copies here therefore take 100
// of the 128 slots, and keep 12 of them.
#include <cuda.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/cuda.h"

static void wait_for_line() {
  char line[64];
  EXPECT(std::fgets(line, sizeof line, stdin) != nullptr);
}

static void say(const char* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
}

namespace {

constexpr std::size_t kPiece = 96 << 10, kLarge = 8 << 20, kMore = 4 << 20;
constexpr unsigned kPageablePieces = 60, kPinnedPieces = 16;

// Copies above kInlineCopyInBytesMax, each from its own address and with its own pattern.
struct LargeCopies {
  CUdeviceptr pageable = 0, pinned = 0, large = 0, large_pinned = 0;
  unsigned char *source = nullptr, *large_source = nullptr;  // Pinned.

  void allocate() {
    MUST(cuMemAlloc(&pageable, kPageablePieces * kPiece));
    MUST(cuMemAlloc(&pinned, kPinnedPieces * kPiece));
    MUST(cuMemAlloc(&large, kLarge));
    MUST(cuMemAlloc(&large_pinned, kMore));
    MUST(cuMemHostAlloc(reinterpret_cast<void**>(&source), kPinnedPieces * kPiece, 0));
    MUST(cuMemHostAlloc(reinterpret_cast<void**>(&large_source), kMore, 0));
  }

  static unsigned char pattern(std::size_t index, unsigned salt) {
    return static_cast<unsigned char>(index * 31 + index / 4096 + salt);
  }

  static void fill(unsigned char* bytes, std::size_t count, unsigned salt) {
    for (std::size_t i = 0; i < count; ++i) bytes[i] = pattern(i, salt);
  }

  void start(CUstream stream) {
    std::vector<unsigned char> bytes(kPiece);
    for (unsigned i = 0; i < kPageablePieces; ++i) {
      fill(bytes.data(), kPiece, i);
      MUST(cuMemcpyHtoDAsync(pageable + i * kPiece, bytes.data(), kPiece, stream));
      std::memset(bytes.data(), 0xee, kPiece);  // Pageable, so it is free at once.
    }
    std::vector<unsigned char> much(kLarge);
    fill(much.data(), kLarge, 201);
    MUST(cuMemcpyHtoDAsync(large, much.data(), kLarge, stream));
    std::memset(much.data(), 0xee, kLarge);
    // Pinned memory must stay unchanged until the copy is done.
    fill(large_source, kMore, 202);
    MUST(cuMemcpyHtoDAsync(large_pinned, large_source, kMore, stream));
    for (unsigned i = 0; i < kPinnedPieces; ++i) {
      fill(source + i * kPiece, kPiece, 100 + i);
      MUST(cuMemcpyHtoDAsync(pinned + i * kPiece, source + i * kPiece, kPiece, stream));
    }
  }

  static void look(CUdeviceptr memory, std::size_t count, unsigned salt) {
    std::vector<unsigned char> bytes(count);
    MUST(cuMemcpyDtoH(bytes.data(), memory, count));
    for (std::size_t i = 0; i < count; ++i) EXPECT(bytes[i] == pattern(i, salt));
  }

  void look_at_all() {
    for (unsigned i = 0; i < kPageablePieces; ++i) look(pageable + i * kPiece, kPiece, i);
    for (unsigned i = 0; i < kPinnedPieces; ++i) look(pinned + i * kPiece, kPiece, 100 + i);
    look(large, kLarge, 201);
    look(large_pinned, kMore, 202);
  }
};

// Graphs, and nodes of each kind that is created without the server. They are created while it is
// stopped, and run when it continues. Instantiation and the end of a capture wait for the server.
class Graphs {
 public:
  explicit Graphs(CUcontext context, CUfunction fill, CUevent event)
      : context_(context), fill_(fill), event_(event) {
    for (CUdeviceptr* memory : {&filled_, &set_, &copied_}) MUST(cuMemAlloc(memory, kBytes));
  }

  void make(unsigned value) {
    CUgraph graph = nullptr, clone = nullptr, child = nullptr;
    MUST(cuGraphCreate(&graph, 0));
    CUgraphNode start = nullptr, kernel = nullptr, set = nullptr, copy = nullptr, host = nullptr;
    MUST(cuGraphAddEmptyNode(&start, graph, nullptr, 0));
    unsigned count = kCount;
    void* arguments[] = {&filled_, &count, &value};
    CUDA_KERNEL_NODE_PARAMS launch = {};
    launch.func = fill_;
    launch.gridDimX = launch.gridDimY = launch.gridDimZ = 1;
    launch.blockDimX = kCount;
    launch.blockDimY = launch.blockDimZ = 1;
    launch.kernelParams = arguments;
    MUST(cuGraphAddKernelNode(&kernel, graph, &start, 1, &launch));
    CUDA_MEMSET_NODE_PARAMS memset = {};
    memset.dst = set_;
    memset.value = value;
    memset.elementSize = sizeof value;
    memset.width = kCount;
    memset.height = 1;
    MUST(cuGraphAddMemsetNode(&set, graph, &kernel, 1, &memset, context_));
    CUDA_MEMCPY3D box = {};
    box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcDevice = filled_;
    box.dstDevice = copied_;
    box.WidthInBytes = kBytes;
    box.Height = box.Depth = 1;
    MUST(cuGraphAddMemcpyNode(&copy, graph, &kernel, 1, &box, context_));
    const CUDA_HOST_NODE_PARAMS call = {[](void* runs) { ++*static_cast<unsigned*>(runs); },
                                        &runs_};
    MUST(cuGraphAddHostNode(&host, graph, &copy, 1, &call));
    // The clone has the present contents of its graph, and the child of another graph has all of
    // it.
    MUST(cuGraphClone(&clone, graph));
    MUST(cuGraphCreate(&child, 0));
    CUgraphNode all = nullptr, record = nullptr, wait = nullptr;
    MUST(cuGraphAddEventWaitNode(&wait, child, nullptr, 0, event_));
    MUST(cuGraphAddChildGraphNode(&all, child, &wait, 1, graph));
    MUST(cuGraphAddEventRecordNode(&record, child, &all, 1, event_));
    made_.push_back({value, {graph, clone, child}});
  }

  void look_at_all(CUstream stream) {
    for (const std::size_t at : {std::size_t{0}, made_.size() / 2, made_.size() - 1}) {
      for (CUgraph graph : made_[at].graphs) run(graph, made_[at].value, stream);
    }
    for (const Made& made : made_) {
      for (CUgraph graph : made.graphs) MUST(cuGraphDestroy(graph));
    }
  }

 private:
  static constexpr unsigned kCount = 64;
  static constexpr std::size_t kBytes = kCount * sizeof(unsigned);
  struct Made {
    unsigned value;
    CUgraph graphs[3];
  };

  void run(CUgraph graph, unsigned value, CUstream stream) {
    for (CUdeviceptr memory : {filled_, set_, copied_}) {
      MUST(cuMemsetD8Async(memory, 0xee, kBytes, stream));
    }
    const unsigned before = runs_;
    CUgraphExec executable = nullptr;
    MUST(cuGraphInstantiate(&executable, graph, 0));
    MUST(cuGraphLaunch(executable, stream));
    MUST(cuStreamSynchronize(stream));
    EXPECT(runs_ == before + 1);
    unsigned host[kCount];
    for (CUdeviceptr memory : {filled_, set_, copied_}) {
      MUST(cuMemcpyDtoH(host, memory, kBytes));
      for (unsigned i = 0; i < kCount; ++i) EXPECT(host[i] == value + (memory == set_ ? 0 : i));
    }
    MUST(cuGraphExecDestroy(executable));
  }

  CUcontext context_;
  CUfunction fill_;
  CUevent event_;
  CUdeviceptr filled_ = 0, set_ = 0, copied_ = 0;
  unsigned runs_ = 0;  // Runs of host nodes.
  std::vector<Made> made_;
};

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  constexpr unsigned kTimes = 1000, kCount = 256;
  MUST(cuInit(0));
  CUdevice device;
  MUST(cuDeviceGet(&device, 0));
  CUcontext context;
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  CUmodule module;
  MUST(cuModuleLoad(&module, argv[1]));
  CUfunction fill;
  MUST(cuModuleGetFunction(&fill, module, "fill"));
  CUstream one, two;
  MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
  CUevent event;
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUdeviceptr filled, copied, set;
  for (CUdeviceptr* memory : {&filled, &copied, &set}) MUST(cuMemAlloc(memory, kCount * 4));
  unsigned* pinned;
  MUST(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kCount * 4, 0));
  LargeCopies copies;
  copies.allocate();
  Graphs graphs(context, fill, event);
  CUlibrary library;
  MUST(cuLibraryLoadFromFile(&library, argv[1], nullptr, nullptr, 0, nullptr, nullptr, 0));
  MUST(cuCtxSynchronize());
  say("ready");
  wait_for_line();

  {
    // Two numbers that look like the address of pinned memory are no pointer to it, which the
    // device would have to reach first.
    const auto address = reinterpret_cast<std::uintptr_t>(pinned + 1);
    auto low = static_cast<unsigned>(address), high = static_cast<unsigned>(address >> 32);
    void* arguments[] = {&filled, &low, &high};
    MUST(cuLaunchKernel(fill, 1, 1, 1, kCount, 1, 1, 0, one, arguments, nullptr));
  }
  std::vector<CUstream> streams(kTimes), hurried(kTimes);
  std::vector<CUevent> events(kTimes);
  unsigned count = kCount;
  for (unsigned i = 0; i < kTimes; ++i) {
    void* arguments[] = {&filled, &count, &i};
    MUST(cuLaunchKernel(fill, 1, 1, 1, kCount, 1, 1, 0, one, arguments, nullptr));
    MUST(cuEventRecord(event, one));
    MUST(cuStreamWaitEvent(two, event, 0));
    MUST(cuMemsetD32Async(set, i, kCount, two));
    unsigned source[64];
    std::memset(source, static_cast<int>(i & 0xff), sizeof source);
    MUST(cuMemcpyHtoDAsync(copied, source, sizeof source, two));  // Pageable: free at once.
    std::memset(source, 0xee, sizeof source);
    MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreateWithPriority(&hurried[i], CU_STREAM_NON_BLOCKING, 0));
    MUST(cuEventCreate(&events[i], CU_EVENT_DEFAULT));
    CUfunction again;
    MUST(cuModuleGetFunction(&again, module, i % 2 == 0 ? "add" : "block_sum"));
    CUkernel kernel;
    MUST(cuLibraryGetKernel(&kernel, library, i % 2 == 0 ? "block_sum" : "write_to"));
    MUST(cuKernelGetFunction(&again, kernel));
  }
  for (unsigned i = 0; i < kCount; ++i) pinned[i] = 7 * i;
  MUST(cuMemcpyHtoDAsync(copied + 256, pinned, 64, two));
  copies.start(two);
  // Last, because from now on host nodes may write anywhere. A copy of more than 64 KiB from
  // pageable memory then waits for its stream.
  for (unsigned i = 0; i < kTimes; ++i) graphs.make(i);
  for (unsigned i = 0; i < kTimes; ++i) {
    MUST(cuStreamDestroy(streams[i]));
    MUST(cuStreamDestroy(hurried[i]));
    MUST(cuEventDestroy(events[i]));
  }
  say("all returned");
  wait_for_line();

  std::vector<unsigned> host(kCount);
  MUST(cuStreamSynchronize(two));
  MUST(cuMemcpyDtoH(host.data(), filled, kCount * 4));
  for (unsigned i = 0; i < kCount; ++i) EXPECT(host[i] == kTimes - 1 + i);
  MUST(cuMemcpyDtoH(host.data(), set, kCount * 4));
  for (unsigned i = 0; i < kCount; ++i) EXPECT(host[i] == kTimes - 1);
  MUST(cuMemcpyDtoH(host.data(), copied, kCount * 4));
  for (unsigned i = 0; i < 64; ++i) EXPECT(host[i] == ((kTimes - 1) & 0xff) * 0x01010101u);
  for (unsigned i = 0; i < 16; ++i) EXPECT(host[64 + i] == 7 * i);
  copies.look_at_all();
  graphs.look_at_all(two);
  say("PASSED");
  return 0;
}
