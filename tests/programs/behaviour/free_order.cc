// Driver API: order of frees. Calls after a free find the work before it complete. A kernel runs on
// a non-blocking stream, something is freed, and the program observes the kernel's result: in each
// possible way, on non-blocking streams, in other threads and contexts.
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "driver_test.h"

namespace {

constexpr size_t kBytes = 1 << 16;

// Writes `value` to `to` after some milliseconds.
void launch_slow(const Device& device, CUstream in, CUdeviceptr to, unsigned value) {
  unsigned turns = 100'000'000;
  void* arguments[] = {&turns, &to, &value};
  MUST(cuLaunchKernel(device.linger, 1, 1, 1, 1, 1, 1, 0, in, arguments, nullptr));
}

// A kind of free. The object is created before the work, and freed after it is enqueued.
struct Freed {
  const char* name;
  std::function<std::function<void()>()> make;
};

CUmipmappedArray mipmapped_array(const CUDA_ARRAY_DESCRIPTOR& flat) {
  CUDA_ARRAY3D_DESCRIPTOR full = {};
  full.Width = flat.Width;
  full.Height = flat.Height;
  full.Format = flat.Format;
  full.NumChannels = flat.NumChannels;
  CUmipmappedArray made;
  MUST(cuMipmappedArrayCreate(&made, &full, 3));
  return made;
}

std::vector<Freed> all_freed() {
  const auto freed_memory = [](size_t bytes) {
    return [bytes] {
      const CUdeviceptr memory = Device::memory(bytes);
      return [memory] { MUST(cuMemFree(memory)); };
    };
  };
  const auto of_graph = [] {
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {};
    wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.bytesize = kBytes;
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &wanted));
    MUST(cuGraphInstantiate(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, nullptr));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    return [memory = wanted.dptr] { MUST(cuMemFree(memory)); };
  };
  const auto pinned = [] {
    unsigned* const memory = Device::pinned(kBytes);
    return [memory] { MUST(cuMemFreeHost(memory)); };
  };
  const auto registered = [] {
    static unsigned char memory[kBytes];
    MUST(cuMemHostRegister(memory, kBytes, 0));
    return [] { MUST(cuMemHostUnregister(memory)); };
  };
  CUDA_ARRAY_DESCRIPTOR flat = {};
  flat.Width = flat.Height = 64;
  flat.Format = CU_AD_FORMAT_FLOAT;
  flat.NumChannels = 1;
  const auto array = [flat] {
    CUarray made;
    MUST(cuArrayCreate(&made, &flat));
    return [made] { MUST(cuArrayDestroy(made)); };
  };
  const auto mipmapped = [flat] {
    const CUmipmappedArray made = mipmapped_array(flat);
    return [made] { MUST(cuMipmappedArrayDestroy(made)); };
  };
  const auto several = [freed_memory] {
    const std::function<void()> frees[] = {freed_memory(kBytes)(), freed_memory(kBytes)()};
    return [one = frees[0], other = frees[1]] {
      one();
      other();
    };
  };
  return {{"memory", freed_memory(kBytes)},
          {"large memory", freed_memory(100 << 20)},
          {"pinned memory", pinned},
          {"registered memory", registered},
          {"an array", array},
          {"a mipmapped array", mipmapped},
          {"memory twice", several},
          {"a graph's memory", of_graph}};
}

// The things that the program can observe: the kernel's value, and reports of its end.
struct Scene {
  const Device& device;
  CUstream busy, other;
  CUdeviceptr value, copy;
  CUevent done;
  unsigned* seen;
  CUcontext second;
  CUstream theirs;
  CUgraphExec graph;  // Copies value to copy.
};

// Returns the observed value.
struct Witness {
  const char* name;
  std::function<unsigned(const Scene&)> look;
};

unsigned look_by_stream(const Scene& scene, CUdeviceptr from, CUstream stream) {
  *scene.seen = 0;
  MUST(cuMemcpyDtoHAsync(scene.seen, from, 4, stream));
  MUST(cuStreamSynchronize(stream));
  return *scene.seen;
}

unsigned look_by_box(const Scene& scene) {
  unsigned value = 0;
  CUDA_MEMCPY2D box = {};
  box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = scene.value;
  box.srcPitch = 4;
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = &value;
  box.dstPitch = 4;
  box.WidthInBytes = 4;
  box.Height = 1;
  MUST(cuMemcpy2D(&box));
  return value;
}

unsigned look_by_kernel(const Scene& scene) {
  CUdeviceptr at = scene.value;
  unsigned one = 1;
  void* arguments[] = {&at, &one};
  MUST(cuLaunchKernel(scene.device.pass_on, 1, 1, 1, 1, 1, 1, 0, scene.other, arguments, nullptr));
  return look_by_stream(scene, scene.value, scene.other) - 1;
}

unsigned look_by_copy(const Scene& scene) {
  MUST(cuMemcpyDtoDAsync(scene.copy, scene.value, 4, scene.other));
  return look_by_stream(scene, scene.copy, scene.other);
}

unsigned look_by_graph(const Scene& scene) {
  MUST(cuGraphLaunch(scene.graph, scene.other));
  return look_by_stream(scene, scene.copy, scene.other);
}

unsigned look_in_second(const Scene& scene) {
  MUST(cuCtxSetCurrent(scene.second));
  const unsigned value = look_by_stream(scene, scene.value, scene.theirs);
  MUST(cuCtxSetCurrent(scene.device.context));
  return value;
}

// Returns the kernel's value when all queries report its end, otherwise 0.
unsigned look_by_questions(const Scene& scene) {
  const CUresult event = cuEventQuery(scene.done);
  const CUresult stream = cuStreamQuery(scene.busy);
  return event == CUDA_SUCCESS && stream == CUDA_SUCCESS ? Device::read(scene.value) : 0;
}

std::vector<Witness> all_witnesses() {
  const auto in_thread = [](const std::function<unsigned(const Scene&)>& look) {
    return [look](const Scene& scene) {
      unsigned value = 0;
      std::thread([&] {
        MUST(cuCtxSetCurrent(scene.device.context));
        value = look(scene);
      }).join();
      return value;
    };
  };
  const auto by_legacy = [](const Scene& scene) { return Device::read(scene.value); };
  const auto by_other = [](const Scene& scene) {
    return look_by_stream(scene, scene.value, scene.other);
  };
  const auto by_per_thread = [](const Scene& scene) {
    return look_by_stream(scene, scene.value, CU_STREAM_PER_THREAD);
  };
  return {{"a copy by the legacy stream", by_legacy},
          {"a copy by another stream", by_other},
          {"a copy by the thread's stream", by_per_thread},
          {"a copy of a box", look_by_box},
          {"another stream's kernel", look_by_kernel},
          {"a copy on the device", look_by_copy},
          {"a graph", look_by_graph},
          {"a copy in another context", look_in_second},
          {"questions", look_by_questions},
          {"another thread's copy", in_thread(by_legacy)},
          {"another thread's copy by its stream", in_thread(by_per_thread)},
          {"another thread's kernel", in_thread(look_by_kernel)},
          {"another thread's questions", in_thread(look_by_questions)}};
}

CUgraphExec copy_graph(const Device& device, CUdeviceptr to, CUdeviceptr from) {
  CUDA_MEMCPY3D box = {};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = from;
  box.dstDevice = to;
  box.WidthInBytes = 4;
  box.Height = box.Depth = 1;
  CUgraph graph;
  CUgraphNode node;
  CUgraphExec executable;
  MUST(cuGraphCreate(&graph, 0));
  MUST(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &box, device.context));
  MUST(cuGraphInstantiate(&executable, graph, 0));
  MUST(cuGraphDestroy(graph));
  return executable;
}

void expect(unsigned seen, unsigned value, const std::string& what) {
  if (seen == value) return;
  std::printf("FAILED: %s saw %u and not %u\n", what.c_str(), seen, value);
  std::exit(1);
}

Scene make_scene(const Device& device) {
  CUcontext second;
  MUST(cuCtxCreate(&second, nullptr, 0, device.device));
  const CUstream theirs = Device::stream(CU_STREAM_NON_BLOCKING);
  MUST(cuCtxSetCurrent(device.context));
  Scene scene = {device,
                 Device::stream(CU_STREAM_NON_BLOCKING),
                 Device::stream(CU_STREAM_NON_BLOCKING),
                 Device::memory(4),
                 Device::memory(4),
                 Device::event(),
                 Device::pinned(4),
                 second,
                 theirs,
                 nullptr};
  scene.graph = copy_graph(device, scene.copy, scene.value);
  return scene;
}

void every_free_and_witness(const Scene& scene) {
  unsigned value = 10;
  const std::vector<Freed> frees = all_freed();
  const std::vector<Witness> witnesses = all_witnesses();
  for (size_t i = 0; i < frees.size(); ++i) {
    const Freed& freed = frees[i];
    for (size_t at = 0; at < witnesses.size(); ++at) {
      if (i != 0 && at % 3 != i % 3) continue;  // A third each, but all behind the first.
      const Witness& witness = witnesses[at];
      const std::function<void()> free = freed.make();
      MUST(cuCtxSynchronize());
      value += 10;
      launch_slow(scene.device, scene.busy, scene.value, value);
      MUST(cuEventRecord(scene.done, scene.busy));
      free();
      expect(witness.look(scene), value,
             std::string(witness.name) + " after the end of " + freed.name);
    }
  }
}

// Work on various streams: many, a destroyed one, a thread's own, another context's.
void many_streams(const Scene& scene) {
  constexpr unsigned kStreams = 9;
  const CUdeviceptr values = Device::memory(4 * (kStreams + 2));
  for (unsigned round = 1; round <= 3; ++round) {
    std::vector<CUstream> streams;
    const CUdeviceptr gone = Device::memory(kBytes);
    for (unsigned i = 0; i < kStreams; ++i) {
      streams.push_back(Device::stream(i % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
      launch_slow(scene.device, streams.back(), values + 4 * i, round);
    }
    launch_slow(scene.device, CU_STREAM_PER_THREAD, values + 4 * kStreams, round);
    std::thread([&] {
      MUST(cuCtxSetCurrent(scene.device.context));
      launch_slow(scene.device, CU_STREAM_PER_THREAD, values + 4 * (kStreams + 1), round);
    }).join();
    for (unsigned i = 0; i < kStreams; i += 3) MUST(cuStreamDestroy(streams[i]));
    MUST(cuMemFree(gone));
    for (unsigned i = 0; i < kStreams + 2; ++i) {
      expect(look_by_stream(scene, values + 4 * i, scene.other), round, "a copy after a free");
    }
    for (unsigned i = 0; i < kStreams; ++i) {
      if (i % 3 != 0) MUST(cuStreamDestroy(streams[i]));
    }
  }
}

// A free waits for the context that owns the memory, whichever is current. Frees memory of one
// context after another.
void contexts(const Scene& scene, const char* image) {
  const Device& device = scene.device;
  MUST(cuCtxSetCurrent(scene.second));
  Device theirs = device;
  theirs.load(image);
  const CUdeviceptr their_value = Device::memory(4);
  for (unsigned round = 1; round <= 3; ++round) {
    MUST(cuCtxSetCurrent(scene.second));
    const CUdeviceptr gone = Device::memory(kBytes);
    launch_slow(theirs, scene.theirs, their_value, round);
    MUST(cuCtxSetCurrent(device.context));
    const CUdeviceptr mine_gone = Device::memory(kBytes);
    launch_slow(device, scene.busy, scene.value, round);
    MUST(cuMemFree(gone));
    expect(look_by_stream(scene, their_value, scene.other), round, "a copy after another's free");
    MUST(cuMemFree(mine_gone));
    MUST(cuCtxSetCurrent(scene.second));
    expect(look_by_stream(scene, scene.value, scene.theirs), round, "another's copy after a free");
  }
  MUST(cuCtxSetCurrent(device.context));
}

// After a free returns, the sources of copies in may be overwritten.
void sources(const Scene& scene) {
  constexpr size_t kLarge = 48 << 20;
  auto* const source = reinterpret_cast<unsigned char*>(Device::pinned(kLarge));
  std::vector<unsigned char> seen(kLarge);
  const CUdeviceptr to = Device::memory(kLarge);
  for (unsigned char round = 1; round <= 4; ++round) {
    const CUdeviceptr gone = Device::memory(kBytes);
    unsigned* const pinned_gone = Device::pinned(kBytes);
    std::memset(source, round, kLarge);
    launch_slow(scene.device, scene.busy, scene.value, round);
    MUST(cuMemcpyHtoDAsync(to, source, kLarge, scene.busy));
    if (round % 2 == 0) MUST(cuMemFree(gone));
    MUST(cuMemFreeHost(pinned_gone));
    std::memset(source, 0xee, kLarge);
    MUST(cuMemcpyDtoH(seen.data(), to, kLarge));
    const auto wrong = std::find_if(seen.begin(), seen.end(),
                                    [round](unsigned char each) { return each != round; });
    if (wrong != seen.end()) expect(*wrong, round, "a copy whose source was overwritten");
    if (round % 2 != 0) MUST(cuMemFree(gone));
  }
  MUST(cuMemFree(to));
  MUST(cuMemFreeHost(source));
}

// A capture by an unrelated stream, in the mode that allows frees.
class OtherCapture {
 public:
  explicit OtherCapture(bool wanted) : stream_(wanted ? Device::stream(1) : nullptr) {
    if (wanted) MUST(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  }
  void end() {
    CUgraph graph;
    if (stream_ == nullptr) return;
    MUST(cuStreamEndCapture(stream_, &graph));
    MUST(cuGraphDestroy(graph));
    MUST(cuStreamDestroy(stream_));
  }

 private:
  CUstream stream_;
};

// A graph that copies from `source` behind a slow kernel.
CUgraphExec upload_graph(const Scene& scene, CUdeviceptr to, const void* source, size_t bytes) {
  CUgraph graph;
  CUgraphExec executable;
  MUST(cuStreamBeginCapture(scene.other, CU_STREAM_CAPTURE_MODE_RELAXED));
  launch_slow(scene.device, scene.other, scene.value, 1);
  MUST(cuMemcpyHtoDAsync(to, source, bytes, scene.other));
  MUST(cuStreamEndCapture(scene.other, &graph));
  MUST(cuGraphInstantiate(&executable, graph, 0));
  MUST(cuGraphDestroy(graph));
  return executable;
}

// The sources of graphs behave like those of copies, also in a capture. A synchronous copy in also
// waits for the blocking streams.
void sources_of_graphs(const Scene& scene) {
  constexpr size_t kLarge = 4 << 20;
  auto* const source = reinterpret_cast<unsigned char*>(Device::pinned(kLarge));
  const CUstream blocking = Device::stream(CU_STREAM_DEFAULT);
  const CUdeviceptr to = Device::memory(kLarge);
  const CUgraphExec graph = upload_graph(scene, to, source, kLarge);
  std::vector<Freed> calls = all_freed();
  const auto copy_in = [&scene] {
    const unsigned zero = 0;
    MUST(cuMemcpyHtoD(scene.copy, &zero, 4));
  };
  calls.push_back({"a copy in", [copy_in] { return copy_in; }});
  unsigned char round = 0;
  for (const bool captures : {false, true}) {
    for (const Freed& each : calls) {
      const std::function<void()> call = each.make();
      std::memset(source, ++round, kLarge);
      MUST(cuCtxSynchronize());
      MUST(cuGraphLaunch(graph, blocking));
      OtherCapture capture(captures);
      call();
      std::memset(source, 0xee, kLarge);
      capture.end();
      MUST(cuStreamSynchronize(blocking));
      expect(Device::read(to + kLarge - 4) & 0xff, round,
             std::string("a graph whose source was overwritten after ") + each.name);
    }
  }
  MUST(cuGraphExecDestroy(graph));
  MUST(cuStreamDestroy(blocking));
  MUST(cuMemFree(to));
  MUST(cuMemFreeHost(source));
}

// The bytes of copies out have arrived when a free returns, also in a capture.
void copies_out(const Scene& scene) {
  unsigned value = 100;
  for (const bool captures : {false, true}) {
    for (const Freed& each : all_freed()) {
      const std::function<void()> free = each.make();
      *scene.seen = 0;
      MUST(cuCtxSynchronize());
      launch_slow(scene.device, scene.busy, scene.value, ++value);
      MUST(cuMemcpyDtoHAsync(scene.seen, scene.value, 4, scene.busy));
      OtherCapture capture(captures);
      free();
      expect(*const_cast<volatile unsigned*>(scene.seen), value,
             std::string("a copy out before the end of ") + each.name);
      capture.end();
    }
  }
}

// While another stream captures, in the mode that allows it.
void in_a_capture(const Scene& scene) {
  const CUstream captured = Device::stream(CU_STREAM_NON_BLOCKING);
  for (const Freed& freed : all_freed()) {
    const std::function<void()> free = freed.make();
    MUST(cuCtxSynchronize());
    const unsigned value = Device::read(scene.value) + 1;
    launch_slow(scene.device, scene.busy, scene.value, value);
    CUgraph graph;
    MUST(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemcpyDtoDAsync(scene.copy, scene.value, 4, captured));
    free();
    MUST(cuMemcpyDtoHAsync(scene.seen, scene.value, 4, scene.other));
    MUST(cuStreamEndCapture(captured, &graph));
    MUST(cuStreamSynchronize(scene.other));
    expect(*scene.seen, value, std::string("a copy after, in a capture, the end of ") + freed.name);
    MUST(cuGraphDestroy(graph));
  }
}

// Work before a capture does not belong to it. This covers the stream that begins one, a stream
// that joins by an event, and the legacy stream, which cannot be queried while a blocking stream
// captures.
struct Entry {
  const char* name;
  unsigned flags;
  bool of_legacy, drawn;
};

void launch_captured(const Device& device, CUstream in, CUdeviceptr at) {
  unsigned one = 1;
  void* arguments[] = {&at, &one};
  MUST(cuLaunchKernel(device.pass_on, 1, 1, 1, 1, 1, 1, 0, in, arguments, nullptr));
}

void before_a_capture(const Scene& scene, const Entry& entry, const Freed& freed) {
  const CUstream busy = Device::stream(entry.flags);
  const CUstream origin = entry.drawn ? Device::stream(CU_STREAM_NON_BLOCKING) : busy;
  const CUevent fork = Device::event(), join = Device::event();
  const std::function<void()> free = freed.make();
  MUST(cuCtxSynchronize());
  const unsigned value = Device::read(scene.value) + 1;
  const CUstream working = entry.of_legacy ? nullptr : busy;
  launch_slow(scene.device, working, scene.value, value);
  MUST(cuEventRecord(scene.done, working));
  CUgraph graph;
  MUST(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  launch_captured(scene.device, origin, scene.copy);
  if (entry.drawn) {
    MUST(cuEventRecord(fork, origin));
    MUST(cuStreamWaitEvent(busy, fork, 0));
    launch_captured(scene.device, busy, scene.copy);
    MUST(cuEventRecord(join, busy));
    MUST(cuStreamWaitEvent(origin, join, 0));
  }
  free();
  MUST(cuMemcpyDtoHAsync(scene.seen, scene.value, 4, scene.other));
  const std::string what = std::string(" before ") + entry.name + " captured and " + freed.name;
  expect(cuEventQuery(scene.done), CUDA_SUCCESS, "the event" + what);
  MUST(cuStreamEndCapture(origin, &graph));
  MUST(cuStreamSynchronize(scene.other));
  expect(*scene.seen, value, "a copy of the work" + what);
  size_t nodes = 0;
  MUST(cuGraphGetNodes(graph, nullptr, &nodes));
  expect(static_cast<unsigned>(nodes), entry.drawn ? 2 : 1, "the graph" + what);
  MUST(cuGraphDestroy(graph));
  MUST(cuEventDestroy(fork));
  MUST(cuEventDestroy(join));
  MUST(cuStreamDestroy(busy));
  if (entry.drawn) MUST(cuStreamDestroy(origin));
}

void before_captures(const Scene& scene) {
  const Entry entries[] = {{"its stream", CU_STREAM_NON_BLOCKING, false, false},
                           {"its blocking stream", CU_STREAM_DEFAULT, false, false},
                           {"a blocking stream", CU_STREAM_DEFAULT, true, false},
                           {"by an event its stream", CU_STREAM_NON_BLOCKING, false, true},
                           {"by an event a blocking stream", CU_STREAM_DEFAULT, true, true}};
  const std::vector<Freed> frees = all_freed();
  for (const Entry& entry : entries) {
    for (size_t i = 0; i < frees.size(); i += 3) before_a_capture(scene, entry, frees[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  end_after(200);
  const Device device(argv[1]);
  const Scene scene = make_scene(device);
  every_free_and_witness(scene);
  many_streams(scene);
  contexts(scene, argv[1]);
  in_a_capture(scene);
  before_captures(scene);
  sources(scene);
  sources_of_graphs(scene);
  copies_out(scene);
  MUST(cuGraphExecDestroy(scene.graph));
  MUST(cuCtxDestroy(scene.second));
  std::printf("PASSED\n");
  return 0;
}
