// Capture modes kept: the result of some calls while a stream captures, in each mode, from the
// capturing thread and from another, and the state of the capture afterwards.
//
// Sources of the expected results. Modes, and which calls are unsafe: cuda.h,
// cuThreadExchangeStreamCaptureMode, with cudaMalloc as its example. Captured streams, contexts and
// the legacy stream: Programming Guide, "Prohibited and Unhandled Operations". A query of the
// legacy stream's status: cuda.h, cuStreamIsCapturing. Events: cuda.h, CUDA_ERROR_CAPTURED_EVENT.
// Events from before the capture: NVIDIA's "CUDA Graph Best Practice for PyTorch" (no background
// thread queries). Some results are undocumented, and follow the project's decision in
// driver_abi/semantics/capture_rules.cc: frees, host memory and loads of modules, and that an
// unsafe call which also conflicts returns the error of an unsafe one.
#include <cuda.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

#include "tests/support/cuda.h"

using cuda_check::name_of;

namespace {

constexpr char kPtx[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry nothing() { ret; }\n";
constexpr CUstream kLegacy = nullptr;

struct World {
  CUstream captured = nullptr, other = nullptr;
  CUevent inside = nullptr, before = nullptr;
  CUdeviceptr device = 0, spare = 0;
  void* host = nullptr;  // Pinned.
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  unsigned pageable = 0;
};

// Results in modes global, thread-local, relaxed, for a call from the capturing thread and from
// another.
struct Expected {
  CUresult own[3];
  CUresult other[3];
  bool invalidates = true;
};
constexpr Expected always(CUresult code, bool invalidates = true) {
  return {{code, code, code}, {code, code, code}, invalidates};
}
constexpr CUresult kOk = CUDA_SUCCESS;
constexpr CUresult kRefused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
constexpr CUresult kImplicit = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
constexpr Expected kAllowed = always(kOk);
// A capture in thread-local mode restricts its own thread only. One in relaxed mode restricts no
// thread.
constexpr Expected kUnsafe = {{kRefused, kRefused, kOk}, {kRefused, kOk, kOk}};
// As kUnsafe, but where the call is allowed it enqueues work in the legacy stream.
constexpr Expected kWaits = {{kRefused, kRefused, kImplicit}, {kRefused, kImplicit, kImplicit}};

struct Case {
  const char* name;
  Expected blocking;      // The captured stream is a blocking one.
  Expected non_blocking;  // The captured stream is a non-blocking one.
  std::function<CUresult(World&)> call;
};

void CUDA_CB nothing(void*) {}
void CUDA_CB nothing_either(CUstream, CUresult, void*) {}

CUresult launch_ex(World& world, CUstream stream) {
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  return cuLaunchKernelEx(&config, world.kernel, nullptr, nullptr);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const char* name, Expected expected, std::function<CUresult(World&)> call) {
    all.push_back({name, expected, expected, std::move(call)});
  };
  // Calls on the legacy stream. They are allowed while no blocking stream captures.
  const auto legacy = [&](const char* name, Expected expected, Expected non_blocking,
                          std::function<CUresult(World&)> call) {
    all.push_back({name, expected, non_blocking, std::move(call)});
  };
  add("MemAlloc", kUnsafe, [](World&) {
    CUdeviceptr memory;
    return cuMemAlloc(&memory, 64);
  });
  add("MemFree", kUnsafe, [](World& w) { return cuMemFree(w.device); });
  add("MemFree of nothing", kAllowed, [](World&) { return cuMemFree(0); });
  add("MemAllocHost", kUnsafe, [](World&) {
    void* memory;
    return cuMemAllocHost(&memory, 64);
  });
  add("MemHostAlloc", kUnsafe, [](World&) {
    void* memory;
    return cuMemHostAlloc(&memory, 64, 0);
  });
  add("MemFreeHost", kUnsafe, [](World& w) { return cuMemFreeHost(w.host); });
  // Warp loads modules while it captures.
  add("ModuleLoadData", kAllowed, [](World&) {
    CUmodule module;
    return cuModuleLoadData(&module, kPtx);
  });
  add("EventQuery", kUnsafe, [](World& w) { return cuEventQuery(w.before); });
  add("EventSynchronize", kUnsafe, [](World& w) { return cuEventSynchronize(w.before); });
  add("EventQuery captured", always(CUDA_ERROR_CAPTURED_EVENT),
      [](World& w) { return cuEventQuery(w.inside); });
  add("EventSynchronize captured", always(CUDA_ERROR_CAPTURED_EVENT),
      [](World& w) { return cuEventSynchronize(w.inside); });
  add("CtxSynchronize", always(kRefused), [](World&) { return cuCtxSynchronize(); });
  add("StreamQuery captured", always(kRefused), [](World& w) { return cuStreamQuery(w.captured); });
  add("StreamSynchronize captured", always(kRefused),
      [](World& w) { return cuStreamSynchronize(w.captured); });
  add("StreamAddCallback captured", always(kRefused),
      [](World& w) { return cuStreamAddCallback(w.captured, nothing_either, nullptr, 0); });
  add("StreamWaitEvent captured, of outside", always(CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
      [](World& w) { return cuStreamWaitEvent(w.captured, w.before, 0); });
  add("StreamBeginCapture captured", always(CUDA_ERROR_ILLEGAL_STATE, false),
      [](World& w) { return cuStreamBeginCapture(w.captured, CU_STREAM_CAPTURE_MODE_RELAXED); });
  add("MemsetD8Async captured", kAllowed,
      [](World& w) { return cuMemsetD8Async(w.device, 1, 4, w.captured); });
  add("LaunchKernel captured", kAllowed, [](World& w) {
    return cuLaunchKernel(w.kernel, 1, 1, 1, 1, 1, 1, 0, w.captured, nullptr, nullptr);
  });
  add("LaunchKernelEx captured", kAllowed, [](World& w) { return launch_ex(w, w.captured); });
  add("EventRecord captured", kAllowed,
      [](World& w) { return cuEventRecord(w.inside, w.captured); });
  add("StreamQuery other", kAllowed, [](World& w) { return cuStreamQuery(w.other); });
  add("StreamSynchronize other", kAllowed, [](World& w) { return cuStreamSynchronize(w.other); });
  add("MemsetD8Async other", kAllowed,
      [](World& w) { return cuMemsetD8Async(w.device, 1, 4, w.other); });
  add("MemcpyDtoHAsync other", kAllowed,
      [](World& w) { return cuMemcpyDtoHAsync(&w.pageable, w.device, 4, w.other); });
  add("EventRecord other", kAllowed, [](World& w) { return cuEventRecord(w.before, w.other); });
  add("StreamCreate", kAllowed, [](World&) {
    CUstream stream;
    return cuStreamCreate(&stream, 0);
  });
  add("EventCreate", kAllowed, [](World&) {
    CUevent event;
    return cuEventCreate(&event, 0);
  });
  legacy("MemcpyHtoD", kWaits, kUnsafe,
         [](World& w) { return cuMemcpyHtoD(w.device, &w.pageable, 4); });
  legacy("MemcpyDtoH", kWaits, kUnsafe,
         [](World& w) { return cuMemcpyDtoH(&w.pageable, w.device, 4); });
  const Expected implicit = always(kImplicit);
  legacy("MemsetD8", implicit, kAllowed, [](World& w) { return cuMemsetD8(w.device, 1, 4); });
  legacy("MemcpyDtoD", implicit, kAllowed,
         [](World& w) { return cuMemcpyDtoD(w.device, w.device + 8, 4); });
  legacy("MemsetD8Async legacy", implicit, kAllowed,
         [](World& w) { return cuMemsetD8Async(w.device, 1, 4, kLegacy); });
  legacy("MemcpyDtoHAsync legacy", implicit, kAllowed,
         [](World& w) { return cuMemcpyDtoHAsync(&w.pageable, w.device, 4, kLegacy); });
  legacy("LaunchKernel legacy", implicit, kAllowed, [](World& w) {
    return cuLaunchKernel(w.kernel, 1, 1, 1, 1, 1, 1, 0, kLegacy, nullptr, nullptr);
  });
  legacy("LaunchKernelEx legacy", implicit, kAllowed,
         [](World& w) { return launch_ex(w, kLegacy); });
  legacy("EventRecord legacy", implicit, kAllowed,
         [](World& w) { return cuEventRecord(w.before, kLegacy); });
  legacy("StreamWaitEvent legacy", implicit, kAllowed,
         [](World& w) { return cuStreamWaitEvent(kLegacy, w.before, 0); });
  legacy("LaunchHostFunc legacy", implicit, kAllowed,
         [](World&) { return cuLaunchHostFunc(kLegacy, nothing, nullptr); });
  legacy("StreamQuery legacy", implicit, kAllowed, [](World&) {
    const CUresult result = cuStreamQuery(kLegacy);
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
  });
  legacy("StreamSynchronize legacy", implicit, kAllowed,
         [](World&) { return cuStreamSynchronize(kLegacy); });
  legacy("StreamIsCapturing legacy", always(kImplicit, false), kAllowed, [](World&) {
    CUstreamCaptureStatus status;
    return cuStreamIsCapturing(kLegacy, &status);
  });
  return all;
}

const char* const kModes[] = {"global", "thread-local", "relaxed"};
CUcontext g_context;
int g_wrong = 0;

void prepare(World& world, unsigned stream_flags) {
  MUST(cuStreamCreate(&world.captured, stream_flags));
  MUST(cuMemAlloc(&world.device, 64));
  MUST(cuMemAllocHost(&world.host, 64));
  MUST(cuEventRecord(world.before, world.other));
  MUST(cuStreamSynchronize(world.other));
  MUST(cuEventSynchronize(world.before));
}

void clean(World& world) {
  MUST(cuCtxSynchronize());
  (void)cuMemFree(world.device);  // Each may already be freed.
  (void)cuMemFreeHost(world.host);
  MUST(cuStreamDestroy(world.captured));
}

void run(World& world, const Case& each, unsigned stream_flags, int mode, bool by_other) {
  const bool blocking = stream_flags == CU_STREAM_DEFAULT;
  const Expected& wanted = blocking ? each.blocking : each.non_blocking;
  prepare(world, stream_flags);
  MUST(cuStreamBeginCapture(world.captured, static_cast<CUstreamCaptureMode>(mode)));
  MUST(cuMemsetD8Async(world.device, 7, 4, world.captured));
  MUST(cuEventRecord(world.inside, world.captured));
  CUresult code = kOk;
  if (by_other) {
    std::thread([&] {
      MUST(cuCtxSetCurrent(g_context));
      code = each.call(world);
    }).join();
  } else {
    code = each.call(world);
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  MUST(cuStreamIsCapturing(world.captured, &status));
  CUgraph graph = nullptr;
  const CUresult end = cuStreamEndCapture(world.captured, &graph);
  if (graph != nullptr) MUST(cuGraphDestroy(graph));

  const CUresult expected = (by_other ? wanted.other : wanted.own)[mode];
  const bool ended = expected != kOk && wanted.invalidates;
  const bool right =
      code == expected &&
      status == (ended ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE) &&
      end == (ended ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : kOk) && (graph == nullptr) == ended;
  std::printf("%s, %s, %s thread, %s: %s, status %d, end %s%s\n",
              blocking ? "blocking" : "non-blocking", kModes[mode], by_other ? "other" : "own",
              each.name, name_of(code), static_cast<int>(status), name_of(end),
              right ? "" : " WRONG");
  if (!right) ++g_wrong;
  clean(world);
}

void check(bool right, const char* what) {
  std::printf("%s: %s\n", what, right ? "right" : "WRONG");
  if (!right) ++g_wrong;
}

// Streams that join a capture, two captures that meet, and captures that end in the wrong place.
void run_joined(World& world) {
  CUstream one, two;
  CUevent mark;
  CUgraph graph = nullptr;
  MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&two, CU_STREAM_DEFAULT));
  MUST(cuEventCreate(&mark, 0));
  MUST(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(cuEventRecord(mark, one));
  check(cuMemsetD8(world.spare, 1, 4) == kOk, "legacy stream beside a non-blocking capture");
  MUST(cuStreamWaitEvent(two, mark, 0));
  check(cuMemsetD8(world.spare, 1, 4) == kImplicit, "legacy stream once a blocking one has joined");
  check(cuMemsetD8Async(world.spare, 1, 4, two) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        "work in an invalidated capture");
  check(cuStreamEndCapture(one, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "its end");

  MUST(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  MUST(cuEventRecord(mark, one));
  MUST(cuStreamWaitEvent(two, mark, 0));
  check(cuStreamEndCapture(two, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
        "an end on a joined stream");
  CUresult code = kOk;
  std::thread([&] {
    MUST(cuCtxSetCurrent(g_context));
    code = cuStreamEndCapture(one, &graph);
  }).join();
  check(code == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "an end on another thread");
  check(cuStreamEndCapture(one, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "its end");

  MUST(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(cuStreamBeginCapture(two, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(cuEventRecord(mark, one));
  check(cuStreamWaitEvent(two, mark, 0) == CUDA_ERROR_STREAM_CAPTURE_MERGE, "two captures meet");
  check(cuStreamEndCapture(one, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        "the first's end");
  check(cuStreamEndCapture(two, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the second's");
  check(cuEventQuery(mark) == CUDA_ERROR_CAPTURED_EVENT, "an event of a capture that has ended");
  MUST(cuEventRecord(mark, one));
  MUST(cuEventSynchronize(mark));

  // A thread may relax its own mode. A relaxed thread is not restricted at all.
  MUST(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  MUST(cuThreadExchangeStreamCaptureMode(&mode));
  CUdeviceptr memory = 0;
  check(cuMemAlloc(&memory, 64) == kOk, "an allocation by a thread in relaxed mode");
  MUST(cuThreadExchangeStreamCaptureMode(&mode));
  MUST(cuStreamEndCapture(one, &graph));
  MUST(cuGraphDestroy(graph));
}

CUgraph graph_while_captured(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  cuuint64_t id = 0;
  MUST(cuStreamGetCaptureInfo(stream, &status, &id, &graph, nullptr, nullptr, nullptr));
  check(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && graph != nullptr, "a graph while captured");
  return graph;
}

std::vector<CUgraphNode> nodes_of(CUgraph graph) {
  size_t count = 0;
  MUST(cuGraphGetNodes(graph, nullptr, &count));
  std::vector<CUgraphNode> nodes(count);
  if (count != 0) MUST(cuGraphGetNodes(graph, nodes.data(), &count));
  return nodes;
}
size_t node_count(CUgraph graph) { return nodes_of(graph).size(); }

std::vector<CUgraphNode> nodes_before_next(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t alone = 0;
  MUST(cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, nullptr, nullptr, &alone));
  size_t count = 0;
  MUST(cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count));
  check(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && alone == count, "nodes before the next");
  check(cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, nullptr, &edges, &count) ==
            CUDA_ERROR_INVALID_VALUE,
        "edges without nodes");
  // The data parallels the nodes (cuda.h), so that readers such as cuda.bindings copy all of it.
  check(edges != nullptr || count == 0, "a list of the edges' data");
  for (size_t i = 0; edges != nullptr && i < count; ++i) {
    check(edges[i].from_port == 0 && edges[i].to_port == 0 && edges[i].type == 0, "full edges");
  }
  return std::vector<CUgraphNode>(nodes, nodes + count);
}

// The graph may be queried before its capture ends, as PyTorch does. It is the graph that the end
// returns.
void run_told_graphs(const World& world) {
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUgraph graph = nullptr;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  const CUgraph told = graph_while_captured(stream);
  check(node_count(told) == 0, "nothing is in it yet");
  MUST(cuLaunchKernel(world.kernel, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  check(graph_while_captured(stream) == told, "the same graph again");
  check(node_count(told) == 1, "the launch is in it");
  // The dependencies of the next node, however many.
  CUevent mark = nullptr;
  MUST(cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING));
  std::vector<CUstream> others(20);
  for (CUstream& other : others) {
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(cuEventRecord(mark, stream));
    MUST(cuStreamWaitEvent(other, mark, 0));
  }
  check(nodes_before_next(stream) == nodes_of(told), "behind the launch");
  check(nodes_before_next(others.back()) == nodes_of(told), "on a stream that joined");
  for (CUstream& other : others) {
    MUST(cuLaunchKernel(world.kernel, 1, 1, 1, 1, 1, 1, 0, other, nullptr, nullptr));
    MUST(cuEventRecord(mark, other));
    MUST(cuStreamWaitEvent(stream, mark, 0));
  }
  const std::vector<CUgraphNode> before = nodes_before_next(stream);
  check(before.size() >= others.size() && before.size() <= others.size() + 1, "behind all of them");
  const std::vector<CUgraphNode> all = nodes_of(told);
  for (const CUgraphNode node : before) {
    if (std::count(all.begin(), all.end(), node) != 1) check(false, "a node of the graph");
  }
  MUST(cuStreamEndCapture(stream, &graph));
  for (CUstream& other : others) MUST(cuStreamDestroy(other));
  MUST(cuEventDestroy(mark));
  check(graph == told, "the graph of the end is the one that was told");
  CUgraphExec executable = nullptr;
  MUST(cuGraphInstantiate(&executable, graph, 0));
  MUST(cuGraphLaunch(executable, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuGraphExecDestroy(executable));

  // A capture into an existing graph: the query returns that graph.
  CUgraph clone = nullptr;
  MUST(cuGraphClone(&clone, graph));
  MUST(cuStreamBeginCaptureToGraph(stream, clone, nullptr, nullptr, 0,
                                   CU_STREAM_CAPTURE_MODE_RELAXED));
  check(graph_while_captured(stream) == clone, "the graph that is captured into");
  CUgraph same = nullptr;
  MUST(cuStreamEndCapture(stream, &same));
  check(same == clone, "and its end");
  MUST(cuGraphDestroy(clone));
  MUST(cuGraphDestroy(graph));

  // A failed capture destroys its graph. The next capture has its own.
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  const CUgraph lost = graph_while_captured(stream);
  check(cuStreamSynchronize(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a wait inside");
  check(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "its end");
  check(graph == nullptr, "no graph of it");
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  const CUgraph next = graph_while_captured(stream);
  check(next != lost, "a graph of its own");
  MUST(cuLaunchKernel(world.kernel, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  MUST(cuStreamEndCapture(stream, &graph));
  check(graph == next && node_count(graph) == 1, "the one that was told");
  MUST(cuGraphDestroy(graph));
  MUST(cuStreamDestroy(stream));
}

}  // namespace

int main() {
  MUST(cuInit(0));
  CUdevice device;
  MUST(cuDeviceGet(&device, 0));
  MUST(cuCtxCreate(&g_context, nullptr, 0, device));
  World world;
  MUST(cuModuleLoadData(&world.module, kPtx));
  MUST(cuModuleGetFunction(&world.kernel, world.module, "nothing"));
  MUST(cuStreamCreate(&world.other, CU_STREAM_NON_BLOCKING));
  MUST(cuEventCreate(&world.inside, 0));
  MUST(cuEventCreate(&world.before, 0));
  MUST(cuMemAlloc(&world.spare, 64));
  for (const unsigned flags : {unsigned{CU_STREAM_DEFAULT}, unsigned{CU_STREAM_NON_BLOCKING}}) {
    for (int mode = 0; mode < 3; ++mode) {
      for (const bool by_other : {false, true}) {
        for (const Case& each : cases()) run(world, each, flags, mode, by_other);
      }
    }
  }
  run_joined(world);
  run_told_graphs(world);
  MUST(cuCtxDestroy(g_context));
  std::printf(g_wrong == 0 ? "PASSED\n" : "FAILED: %d\n", g_wrong);
  return g_wrong == 0 ? 0 : 1;
}
