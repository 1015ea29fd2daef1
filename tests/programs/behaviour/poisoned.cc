// Driver API: poisoned handles of objects that were promised and could not be created. It needs a
// server with a driver that refuses creations which the client has answered
// (tests/drivers/changed). No local driver does that. Each use returns the failure. The end of such
// a handle succeeds, once, and nothing else is affected. Then failures of ordinary calls: each
// thread gets one once. Argument "at-once": the creation itself returns the failure, and nothing
// remains (GPURUN_SYNC=1).
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "driver_test.h"
#include "tests/drivers/changed/refusals.h"

namespace {

// Codes that the calls below never return by themselves.
constexpr CUresult kFailure = CUDA_ERROR_SYSTEM_NOT_READY;
constexpr CUresult kOtherFailure = CUDA_ERROR_TIMEOUT;

const char kKernels[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }
)";

CUdeviceptr g_memory = 0, g_told = 0;
bool g_at_once = false;

void refuse(const char* function, unsigned calls = 1, CUresult code = kFailure) {
  MUST(cuCtxSynchronize());  // Earlier creations are not refused.
  MUST(cuMemsetD32(g_told, gpurun::refusal_value(function, code), calls));
  MUST(cuCtxSynchronize());
}

// For a call that uses the failed object.
#define FAILS(call) MUST_BE(kFailure, call)

// The next fence returns the failure once, unless it has been returned before.
void tell() {
  const CUresult told = cuCtxSynchronize();
  EXPECT(told == kFailure || told == CUDA_SUCCESS);
  MUST(cuCtxSynchronize());
}

// A creation that the server refuses. Returns false when the creation itself returned the failure,
// and nothing remains to check.
template <typename Handle, typename Create>
bool poisoned(const char* function, Handle* handle, Create create) {
  refuse(function);
  const Handle before = *handle;
  const CUresult result = create(handle);
  if (!g_at_once) {
    EXPECT(result == CUDA_SUCCESS && *handle != before);
    return true;
  }
  EXPECT(result == kFailure && *handle == before);
  MUST(cuCtxSynchronize());
  MUST(create(handle));
  return false;
}

void streams() {
  const CUstream good = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUevent event = Device::event();
  CUstream stream = nullptr;
  const auto create = [](CUstream* out) { return cuStreamCreate(out, CU_STREAM_NON_BLOCKING); };
  if (poisoned("cuStreamCreate", &stream, create)) {
    FAILS(cuStreamSynchronize(stream));
    tell();  // That call may have known it from the handle alone.
    FAILS(cuMemsetD8Async(g_memory, 1, 16, stream));
    FAILS(cuStreamQuery(stream));
    FAILS(cuEventRecord(event, stream));
    FAILS(cuStreamWaitEvent(stream, event, 0));
    FAILS(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUgraph into;
    FAILS(cuStreamEndCapture(stream, &into));
    unsigned flags;
    FAILS(cuStreamGetFlags(stream, &flags));
    MUST(cuEventRecord(event, good));
    MUST(cuStreamWaitEvent(good, event, 0));
    MUST(cuMemsetD8Async(g_memory, 2, 16, good));
    MUST(cuStreamSynchronize(good));
    MUST(cuEventSynchronize(event));
  }
  MUST(cuStreamDestroy(stream));
  EXPECT(cuStreamDestroy(stream) != CUDA_SUCCESS);
  MUST(cuCtxSynchronize());
  if (!g_at_once) {
    // The handle is used and destroyed before any query.
    refuse("cuStreamCreate");
    MUST(create(&stream));
    CUresult used = CUDA_SUCCESS;
    for (int i = 0; i < 200; ++i) {
      used = cuMemsetD8Async(g_memory, 3, 16, stream);
      EXPECT(used == CUDA_SUCCESS || used == kFailure);
      used = cuEventRecord(event, stream);
      EXPECT(used == CUDA_SUCCESS || used == kFailure);
      MUST(cuStreamWaitEvent(good, event, 0));
    }
    MUST(cuStreamDestroy(stream));
    FAILS(cuCtxSynchronize());
    MUST(cuCtxSynchronize());
    MUST(cuEventSynchronize(event));
    unsigned char byte = 0;
    MUST(cuMemcpyDtoH(&byte, g_memory, 1));
    EXPECT(byte == 2);
  }
  MUST(cuStreamDestroy(good));
  MUST(cuEventDestroy(event));
}

void events() {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUevent good = Device::event();
  CUevent event = nullptr;
  if (poisoned("cuEventCreate", &event, [](CUevent* out) { return cuEventCreate(out, 0); })) {
    // The stream continues, whether or not the failure has arrived by now.
    const CUresult recorded = cuEventRecord(event, stream);
    EXPECT(recorded == CUDA_SUCCESS || recorded == kFailure);
    const CUresult waits = cuStreamWaitEvent(stream, event, 0);
    EXPECT(waits == CUDA_SUCCESS || waits == kFailure);
    FAILS(cuEventSynchronize(event));
    FAILS(cuEventQuery(event));
    FAILS(cuEventRecord(event, stream));
    FAILS(cuStreamWaitEvent(stream, event, 0));
    tell();
    MUST(cuEventRecord(good, stream));
    MUST(cuMemsetD8Async(g_memory, 4, 16, stream));
    MUST(cuStreamSynchronize(stream));
    float milliseconds;
    FAILS(cuEventElapsedTime(&milliseconds, good, event));
    FAILS(cuEventElapsedTime(&milliseconds, event, good));
    MUST(cuEventQuery(good));
  }
  MUST(cuEventDestroy(event));
  EXPECT(cuEventDestroy(event) != CUDA_SUCCESS);
  MUST(cuStreamDestroy(stream));
  MUST(cuEventDestroy(good));
  MUST(cuCtxSynchronize());
}

CUresult launch(CUfunction function) {
  return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
}

// Loads of a known image return at once, and so do queries for its kernels.
void modules() {
  CUmodule known = nullptr, module = nullptr;
  CUfunction function = nullptr, again = nullptr;
  MUST(cuModuleLoadData(&known, kKernels));
  if (poisoned("cuModuleLoadDataEx", &module,
               [](CUmodule* out) { return cuModuleLoadData(out, kKernels); })) {
    const CUresult named = cuModuleGetFunction(&function, module, "nothing");
    if (named == CUDA_SUCCESS) {
      const CUresult launched = launch(function);
      EXPECT(launched == CUDA_SUCCESS || launched == kFailure);
    }
    FAILS(cuCtxSynchronize());
    MUST(cuCtxSynchronize());
    FAILS(cuModuleGetFunction(&again, module, "nothing"));
    CUdeviceptr address;
    FAILS(cuModuleGetGlobal(&address, nullptr, module, "no_such"));
    if (named == CUDA_SUCCESS) FAILS(launch(function));
  }
  MUST(cuModuleUnload(module));
  EXPECT(cuModuleUnload(module) != CUDA_SUCCESS);
  MUST(cuCtxSynchronize());

  CUfunction bad = nullptr;
  if (poisoned("cuModuleGetFunction", &bad,
               [known](CUfunction* out) { return cuModuleGetFunction(out, known, "nothing"); })) {
    tell();
    FAILS(launch(bad));
    FAILS(cuModuleGetFunction(&again, known, "nothing"));
    int registers;
    FAILS(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, bad));
    MUST(cuModuleLoadData(&module, kKernels));
    MUST(cuModuleGetFunction(&function, module, "nothing"));
    MUST(launch(function));
    MUST(cuModuleUnload(module));
  }
  MUST(cuModuleUnload(known));
  MUST(cuCtxSynchronize());
}

// A library returns its failure when a part of it is used.
void libraries() {
  CUlibrary library = nullptr, known = nullptr;
  CUkernel kernel = nullptr;
  const auto load = [](CUlibrary* out) {
    return cuLibraryLoadData(out, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0);
  };
  MUST(load(&known));
  if (poisoned("cuLibraryLoadData", &library, load)) {
    MUST(cuCtxSynchronize());
    if (cuLibraryGetKernel(&kernel, library, "nothing") == CUDA_SUCCESS) {
      FAILS(cuCtxSynchronize());
      MUST(cuCtxSynchronize());
      FAILS(launch(reinterpret_cast<CUfunction>(kernel)));
    }
    FAILS(cuLibraryGetKernel(&kernel, library, "nothing"));
  }
  MUST(cuLibraryUnload(library));
  EXPECT(cuLibraryUnload(library) != CUDA_SUCCESS);
  MUST(cuLibraryGetKernel(&kernel, known, "nothing"));
  MUST(launch(reinterpret_cast<CUfunction>(kernel)));
  MUST(cuCtxSynchronize());
  MUST(cuLibraryUnload(known));
}

void graphs() {
  CUgraph graph = nullptr, clone = nullptr, good = nullptr;
  CUgraphNode node = nullptr, other = nullptr;
  CUgraphExec exec = nullptr;
  MUST(cuGraphCreate(&good, 0));
  if (poisoned("cuGraphCreate", &graph, [](CUgraph* out) { return cuGraphCreate(out, 0); })) {
    const CUresult added = cuGraphAddEmptyNode(&node, graph, nullptr, 0);
    EXPECT(added == CUDA_SUCCESS || added == kFailure);
    tell();
    FAILS(cuGraphAddEmptyNode(&other, graph, nullptr, 0));
    FAILS(cuGraphInstantiate(&exec, graph, 0));
    FAILS(cuGraphClone(&clone, graph));
    std::size_t count = 0;
    FAILS(cuGraphGetNodes(graph, nullptr, &count));
    FAILS(cuGraphAddChildGraphNode(&other, good, nullptr, 0, graph));
    if (added == CUDA_SUCCESS) {
      CUgraphNodeType type;
      FAILS(cuGraphNodeGetType(node, &type));
      FAILS(cuGraphAddEmptyNode(&other, good, &node, 1));
      MUST(cuGraphDestroyNode(node));
    }
  }
  MUST(cuGraphDestroy(graph));
  EXPECT(cuGraphDestroy(graph) != CUDA_SUCCESS);

  if (poisoned("cuGraphClone", &clone, [good](CUgraph* out) { return cuGraphClone(out, good); })) {
    tell();
    FAILS(cuGraphInstantiate(&exec, clone, 0));
  }
  MUST(cuGraphDestroy(clone));

  if (poisoned("cuGraphAddEmptyNode", &node,
               [good](CUgraphNode* out) { return cuGraphAddEmptyNode(out, good, nullptr, 0); })) {
    tell();
    FAILS(cuGraphAddEmptyNode(&other, good, &node, 1));
    MUST(cuGraphDestroyNode(node));
    EXPECT(cuGraphDestroyNode(node) != CUDA_SUCCESS);
    MUST(cuCtxSynchronize());
    MUST(cuGraphAddEmptyNode(&node, good, nullptr, 0));
  }
  MUST(cuGraphInstantiate(&exec, good, 0));
  MUST(cuGraphLaunch(exec, nullptr));
  MUST(cuCtxSynchronize());
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphDestroy(good));
  MUST(cuCtxSynchronize());
}

// A thread that executes one task after another, while no other thread runs.
class Worker {
 public:
  Worker() : thread_([this] { run(); }) {}
  ~Worker() {
    give({});
    thread_.join();
  }

  CUresult operator()(std::function<CUresult()> work) {
    give(std::move(work));
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !given_; });
    return result_;
  }

 private:
  void give(std::function<CUresult()> work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_ = std::move(work);
    given_ = true;
    changed_.notify_all();
  }
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return given_; });
      if (work_ == nullptr) return;
      result_ = work_();
      given_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<CUresult()> work_;
  bool given_ = false;
  CUresult result_ = CUDA_SUCCESS;
  std::thread thread_;
};

// `code` once, then success.
void hears(Worker& thread, CUresult code) {
  EXPECT(thread(cuCtxSynchronize) == code);
  EXPECT(thread(cuCtxSynchronize) == CUDA_SUCCESS);
}

CUresult fail() { return cuMemsetD8Async(g_memory, 5, 16, nullptr); }

// A failure after a success. Each thread gets it once, in any order. No thread that begins later or
// has another context gets it.
void threads(CUcontext context, CUcontext elsewhere) {
  std::vector<Worker> others(3);
  Worker issuer, stranger;
  const auto enter = [](CUcontext it) {
    return [it] {
      MUST(cuCtxSetCurrent(it));
      return cuCtxSynchronize();
    };
  };
  for (Worker& each : others) MUST(each(enter(context)));
  MUST(issuer(enter(context)));
  MUST(stranger(enter(elsewhere)));

  // The issuer first.
  refuse("cuMemsetD8Async");
  MUST(issuer(fail));
  hears(issuer, kFailure);
  hears(stranger, CUDA_SUCCESS);
  for (Worker& each : others) hears(each, kFailure);
  EXPECT(cuCtxSynchronize() == kFailure);
  MUST(cuCtxSynchronize());

  // Another thread first, at a fence that reads. The fence does its own work.
  refuse("cuMemsetD8Async");
  MUST(cuMemsetD8(g_memory, 6, 16));
  EXPECT(cuCtxSynchronize() == kFailure);
  MUST(cuMemsetD8(g_memory, 6, 16));
  MUST(cuCtxSynchronize());
  unsigned char byte = 0;
  const auto read = [&byte] { return cuMemcpyDtoH(&byte, g_memory, 1); };
  EXPECT(others[1](read) == kFailure);
  EXPECT(byte == 6);
  MUST(others[1](read));
  hears(others[0], kFailure);
  hears(issuer, kFailure);
  hears(others[2], kFailure);
  hears(stranger, CUDA_SUCCESS);

  // Two failures before a fence count as one, the first. A thread that begins now has missed none.
  refuse("cuMemsetD8Async");
  refuse("cuEventCreate", 1, kOtherFailure);
  MUST(issuer(fail));
  MUST(issuer([] {
    CUevent never;
    MUST(cuEventCreate(&never, 0));
    return cuEventDestroy(never);
  }));
  hears(others[0], kFailure);
  Worker late;
  MUST(late(enter(context)));
  hears(issuer, kFailure);
  for (Worker* each : {&others[1], &others[2]}) hears(*each, kFailure);
  EXPECT(cuCtxSynchronize() == kFailure);
  MUST(cuCtxSynchronize());
  hears(late, CUDA_SUCCESS);

  // The issuing thread gets the failure in whichever context it is by then, and not again.
  refuse("cuMemsetD8Async");
  MUST(issuer(fail));
  hears(others[0], kFailure);  // It is known by now.
  EXPECT(issuer(enter(elsewhere)) == kFailure);
  hears(issuer, CUDA_SUCCESS);
  MUST(issuer(enter(context)));

  // A wait for an event returns it, too.
  EXPECT(cuCtxSynchronize() == kFailure);
  const CUevent event = Device::event();
  refuse("cuMemsetD8Async");
  MUST(issuer([event] {
    MUST(fail());
    MUST(cuEventRecord(event, nullptr));
    EXPECT(cuEventSynchronize(event) == kFailure);
    MUST(cuEventSynchronize(event));
    return cuEventQuery(event);
  }));
  hears(issuer, CUDA_SUCCESS);
  EXPECT(cuCtxSynchronize() == kFailure);
  MUST(cuEventDestroy(event));
  MUST(cuCtxSynchronize());
}

}  // namespace

int main(int argc, char**) {
  end_after(100);
  g_at_once = argc > 1;
  MUST(cuInit(0));
  CUcontext context, elsewhere;
  MUST(cuCtxCreate(&elsewhere, nullptr, 0, 0));
  MUST(cuCtxCreate(&context, nullptr, 0, 0));
  g_memory = Device::memory(4096);
  g_told = Device::memory(4096);
  streams();
  events();
  modules();
  libraries();
  graphs();
  if (!g_at_once) threads(context, elsewhere);
  MUST(cuCtxDestroy(context));
  MUST(cuCtxDestroy(elsewhere));
  std::printf("PASSED\n");
  return 0;
}
