// Driver API: upload waits. A program with two uploads in flight waits for the last but one before
// it fills its buffer again. The wait keeps its promises: the buffer's bytes have been read. The
// upload and all work before it are complete for every later query, launch or destruction. A
// failure of the work before it is returned.
#include <thread>

#include "driver_test.h"

namespace {

constexpr unsigned kShort = 2'000'000, kLong = 50'000'000;  // Turns of a slow kernel.

// Kernels in one stream, uploads in another, and events between them.
class Pipeline {
 public:
  explicit Pipeline(const Device& device, unsigned words = 1)
      : words_(words),
        work(device.stream(CU_STREAM_NON_BLOCKING)),
        copy(device.stream(CU_STREAM_NON_BLOCKING)) {
    for (Slot& slot : slots_) {
      slot.host = device.pinned(words_ * 4);
      slot.data = device.memory(words_ * 4);
      slot.uploaded = device.event();
      slot.used = device.event();
      MUST(cuEventSynchronize(slot.uploaded));  // As programs do, also before its first record.
    }
  }

  // Enqueues the upload of `value` after the slot's last use.
  void upload(unsigned index, unsigned value) {
    const Slot& slot = slots_[index];
    for (unsigned i = 0; i < words_; ++i) slot.host[i] = value;
    MUST(cuStreamWaitEvent(copy, slot.used, 0));
    MUST(cuMemcpyHtoDAsync(slot.data, slot.host, words_ * 4, copy));
    MUST(cuEventRecord(slot.uploaded, copy));
  }
  void await_upload(unsigned index) { MUST(cuEventSynchronize(slots_[index].uploaded)); }
  void use(unsigned index, CUfunction linger, unsigned turns, CUdeviceptr to, unsigned value) {
    MUST(cuStreamWaitEvent(work, slots_[index].uploaded, 0));
    void* arguments[] = {&turns, &to, &value};
    MUST(cuLaunchKernel(linger, 1, 1, 1, 1, 1, 1, 0, work, arguments, nullptr));
    used(index);
  }
  void used(unsigned index) { MUST(cuEventRecord(slots_[index].used, work)); }
  // Waits for an upload that follows the enqueued work of `work`, with another upload behind it.
  void await_behind_work() {
    await_upload(1);  // Its buffer is filled again.
    used(0);
    upload(0, 1);
    upload(1, 2);
    await_upload(0);
  }

  struct Slot {
    unsigned* host;
    CUdeviceptr data;
    CUevent uploaded, used;
  };
  const Slot& slot(unsigned index) const { return slots_[index]; }
  CUdeviceptr last_word(unsigned index) const { return slots_[index].data + (words_ - 1) * 4; }

 private:
  const unsigned words_;
  Slot slots_[2];

 public:
  const CUstream work, copy;
};

// A later launch on a non-blocking stream finds the upload and the results of the kernels before
// it. It does not find the program's writes to the buffer after the wait.
void order(const Device& device, unsigned words) {
  Pipeline pipeline(device, words);
  const CUstream other = device.stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr out[2] = {device.memory(4), device.memory(4)};
  unsigned* const seen = device.pinned(8);
  constexpr unsigned kRounds = 40;
  for (unsigned round = 1; round <= kRounds; ++round) {
    const unsigned slot = round % 2;
    pipeline.await_upload(slot);
    if (round > 4 && round % 8 >= 4) {  // Not in each round: a read ends all work in flight.
      MUST(cuMemcpyDtoHAsync(seen, pipeline.last_word(slot), 4, other));
      MUST(cuMemcpyDtoHAsync(seen + 1, out[slot], 4, other));
      MUST(cuStreamSynchronize(other));
      EXPECT(seen[0] == round - 2);
      EXPECT(seen[1] == round - 4 || seen[1] == round - 2);
    }
    pipeline.upload(slot, round);
    pipeline.use(slot, device.linger, kShort, out[slot], round);
  }
  MUST(cuCtxSynchronize());
  EXPECT(device.read(out[kRounds % 2]) == kRounds);
}

// A query after the wait finds the work before the upload complete, in this thread and in one that
// it has notified.
void questions(const Device& device) {
  Pipeline pipeline(device);
  const CUdeviceptr scratch = device.memory(4);
  const CUevent begin = device.event();
  const auto ask = [&](int question) {
    MUST(cuCtxSetCurrent(device.context));
    float milliseconds = -1;
    switch (question) {
      case 0:
        MUST(cuEventQuery(pipeline.slot(0).used));
        break;
      case 1:
        MUST(cuEventQuery(pipeline.slot(0).uploaded));
        break;
      default:
        MUST(cuEventElapsedTime(&milliseconds, begin, pipeline.slot(0).used));
        EXPECT(milliseconds > 0);
    }
  };
  for (int question = 0; question < 3; ++question) {
    for (const bool elsewhere : {false, true}) {
      MUST(cuEventRecord(begin, pipeline.work));
      device.launch_linger(pipeline.work, scratch, 1);
      pipeline.await_behind_work();
      if (elsewhere) {
        std::thread([&] { ask(question); }).join();
      } else {
        ask(question);
      }
      MUST(cuCtxSynchronize());
    }
  }
}

CUdeviceptr map(CUmemGenericAllocationHandle* memory, size_t* granule, CUdevice device) {
  CUmemAllocationProp of = {};
  of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  of.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  MUST(cuMemGetAllocationGranularity(granule, &of, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr at;
  const CUmemAccessDesc access = {of.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  MUST(cuMemAddressReserve(&at, *granule, 0, 0, 0));
  MUST(cuMemCreate(memory, *granule, &of, 0));
  MUST(cuMemMap(at, *granule, 0, *memory, 0));
  MUST(cuMemSetAccess(at, *granule, &access, 1));
  return at;
}

// Objects that the earlier kernels used may be destroyed right after the wait.
void ends(const Device& device, const char* image) {
  Pipeline pipeline(device);
  const CUdeviceptr scratch = device.memory(4);
  unsigned turns = kLong, value = 1;
  for (int round = 0; round < 3; ++round) {
    CUmodule module;
    CUfunction linger;
    MUST(cuModuleLoad(&module, image));
    MUST(cuModuleGetFunction(&linger, module, "linger"));
    pipeline.use(0, linger, kLong, scratch, 1);
    pipeline.await_behind_work();
    MUST(cuModuleUnload(module));

    CUmemGenericAllocationHandle memory;
    size_t granule = 0;
    CUdeviceptr at = map(&memory, &granule, device.device);
    pipeline.use(0, device.linger, kLong, at, 1);
    pipeline.await_behind_work();
    MUST(cuMemUnmap(at, granule));
    MUST(cuMemRelease(memory));
    MUST(cuMemAddressFree(at, granule));

    CUgraph graph;
    CUgraphExec executable;
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS kernel = {};
    CUdeviceptr to = scratch;
    void* arguments[] = {&turns, &to, &value};
    kernel.func = device.linger;
    kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
    kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
    kernel.kernelParams = arguments;
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddKernelNode(&node, graph, nullptr, 0, &kernel));
    MUST(cuGraphInstantiate(&executable, graph, 0));
    MUST(cuGraphLaunch(executable, pipeline.work));
    pipeline.await_behind_work();
    MUST(cuGraphExecDestroy(executable));
    MUST(cuGraphDestroy(graph));

    CUcontext second;
    MUST(cuCtxCreate(&second, nullptr, 0, device.device));
    const CUdeviceptr theirs = device.memory(4);
    MUST(cuCtxSetCurrent(device.context));
    pipeline.use(0, device.linger, kLong, theirs, 1);
    pipeline.await_behind_work();
    MUST(cuCtxSetCurrent(second));
    MUST(cuMemFree(theirs));
    MUST(cuCtxDestroy(second));
    MUST(cuCtxSetCurrent(device.context));
    MUST(cuCtxSynchronize());
  }
}

// A capture that has begun on the stream since is not affected by the wait.
void captures(const Device& device) {
  Pipeline pipeline(device);
  const CUdeviceptr scratch = device.memory(4);
  device.launch_linger(pipeline.work, scratch, 1);
  pipeline.used(0);
  pipeline.upload(0, 1);
  pipeline.upload(1, 2);
  CUgraph graph;
  CUcontext context;
  MUST(cuStreamGetCtx(pipeline.work, &context));
  MUST(cuStreamBeginCapture(pipeline.work, CU_STREAM_CAPTURE_MODE_RELAXED));
  pipeline.await_upload(0);
  MUST(cuStreamEndCapture(pipeline.work, &graph));
  MUST(cuGraphDestroy(graph));
  MUST(cuCtxSynchronize());
}

// The kernel fails. A program that continues gets the failure from some call, at the latest from a
// read.
void failure(const Device& device) {
  Pipeline pipeline(device);
  CUresult result = CUDA_SUCCESS;
  const auto went = [&result](CUresult of) {
    if (result == CUDA_SUCCESS) result = of;
  };
  device.launch_fill(pipeline.work, 64, 1, 1);  // An address without memory.
  went(cuEventRecord(pipeline.slot(0).used, pipeline.work));
  for (const unsigned index : {0u, 1u}) {
    const Pipeline::Slot& slot = pipeline.slot(index);
    went(cuStreamWaitEvent(pipeline.copy, slot.used, 0));
    went(cuMemcpyHtoDAsync(slot.data, slot.host, 4, pipeline.copy));
    went(cuEventRecord(slot.uploaded, pipeline.copy));
  }
  went(cuEventSynchronize(pipeline.slot(0).uploaded));
  unsigned value = 0;
  went(cuMemcpyDtoH(&value, pipeline.slot(0).data, 4));
  went(cuCtxSynchronize());
  EXPECT(result == CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  end_after(100);
  const Device device(argv[1]);
  for (const unsigned words : {1u, 2u << 10}) order(device, words);
  questions(device);
  ends(device, argv[1]);
  captures(device);
  failure(device);
  std::printf("PASSED\n");
  return 0;
}
