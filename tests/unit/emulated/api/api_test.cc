// Emulated driver API below its exported names: order of streams, exact memory bounds, and wrong
// calls that return a code. A mistake here breaks every program on the device.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "emulated/jit/compiler.h"
#include "emulated/objects/execution.h"

namespace gpurun::emulated::api {
CUresult cuInit(unsigned int);
CUresult cuDeviceGetCount(int*);
CUresult cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize(void);
CUresult cuMemAlloc_v2(CUdeviceptr*, size_t);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemGetInfo_v2(size_t*, size_t*);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, size_t);
CUresult cuMemcpyDtoH_v2(void*, CUdeviceptr, size_t);
CUresult cuMemcpy(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D*);
CUresult cuMemcpyPeer(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t);
CUresult cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream);
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER*);
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER*, CUstream);
CUresult cuCtxCreate_v2(CUcontext*, unsigned int, CUdevice);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuGraphCreate(CUgraph*, unsigned int);
CUresult cuGraphAddMemcpyNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                              const CUDA_MEMCPY3D*, CUcontext);
CUresult cuGraphInstantiateWithFlags(CUgraphExec*, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuMemsetD32Async(CUdeviceptr, unsigned int, size_t, CUstream);
CUresult cuStreamCreate(CUstream*, unsigned int);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamQuery(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned int);
CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr, cuuint32_t, unsigned int);
CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, cuuint32_t, unsigned int);
CUresult cuEventCreate(CUevent*, unsigned int);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventQuery(CUevent);
CUresult cuLaunchHostFunc(CUstream, CUhostFn, void*);
CUresult cuLaunchKernel(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                        unsigned int, unsigned int, unsigned int, CUstream, void**, void**);
CUresult cuModuleLoadData(CUmodule*, const void*);
CUresult cuModuleGetFunction(CUfunction*, CUmodule, const char*);
CUresult cuModuleUnload(CUmodule);
CUresult cuMemAddressReserve(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemCreate(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                     unsigned long long);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
CUresult cuMemUnmap(CUdeviceptr, size_t);
CUresult cuMemRelease(CUmemGenericAllocationHandle);
CUresult cuMemAddressFree(CUdeviceptr, size_t);

namespace {

class EmulatedApi : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(api::cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(api::cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(api::cuCtxSetCurrent(context_), CUDA_SUCCESS);
  }
  CUcontext context_ = nullptr;
};

// The test opens the gate to let a stream go on.
void wait_for_gate(void* gate) { static_cast<std::atomic<bool>*>(gate)->wait(false); }
void open(std::atomic<bool>& gate) {
  gate = true;
  gate.notify_all();
}

TEST_F(EmulatedApi, RefusesCopyBeyondAllocation) {
  CUdeviceptr memory = 0;
  ASSERT_EQ(api::cuMemAlloc_v2(&memory, 1000), CUDA_SUCCESS);
  std::vector<char> host(2000, 7);
  EXPECT_EQ(api::cuMemcpyHtoD_v2(memory, host.data(), 1000), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpyHtoD_v2(memory, host.data(), 1001), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemcpyHtoD_v2(memory + 1, host.data(), 1000), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemFree_v2(memory + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
}

// Freed device addresses stay with the device. They are never treated as host memory.
TEST_F(EmulatedApi, RefusesFreedMemoryAsSourceOrDestination) {
  CUdeviceptr gone = 0, live = 0;
  ASSERT_EQ(api::cuMemAlloc_v2(&gone, 1 << 20), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemAlloc_v2(&live, 1 << 20), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemFree_v2(gone), CUDA_SUCCESS);
  char host[64] = {};
  const auto host_address = reinterpret_cast<CUdeviceptr>(&host);
  void* const gone_pointer = reinterpret_cast<void*>(gone);
  EXPECT_EQ(api::cuMemcpy(live, gone, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemcpy(gone, live, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemcpy(gone, host_address, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemcpyAsync(host_address, gone, 4, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemcpyHtoD_v2(live, gone_pointer, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemcpyDtoH_v2(gone_pointer, live, 4), CUDA_ERROR_INVALID_VALUE);
  CUDA_MEMCPY2D box{};
  box.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  box.srcDevice = gone;
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = host;
  box.srcPitch = box.dstPitch = box.WidthInBytes = box.Height = 4;
  EXPECT_EQ(api::cuMemcpy2D_v2(&box), CUDA_ERROR_INVALID_VALUE);
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = gone_pointer;
  EXPECT_EQ(api::cuMemcpy2D_v2(&box), CUDA_ERROR_INVALID_VALUE);
  // Allocated memory may stand for host memory (unified addressing), to its last byte.
  void* const live_end = reinterpret_cast<void*>(live + (1 << 20) - 4);
  EXPECT_EQ(api::cuMemcpyDtoH_v2(live_end, live, 4), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpyDtoH_v2(live_end, live, 5), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr reserved = 0;
  ASSERT_EQ(api::cuMemAddressReserve(&reserved, 2 << 20, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpy(host_address, reserved, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemAddressFree(reserved, 2 << 20), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemFree_v2(live), CUDA_SUCCESS);
}

// A node is checked when it is created. Its memory may be gone when it runs.
TEST_F(EmulatedApi, GraphCopyOfFreedMemoryFailsContext) {
  CUcontext own = nullptr;
  ASSERT_EQ(api::cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
  CUdeviceptr gone = 0;
  ASSERT_EQ(api::cuMemAlloc_v2(&gone, 4096), CUDA_SUCCESS);
  char host[64] = {};
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = gone;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host;
  copy.WidthInBytes = sizeof host;
  copy.Height = copy.Depth = 1;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec graph_exec = nullptr;
  ASSERT_EQ(api::cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(api::cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, own), CUDA_SUCCESS);
  ASSERT_EQ(api::cuGraphInstantiateWithFlags(&graph_exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(api::cuGraphLaunch(graph_exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api::cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemFree_v2(gone), CUDA_SUCCESS);
  EXPECT_EQ(api::cuGraphLaunch(graph_exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api::cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(api::cuCtxDestroy_v2(own), CUDA_SUCCESS);
}

TEST_F(EmulatedApi, AllocatesExactlyReportedFreeMemory) {
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(api::cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
  CUdeviceptr all = 0, more = 0;
  EXPECT_EQ(api::cuMemAlloc_v2(&all, free_bytes + 1), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(api::cuMemAlloc_v2(&all, free_bytes), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemAlloc_v2(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(api::cuMemFree_v2(all), CUDA_SUCCESS);
}

TEST_F(EmulatedApi, StreamsRunAsynchronouslyAndWaitForEvents) {
  CUstream first, second;
  CUevent event;
  ASSERT_EQ(api::cuStreamCreate(&first, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(api::cuStreamCreate(&second, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(api::cuEventCreate(&event, 0), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  ASSERT_EQ(api::cuMemAlloc_v2(&memory, 4096), CUDA_SUCCESS);
  std::atomic<bool> gate{false};
  ASSERT_EQ(api::cuLaunchHostFunc(first, wait_for_gate, &gate), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemsetD32Async(memory, 1, 1024, first), CUDA_SUCCESS);
  ASSERT_EQ(api::cuEventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(api::cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemsetD32Async(memory, 2, 1024, second), CUDA_SUCCESS);
  // Independent streams are created and destroyed meanwhile, which gives the other streams time to
  // overtake if they could.
  for (int i = 0; i < 100; ++i) {
    CUstream free_stream;
    ASSERT_EQ(api::cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    std::atomic<bool> open_gate{true};
    ASSERT_EQ(api::cuLaunchHostFunc(free_stream, wait_for_gate, &open_gate), CUDA_SUCCESS);
    ASSERT_EQ(api::cuStreamSynchronize(free_stream), CUDA_SUCCESS);
    ASSERT_EQ(api::cuStreamDestroy_v2(free_stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(api::cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(api::cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  open(gate);
  EXPECT_EQ(api::cuStreamSynchronize(second), CUDA_SUCCESS);
  std::vector<unsigned> host(1024);
  ASSERT_EQ(api::cuMemcpyDtoH_v2(host.data(), memory, 4096), CUDA_SUCCESS);
  EXPECT_EQ(host, std::vector<unsigned>(1024, 2));
  EXPECT_EQ(api::cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamDestroy_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamDestroy_v2(first), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(api::cuStreamDestroy_v2(second), CUDA_SUCCESS);
}

TEST_F(EmulatedApi, LegacyStreamWaitsOnlyForBlockingStreams) {
  CUstream blocking, other;
  ASSERT_EQ(api::cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(api::cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  std::atomic<bool> gate{false};
  ASSERT_EQ(api::cuLaunchHostFunc(other, wait_for_gate, &gate), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  ASSERT_EQ(api::cuLaunchHostFunc(blocking, wait_for_gate, &gate), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  open(gate);
  EXPECT_EQ(api::cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamQuery(nullptr), CUDA_SUCCESS);
}

// Two contexts with memory each. A fill of the first one's memory waits for a gate.
class PeerCopies : public EmulatedApi {
 protected:
  static constexpr size_t kBytes = 4096;

  void SetUp() override {
    EmulatedApi::SetUp();
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(api::cuCtxCreate_v2(&contexts_[i], 0, 0), CUDA_SUCCESS);
      ASSERT_EQ(api::cuMemAlloc_v2(&memory_[i], kBytes), CUDA_SUCCESS);
      ASSERT_EQ(api::cuMemsetD32Async(memory_[i], 0, kBytes / 4, nullptr), CUDA_SUCCESS);
      ASSERT_EQ(api::cuCtxSynchronize(), CUDA_SUCCESS);
    }
    ASSERT_EQ(api::cuCtxSetCurrent(contexts_[0]), CUDA_SUCCESS);
    ASSERT_EQ(api::cuStreamCreate(&pending_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(api::cuLaunchHostFunc(pending_, wait_for_gate, &gate_), CUDA_SUCCESS);
    ASSERT_EQ(api::cuMemsetD32Async(memory_[0], 8, kBytes / 4, pending_), CUDA_SUCCESS);
    ASSERT_EQ(api::cuCtxSetCurrent(contexts_[1]), CUDA_SUCCESS);
  }
  void TearDown() override {
    open(gate_);
    for (const CUcontext context : contexts_) {
      EXPECT_EQ(api::cuCtxDestroy_v2(context), CUDA_SUCCESS);
    }
  }
  CUDA_MEMCPY3D_PEER box() const {
    CUDA_MEMCPY3D_PEER box{};
    box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcDevice = memory_[0];
    box.srcContext = contexts_[0];
    box.dstDevice = memory_[1];
    box.dstContext = contexts_[1];
    box.WidthInBytes = kBytes;
    box.Height = box.Depth = 1;
    return box;
  }
  // Waits for all work, and expects this result of the copy.
  void expect_copied(unsigned wanted) {
    ASSERT_EQ(api::cuCtxSynchronize(), CUDA_SUCCESS);
    std::vector<unsigned> host(kBytes / 4);
    ASSERT_EQ(api::cuMemcpyDtoH_v2(host.data(), memory_[1], kBytes), CUDA_SUCCESS);
    EXPECT_EQ(host, std::vector<unsigned>(kBytes / 4, wanted));
  }
  // Expects that the copy is issued and not done, and that the next work of the source's context
  // waits for it.
  void expect_in_turn() {
    EXPECT_EQ(api::cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    ASSERT_EQ(api::cuCtxSetCurrent(contexts_[0]), CUDA_SUCCESS);
    CUstream later = nullptr;
    ASSERT_EQ(api::cuStreamCreate(&later, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(api::cuMemsetD32Async(memory_[0], 9, kBytes / 4, later), CUDA_SUCCESS);
    EXPECT_EQ(api::cuStreamQuery(later), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(api::cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    open(gate_);
    ASSERT_EQ(api::cuStreamSynchronize(later), CUDA_SUCCESS);
    ASSERT_EQ(api::cuCtxSetCurrent(contexts_[1]), CUDA_SUCCESS);
    expect_copied(8);
  }

  CUcontext contexts_[2] = {};
  CUdeviceptr memory_[2] = {};
  CUstream pending_ = nullptr;
  std::atomic<bool> gate_{false};
};

TEST_F(PeerCopies, CopyIsOrderedWithAllWorkOfBothContexts) {
  ASSERT_EQ(api::cuMemcpyPeer(memory_[1], contexts_[1], memory_[0], contexts_[0], kBytes),
            CUDA_SUCCESS);
  expect_in_turn();
}

TEST_F(PeerCopies, BoxCopyIsOrderedWithAllWorkOfBothContexts) {
  const CUDA_MEMCPY3D_PEER copy = box();
  ASSERT_EQ(api::cuMemcpy3DPeer(&copy), CUDA_SUCCESS);
  expect_in_turn();
}

TEST_F(PeerCopies, AsynchronousCopyIsOrderedOnlyByItsStream) {
  CUstream own = nullptr;
  ASSERT_EQ(api::cuStreamCreate(&own, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemsetD32Async(memory_[1], 7, kBytes / 4, own), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemcpyPeerAsync(memory_[1], contexts_[1], memory_[0], contexts_[0], kBytes, own),
            CUDA_SUCCESS);
  ASSERT_EQ(api::cuStreamSynchronize(own), CUDA_SUCCESS);
  expect_copied(0);
  const CUDA_MEMCPY3D_PEER copy = box();
  ASSERT_EQ(api::cuMemsetD32Async(memory_[1], 7, kBytes / 4, own), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemcpy3DPeerAsync(&copy, own), CUDA_SUCCESS);
  ASSERT_EQ(api::cuStreamSynchronize(own), CUDA_SUCCESS);
  expect_copied(0);
}

TEST_F(EmulatedApi, WrittenValueReleasesWaitingStream) {
  CUstream first, second;
  ASSERT_EQ(api::cuStreamCreate(&first, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(api::cuStreamCreate(&second, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUdeviceptr flag = 0;
  ASSERT_EQ(api::cuMemAlloc_v2(&flag, 4), CUDA_SUCCESS);
  ASSERT_EQ(api::cuStreamWaitValue32_v2(first, flag, 5, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamQuery(first), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(api::cuStreamWriteValue32_v2(second, flag, 5, 0), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamSynchronize(first), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemFree_v2(flag), CUDA_SUCCESS);
}

TEST_F(EmulatedApi, MappedMemoryHonoursAddressHintAndAccess) {
  constexpr size_t kBytes = size_t{2} << 20;
  CUdeviceptr probe = 0, address = 0;
  ASSERT_EQ(api::cuMemAddressReserve(&probe, kBytes, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemAddressFree(probe, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemAddressReserve(&address, kBytes, 0, probe, 0), CUDA_SUCCESS);
  EXPECT_EQ(address, probe);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle allocation = 0;
  EXPECT_EQ(api::cuMemCreate(&allocation, kBytes + 1, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(api::cuMemCreate(&allocation, kBytes, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemMap(address, kBytes, 0, allocation, 0), CUDA_SUCCESS);
  int value = 42, back = 0;
  EXPECT_EQ(api::cuMemcpyHtoD_v2(address, &value, 4), CUDA_ERROR_INVALID_VALUE);
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ASSERT_EQ(api::cuMemSetAccess(address, kBytes, &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpyHtoD_v2(address, &value, 4), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpyDtoH_v2(&back, address, 4), CUDA_SUCCESS);
  EXPECT_EQ(back, 42);
  EXPECT_EQ(api::cuMemAddressFree(address, kBytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemUnmap(address, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemRelease(allocation), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemRelease(allocation), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::cuMemAddressFree(address, kBytes), CUDA_SUCCESS);
}

// The first launches of a kernel do not wait for LLVM's optimisation, unless they have much to do.
TEST_F(EmulatedApi, OnlyLaunchOfManyThreadsWaitsForGoodCode) {
  // No earlier run has left this kernel in the cache of compiled kernels.
  const auto number = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string text =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n"
      ".reg .b64 %rd<2>; mov.u64 %rd0, " +
      std::to_string(number) + "; add.u64 %rd1, %rd0, %rd0; ret; }\n";
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  ASSERT_EQ(api::cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS);
  ASSERT_EQ(api::cuModuleGetFunction(&kernel, module, "k"), CUDA_SUCCESS);
  const auto launch = [&](unsigned blocks) {
    ASSERT_EQ(api::cuLaunchKernel(kernel, blocks, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr),
              CUDA_SUCCESS);
  };
  const CompilerCounters before = compiler()->counters();
  launch(1);
  const CompilerCounters first = compiler()->counters();
  EXPECT_EQ(first.kernels, before.kernels + 1);
  EXPECT_EQ(first.quick_kernels, before.quick_kernels + 1);
  launch(1000);
  EXPECT_EQ(compiler()->counters().replacements, first.replacements + 1);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(api::cuModuleUnload(module), CUDA_SUCCESS);
}

TEST_F(EmulatedApi, RefusesThreadWithoutContextAndForgedHandles) {
  CUdeviceptr memory = 0;
  CUresult result = CUDA_SUCCESS;
  std::thread([&] { result = api::cuMemAlloc_v2(&memory, 4); }).join();
  EXPECT_EQ(result, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(api::cuStreamQuery(reinterpret_cast<CUstream>(0x1234)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(api::cuEventQuery(reinterpret_cast<CUevent>(context_)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(api::cuCtxSetCurrent(reinterpret_cast<CUcontext>(8)), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace gpurun::emulated::api
