// Driver API: exec changes. The kernels of an executable graph get new parameters between its
// launches, as XLA does at each step. Each launch has the last ones, and no change waits for work
// of streams. A change that the driver refuses is refused at its call, whatever came before.
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "driver_test.h"

namespace {

constexpr unsigned kCount = 64;
constexpr unsigned kSteps = 50;

void expect(CUresult result, CUresult wanted, const char* what) {
  const char* name = "unknown";
  (void)cuGetErrorName(result, &name);
  std::printf("%s: %s\n", what, name);
  if (result != wanted) cuda_check::fail(__FILE__, __LINE__, what, name);
}

void expect(unsigned seen, unsigned wanted, const char* what) {
  if (seen == wanted) return;
  std::printf("%s: %u in place of %u\n", what, seen, wanted);
  cuda_check::fail(__FILE__, __LINE__, what, "wrong value");
}

// The kernel `fill` with its arguments, which a node copies.
struct Fill {
  CUdeviceptr to;
  unsigned count = kCount, value;
  void* arguments[3] = {&to, &count, &value};
  CUDA_KERNEL_NODE_PARAMS parameters = {};

  Fill(CUfunction function, CUdeviceptr where, unsigned what) : to(where), value(what) {
    parameters.func = function;
    parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = kCount;
    parameters.blockDimY = parameters.blockDimZ = 1;
    parameters.kernelParams = arguments;
  }
  Fill(const Fill&) = delete;
};

// A graph with one kernel, which fills `memory`.
struct OneKernel {
  CUgraph graph;
  CUgraphNode node;
  CUgraphExec exec;

  OneKernel(CUfunction function, CUdeviceptr memory) {
    const Fill first(function, memory, 0);
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddKernelNode(&node, graph, nullptr, 0, &first.parameters));
    MUST(cuGraphInstantiate(&exec, graph, 0));
  }
  OneKernel(const OneKernel&) = delete;

  CUresult set(const Fill& fill) const {
    return cuGraphExecKernelNodeSetParams(exec, node, &fill.parameters);
  }
  CUresult set(const Device& device, CUdeviceptr memory, unsigned value) const {
    return set(Fill(device.fill, memory, value));
  }
};

// Every change and launch is made while a host function blocks the stream. A wait of this thread
// for another stream does not wait for them.
void change_behind_function(const Device& device) {
  const CUdeviceptr memory = Device::memory(kCount * 4), seen = Device::memory(kSteps * 4);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUevent event = Device::event();
  const OneKernel one(device.fill, memory);
  MUST(one.set(device, memory, 1));
  MUST(cuGraphLaunch(one.exec, stream));
  Gate gate;
  gate.stand_in(stream);
  for (unsigned i = 0; i < kSteps; ++i) {
    MUST(cuGraphLaunch(one.exec, stream));
    MUST(cuMemcpyDtoDAsync(seen + 4 * i, memory, 4, stream));
    MUST(one.set(device, memory, i + 2));
  }
  device.launch_fill(other, Device::memory(kCount * 4), kCount, 5);
  MUST(cuEventRecord(event, other));
  MUST(cuEventSynchronize(event));
  gate.let_go();
  MUST(cuGraphLaunch(one.exec, stream));
  MUST(cuStreamSynchronize(stream));
  std::vector<unsigned> values(kSteps);
  MUST(cuMemcpyDtoH(values.data(), seen, kSteps * 4));
  for (unsigned i = 0; i < kSteps; ++i) expect(values[i], i + 1, "a launch before a change");
  expect(Device::read(memory), kSteps + 1, "the launch after all changes");
  MUST(cuGraphExecDestroy(one.exec));
  MUST(cuGraphDestroy(one.graph));
  std::printf("changed behind a function: right\n");
}

// The launch that follows a change in another stream has it, too. The executable runs in one stream
// at a time.
void change_between_streams(const Device& device) {
  const CUdeviceptr memory = Device::memory(kCount * 4), seen = Device::memory(8);
  const CUstream streams[] = {Device::stream(CU_STREAM_NON_BLOCKING),
                              Device::stream(CU_STREAM_NON_BLOCKING)};
  const OneKernel one(device.fill, memory);
  MUST(one.set(device, memory, 1));
  MUST(cuGraphLaunch(one.exec, streams[0]));
  Gate gate;
  gate.stand_in(streams[0]);
  MUST(cuGraphLaunch(one.exec, streams[0]));
  MUST(cuMemcpyDtoDAsync(seen, memory, 4, streams[0]));
  MUST(one.set(device, memory, 2));
  const CUevent event = Device::event();
  MUST(cuEventRecord(event, streams[0]));
  MUST(cuStreamWaitEvent(streams[1], event, 0));
  MUST(cuGraphLaunch(one.exec, streams[1]));
  MUST(cuMemcpyDtoDAsync(seen + 4, memory, 4, streams[1]));
  gate.let_go();
  MUST(cuStreamSynchronize(streams[1]));
  expect(Device::read(seen), 1, "the first stream");
  expect(Device::read(seen + 4), 2, "the second stream");
  MUST(cuGraphExecDestroy(one.exec));
  MUST(cuGraphDestroy(one.graph));
  std::printf("changed between streams: right\n");
}

// A change that was made needs its node and graph no more.
void end_graph_behind_change(const Device& device) {
  for (unsigned i = 0; i < 10; ++i) {
    const CUdeviceptr memory = Device::memory(kCount * 4);
    const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
    const OneKernel one(device.fill, memory);
    MUST(one.set(device, memory, 1));
    Gate gate;
    gate.stand_in(stream);
    MUST(cuGraphLaunch(one.exec, stream));
    MUST(one.set(device, memory, 7 + i));
    std::thread opener([&gate] {
      gate.await_begin();
      gate.let_go();
    });
    if (i % 2 == 0) {
      MUST(cuGraphDestroyNode(one.node));
      MUST(cuGraphDestroy(one.graph));
    } else {
      MUST(cuGraphDestroy(one.graph));
    }
    MUST(cuGraphLaunch(one.exec, stream));
    opener.join();
    MUST(cuStreamSynchronize(stream));
    expect(Device::read(memory), 7 + i, "the change before the end of the graph");
    MUST(cuGraphExecDestroy(one.exec));
    MUST(cuCtxSynchronize());
  }
  std::printf("ended behind a change: right\n");
}

// The executable takes other child graphs in turn. It has each as it was at the call.
void change_children(const Device& device) {
  constexpr unsigned kChildren = 3;
  const CUdeviceptr memory = Device::memory(kCount * 4), seen = Device::memory(kSteps * 4);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  CUgraph children[kChildren], graph;
  CUgraphNode kernels[kChildren], node;
  for (unsigned i = 0; i < kChildren; ++i) {
    const Fill fill(device.fill, memory, 100 * i);
    MUST(cuGraphCreate(&children[i], 0));
    MUST(cuGraphAddKernelNode(&kernels[i], children[i], nullptr, 0, &fill.parameters));
  }
  CUgraphExec exec;
  MUST(cuGraphCreate(&graph, 0));
  MUST(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, children[0]));
  MUST(cuGraphInstantiate(&exec, graph, 0));
  const auto set = [&](unsigned child) {
    return cuGraphExecChildGraphNodeSetParams(exec, node, children[child]);
  };
  for (unsigned i = 0; i < kChildren; ++i) MUST(set(i));
  Gate gate;
  gate.stand_in(stream);
  for (unsigned i = 0; i < kSteps; ++i) {
    MUST(set(i % kChildren));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuMemcpyDtoDAsync(seen + 4 * i, memory, 4, stream));
  }
  std::thread opener([&gate] {
    gate.await_begin();
    gate.let_go();
  });
  // The changes before have the child as it was.
  const Fill later(device.fill, memory, 7);
  MUST(cuGraphKernelNodeSetParams(kernels[(kSteps - 1) % kChildren], &later.parameters));
  MUST(cuGraphLaunch(exec, stream));
  opener.join();
  MUST(cuStreamSynchronize(stream));
  std::vector<unsigned> values(kSteps);
  MUST(cuMemcpyDtoH(values.data(), seen, kSteps * 4));
  for (unsigned i = 0; i < kSteps; ++i) expect(values[i], 100 * (i % kChildren), "a child graph");
  expect(Device::read(memory), 100 * ((kSteps - 1) % kChildren), "the last child graph");
  MUST(set((kSteps - 1) % kChildren));
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuStreamSynchronize(stream));
  expect(Device::read(memory), 7, "the changed child graph");

  // With one more node the driver decides anew, here as anywhere.
  CUgraphNode more;
  MUST(cuGraphAddEmptyNode(&more, children[1], nullptr, 0));
  const char* name = "unknown";
  (void)cuGetErrorName(set(1), &name);
  std::printf("a child with one more node: %s\n", name);
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphDestroy(graph));
  for (const CUgraph child : children) MUST(cuGraphDestroy(child));
  MUST(cuCtxSynchronize());
  std::printf("changed child graphs: right\n");
}

CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr to, unsigned value) {
  CUDA_MEMSET_NODE_PARAMS fill = {};
  fill.dst = to;
  fill.value = value;
  fill.elementSize = 4;
  fill.width = kCount;
  fill.height = 1;
  return fill;
}

CUDA_MEMCPY3D copy_within(CUdeviceptr to, CUdeviceptr from) {
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstDevice = to;
  copy.WidthInBytes = 4;
  copy.Height = copy.Depth = 1;
  return copy;
}
CUDA_MEMCPY3D copy_out(unsigned* to, CUdeviceptr from) {
  CUDA_MEMCPY3D copy = copy_within(0, from);
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
  return copy;
}

void CUDA_CB add_up(void* user) { ++*static_cast<unsigned*>(user); }

// A fill and a copy on the device. If `seen` is not null, also a copy to host memory and a host
// function, in a line.
struct FourNodes {
  CUgraph graph;
  CUgraphNode fill, within, out = nullptr, host = nullptr;
  CUgraphExec exec;

  FourNodes(const Device& device, CUdeviceptr memory, unsigned* seen) {
    const CUDA_MEMSET_NODE_PARAMS first = fill_of(memory, 0);
    const CUDA_MEMCPY3D copy = copy_within(memory + 4 * kCount, memory);
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &first, device.context));
    MUST(cuGraphAddMemcpyNode(&within, graph, &fill, 1, &copy, device.context));
    if (seen != nullptr) {
      const CUDA_MEMCPY3D last = copy_out(seen, memory + 4 * kCount);
      const CUDA_HOST_NODE_PARAMS calls = {&add_up, seen};
      MUST(cuGraphAddMemcpyNode(&out, graph, &within, 1, &last, device.context));
      MUST(cuGraphAddHostNode(&host, graph, &out, 1, &calls));
    }
    MUST(cuGraphInstantiate(&exec, graph, 0));
  }
  FourNodes(const FourNodes&) = delete;
};

// Each launch has the memory, the value and the function of the last change before it.
void change_other_nodes(const Device& device) {
  const CUdeviceptr memory = Device::memory(1 << 16);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  std::vector<unsigned> seen(kSteps + 1), calls(kSteps + 1);
  const FourNodes four(device, memory, &seen[kSteps]);
  const auto set = [&](unsigned i) {
    const CUdeviceptr at = memory + 512 * i;
    const CUDA_MEMSET_NODE_PARAMS fill = fill_of(at, 100 + i);
    const CUDA_MEMCPY3D within = copy_within(at + 4 * kCount, at);
    const CUDA_MEMCPY3D out = copy_out(&seen[i], at + 4 * kCount);
    const CUDA_HOST_NODE_PARAMS host = {&add_up, &calls[i]};
    MUST(cuGraphExecMemsetNodeSetParams(four.exec, four.fill, &fill, device.context));
    MUST(cuGraphExecMemcpyNodeSetParams(four.exec, four.within, &within, device.context));
    MUST(cuGraphExecMemcpyNodeSetParams(four.exec, four.out, &out, device.context));
    MUST(cuGraphExecHostNodeSetParams(four.exec, four.host, &host));
  };
  set(kSteps);
  for (unsigned i = 0; i < kSteps; ++i) {
    set(i);
    MUST(cuGraphLaunch(four.exec, stream));
  }
  MUST(cuStreamSynchronize(stream));
  for (unsigned i = 0; i < kSteps; ++i) {
    expect(seen[i], 100 + i, "a copy out");
    expect(calls[i], 1, "a host function");
  }
  expect(calls[kSteps], 0, "the function before the last change");
  MUST(cuGraphExecDestroy(four.exec));
  MUST(cuGraphDestroy(four.graph));
  MUST(cuMemFree(memory));
  std::printf("changed other nodes: right\n");
}

// The changes and launches are made while a host function blocks the stream.
void change_fills_behind_function(const Device& device) {
  const CUdeviceptr memory = Device::memory(1 << 16);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const FourNodes two(device, memory, nullptr);
  const auto set = [&](unsigned i) {
    const CUDA_MEMSET_NODE_PARAMS fill = fill_of(memory + 512 * i, 200 + i);
    const CUDA_MEMCPY3D copy = copy_within(memory + 512 * i + 4 * kCount, memory + 512 * i);
    MUST(cuGraphExecMemsetNodeSetParams(two.exec, two.fill, &fill, device.context));
    MUST(cuGraphExecMemcpyNodeSetParams(two.exec, two.within, &copy, device.context));
  };
  set(kSteps);
  Gate gate;
  gate.stand_in(stream);
  for (unsigned i = 0; i < kSteps; ++i) {
    set(i);
    MUST(cuGraphLaunch(two.exec, stream));
  }
  gate.let_go();
  MUST(cuStreamSynchronize(stream));
  for (unsigned i = 0; i < kSteps; ++i) {
    expect(Device::read(memory + 512 * i + 4 * kCount), 200 + i, "a fill and a copy of it");
  }
  MUST(cuGraphExecDestroy(two.exec));
  MUST(cuGraphDestroy(two.graph));
  MUST(cuMemFree(memory));
  std::printf("changed fills behind a function: right\n");
}

// A change that was accepted uses memory that the program then frees, behind a launch that waits.
void free_behind_change(const Device& device) {
  const CUdeviceptr memory = Device::memory(1 << 12);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  // Its free is ordered by this stream alone.
  const CUstream owner = Device::stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr other = 0;
  MUST(cuMemAllocAsync(&other, 1 << 12, owner));
  MUST(cuStreamSynchronize(owner));
  const FourNodes four(device, memory, nullptr);
  const auto fill = [&](CUdeviceptr at, unsigned value) {
    const CUDA_MEMSET_NODE_PARAMS wanted = fill_of(at, value);
    return cuGraphExecMemsetNodeSetParams(four.exec, four.fill, &wanted, device.context);
  };
  for (unsigned i = 0; i < 2; ++i) MUST(fill(other, i));
  MUST(fill(memory, 5));
  Gate gate;
  gate.stand_in(stream);
  MUST(cuGraphLaunch(four.exec, stream));
  MUST(fill(other, 6));
  std::thread opener([&gate] {
    gate.await_begin();
    gate.let_go();
  });
  MUST(cuMemFreeAsync(other, owner));
  MUST(cuStreamSynchronize(owner));
  opener.join();
  MUST(cuStreamSynchronize(stream));  // The change has not failed.
  // The driver decides anew about memory that has ended, and about what replaces it.
  expect(fill(other, 7), CUDA_ERROR_INVALID_VALUE, "memory that has ended");
  MUST(fill(memory, 8));
  MUST(cuGraphLaunch(four.exec, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuCtxSynchronize());
  expect(Device::read(memory), 8, "the fill of other memory");
  MUST(cuGraphExecDestroy(four.exec));
  MUST(cuGraphDestroy(four.graph));
  MUST(cuMemFree(memory));
}

// Each call may change which devices reach the memory, so the driver decides anew about the change
// behind it (tests/system/promises/exec_changes_test.py counts).
void change_access_of_pool(const Device& device) {
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  CUmemoryPool pool;
  MUST(cuDeviceGetDefaultMemPool(&pool, device.device));
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device.device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr memory = 0;
  MUST(cuMemAllocFromPoolAsync(&memory, 8 * kCount, pool, stream));
  MUST(cuStreamSynchronize(stream));
  const FourNodes two(device, memory, nullptr);
  for (unsigned i = 0; i < kSteps; ++i) {
    const CUDA_MEMSET_NODE_PARAMS fill = fill_of(memory, 300 + i);
    MUST(cuGraphExecMemsetNodeSetParams(two.exec, two.fill, &fill, device.context));
    MUST(cuGraphLaunch(two.exec, stream));
    MUST(cuMemPoolSetAccess(pool, &access, 1));
  }
  MUST(cuStreamSynchronize(stream));
  expect(Device::read(memory), 300 + kSteps - 1, "the last fill of the pool's memory");
  MUST(cuGraphExecDestroy(two.exec));
  MUST(cuGraphDestroy(two.graph));
  MUST(cuMemFreeAsync(memory, stream));
  MUST(cuStreamSynchronize(stream));
}

// Each is refused at its call, after the driver has accepted changes of the node.
void refuse_other_nodes(const Device& device) {
  const CUdeviceptr memory = Device::memory(1 << 12);
  const FourNodes four(device, memory, nullptr);
  CUDA_MEMSET_NODE_PARAMS fill = fill_of(memory, 1);
  CUDA_MEMCPY3D copy = copy_within(memory + 8, memory);
  for (unsigned i = 0; i < 3; ++i) {
    MUST(cuGraphExecMemsetNodeSetParams(four.exec, four.fill, &fill, device.context));
    MUST(cuGraphExecMemcpyNodeSetParams(four.exec, four.within, &copy, device.context));
  }
  fill.dst = memory + (1 << 12) - 8;
  expect(cuGraphExecMemsetNodeSetParams(four.exec, four.fill, &fill, device.context),
         CUDA_ERROR_INVALID_VALUE, "a fill beyond its memory");
  fill = fill_of(memory, 1);
  expect(cuGraphExecMemsetNodeSetParams(four.exec, four.within, &fill, device.context),
         CUDA_ERROR_INVALID_VALUE, "a fill for a copy");
  copy.dstDevice = memory + (1 << 12) - 2;
  expect(cuGraphExecMemcpyNodeSetParams(four.exec, four.within, &copy, device.context),
         CUDA_ERROR_INVALID_VALUE, "a copy beyond its memory");
  MUST(cuGraphExecDestroy(four.exec));
  expect(cuGraphExecMemsetNodeSetParams(four.exec, four.fill, &fill, device.context),
         CUDA_ERROR_INVALID_VALUE, "a fill of an executable that has ended");
  MUST(cuGraphDestroy(four.graph));
  MUST(cuMemFree(memory));
}

// Each is refused at its call after the driver has accepted changes of the node.
void refuse_at_the_call(const Device& device, const char* image) {
  const CUdeviceptr memory = Device::memory(kCount * 4);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const OneKernel one(device.fill, memory);
  for (unsigned i = 0; i < 3; ++i) MUST(one.set(device, memory, i));

  Fill wrong(device.fill, memory, 9);
  wrong.parameters.blockDimX = 4096;
  expect(one.set(wrong), CUDA_ERROR_INVALID_VALUE, "too large a block");
  const OneKernel two(device.fill, memory);
  const Fill right(device.fill, memory, 4);
  expect(cuGraphExecKernelNodeSetParams(one.exec, two.node, &right.parameters),
         CUDA_ERROR_INVALID_VALUE, "a node of another graph");
  expect(cuGraphExecKernelNodeSetParams(one.exec, two.node, &right.parameters),
         CUDA_ERROR_INVALID_VALUE, "the same once more");

  // A function that may need more shared memory than its attribute allows.
  MUST(cuFuncSetAttribute(device.fill, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
  Fill shared(device.fill, memory, 5);
  shared.parameters.sharedMemBytes = 60000;
  for (unsigned i = 0; i < 2; ++i) MUST(one.set(shared));
  MUST(cuFuncSetAttribute(device.fill, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
  expect(one.set(shared), CUDA_ERROR_INVALID_VALUE, "more shared memory than allowed");

  // A function of another module, which then ends.
  CUmodule module;
  CUfunction fill;
  MUST(cuModuleLoad(&module, image));
  MUST(cuModuleGetFunction(&fill, module, "fill"));
  for (unsigned i = 0; i < 3; ++i) MUST(one.set(Fill(fill, memory, 20 + i)));
  MUST(cuGraphLaunch(one.exec, stream));
  MUST(cuStreamSynchronize(stream));
  expect(Device::read(memory), 22, "another module's function");
  MUST(one.set(device, memory, 30));
  MUST(cuModuleUnload(module));
  expect(one.set(Fill(fill, memory, 31)), CUDA_ERROR_INVALID_HANDLE, "a function that has ended");

  // After an update from another graph the driver decides anew.
  CUgraphExecUpdateResultInfo info;
  const Fill updated(device.fill, memory, 40);
  MUST(cuGraphKernelNodeSetParams(two.node, &updated.parameters));
  MUST(cuGraphExecUpdate(one.exec, two.graph, &info));
  MUST(cuGraphLaunch(one.exec, stream));
  MUST(cuStreamSynchronize(stream));
  expect(Device::read(memory), 40, "the update");
  for (unsigned i = 0; i < 2; ++i) MUST(one.set(device, memory, 50 + i));
  MUST(cuGraphLaunch(one.exec, stream));
  MUST(cuStreamSynchronize(stream));
  expect(Device::read(memory), 51, "a change after the update");

  MUST(cuGraphExecDestroy(two.exec));
  expect(two.set(device, memory, 61), CUDA_ERROR_INVALID_VALUE, "an executable that has ended");
  MUST(cuCtxSynchronize());
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  end_after(120);
  const Device device(words[1]);
  change_behind_function(device);
  change_between_streams(device);
  end_graph_behind_change(device);
  change_children(device);
  change_other_nodes(device);
  change_fills_behind_function(device);
  free_behind_change(device);
  change_access_of_pool(device);
  refuse_other_nodes(device);
  refuse_at_the_call(device, words[1]);
  MUST(cuCtxSynchronize());
  std::printf("PASSED\n");
  return 0;
}
