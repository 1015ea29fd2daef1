// Driver API: pinned and managed memory, which the device reaches. Kernels use its address as a
// parameter, in a structure and in device memory. Copies, fills and graphs use it, and host and
// device poll it while a kernel runs. What the program sees in it after a wait is what CUDA
// promises, so no wait, free or synchronous copy may return before the work is complete.
//
// usage: device_reach IMAGE [in-turn]
// With in-turn, host and device cannot use managed memory at the same time.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "driver_test.h"

namespace {

constexpr size_t kBytes = 1 << 20;
constexpr unsigned kWords = kBytes / 4;

void expect(unsigned seen, unsigned wanted, const char* what) {
  if (seen == wanted) return;
  std::printf("FAILED: %s: %#x and not %#x\n", what, seen, wanted);
  std::exit(1);
}

CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }
volatile unsigned* seen_by_host(unsigned* memory) { return memory; }

bool in_turn = false;

void attributes(const Device& device) {
  int maps = 0;
  MUST(cuDeviceGetAttribute(&maps, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, device.device));
  expect(maps, 1, "CAN_MAP_HOST_MEMORY");
  for (const unsigned flags :
       {0U, unsigned{CU_MEMHOSTALLOC_DEVICEMAP},
        unsigned{CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED}}) {
    void* memory = nullptr;
    MUST(cuMemHostAlloc(&memory, kBytes, flags));
    CUdeviceptr on_device = 0;
    MUST(cuMemHostGetDevicePointer(&on_device, static_cast<char*>(memory) + 64, 0));
    EXPECT(on_device == address(memory) + 64);
    unsigned given = 0;
    MUST(cuMemHostGetFlags(&given, memory));
    expect(given, flags | CU_MEMHOSTALLOC_DEVICEMAP, "flags");
    CUdeviceptr pointer = 0;
    MUST(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address(memory) + 8));
    EXPECT(pointer == address(memory) + 8);
    unsigned type = 0;
    MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(memory)));
    expect(type, CU_MEMORYTYPE_HOST, "memory type");
    MUST(cuMemFreeHost(memory));
  }
}

void kernels(const Device& device, CUstream stream) {
  unsigned* const words = Device::pinned(kBytes);
  device.launch_fill(stream, address(words), 256, 0x100);
  MUST(cuStreamSynchronize(stream));
  expect(words[255], 0x1ff, "a kernel's store");
  // The kernel reads an address from device memory.
  const CUdeviceptr holder = Device::memory(8);
  const CUdeviceptr target = address(words + 300);
  MUST(cuMemcpyHtoD(holder, &target, 8));
  CUdeviceptr back = 0;
  MUST(cuMemcpyDtoH(&back, holder, 8));
  device.launch_fill(stream, back, 1, 0x77);
  MUST(cuCtxSynchronize());
  expect(words[300], 0x77, "a store through an address in device memory");
  MUST(cuMemFree(holder));
  MUST(cuMemFreeHost(words));
}

// The kernel waits for the program, and then the program for the kernel, without a call.
void polls(const Device& device, CUstream stream) {
  unsigned* const words = Device::pinned(4096);
  words[0] = words[1] = 0;
  device.launch_wait(stream, address(words), address(words + 1));
  EXPECT(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  seen_by_host(words)[0] = 0x55;
  while (seen_by_host(words)[1] == 0) {
  }
  expect(seen_by_host(words)[1], 0x55, "a polled word");
  // An event before what the program has seen is complete.
  const CUevent event = Device::event(CU_EVENT_DISABLE_TIMING);
  for (unsigned round = 1; round <= 1000; ++round) {
    words[1] = 0;
    MUST(cuEventRecord(event, stream));
    device.launch_fill(stream, address(words + 1), 1, round);
    while (seen_by_host(words)[1] == 0) {
    }
    MUST(cuEventQuery(event));
  }
  MUST(cuStreamSynchronize(stream));
  MUST(cuEventDestroy(event));
  MUST(cuMemFreeHost(words));
}

struct Wait {
  const char* name;
  std::function<void()> call;
};

// Each of these calls waits for the kernel before it returns, or for its stream.
void waits(const Device& device, CUstream stream, CUstream legacy) {
  unsigned* const words = Device::pinned(kBytes);
  const CUdeviceptr scratch = Device::memory(kBytes);
  const CUevent event = Device::event();
  const unsigned word = 7;
  std::vector<char> large(kBytes);
  const std::vector<Wait> all = {
      {"cuMemcpyHtoD", [&] { MUST(cuMemcpyHtoD(scratch, &word, 4)); }},
      {"a large cuMemcpyHtoD", [&] { MUST(cuMemcpyHtoD(scratch, large.data(), kBytes)); }},
      {"cuMemcpyHtoD of pinned memory", [&] { MUST(cuMemcpyHtoD(scratch, words + 64, 4)); }},
      {"cuMemcpyDtoH into pinned memory", [&] { MUST(cuMemcpyDtoH(words + 64, scratch, 4)); }},
      {"cuMemFree", [&] { MUST(cuMemFree(Device::memory(64))); }},
      {"cuMemFreeHost", [&] { MUST(cuMemFreeHost(Device::pinned(64))); }},
      {"cuMemsetD32 of pinned memory", [&] { MUST(cuMemsetD32(address(words + 64), 1, 4)); }},
      {"cuMemsetD2D32 of pinned memory",
       [&] { MUST(cuMemsetD2D32(address(words + 64), 64, 1, 4, 2)); }},
      {"cuStreamSynchronize", [&] { MUST(cuStreamSynchronize(legacy)); }},
      {"cuCtxSynchronize", [&] { MUST(cuCtxSynchronize()); }},
  };
  unsigned value = 0x1000;
  for (const Wait& wait : all) {
    words[0] = 0;
    device.launch_linger(legacy, address(words), ++value);
    wait.call();
    expect(seen_by_host(words)[0], value, wait.name);
  }
  // A small upload behind the kernel, with more work behind it.
  for (int round = 0; round < 4; ++round) {
    words[0] = 0;
    device.launch_linger(stream, address(words), ++value);
    MUST(cuMemcpyHtoDAsync(scratch, words + 8, 4, stream));
    MUST(cuEventRecord(event, stream));
    MUST(cuMemcpyHtoDAsync(scratch, words + 8, 4, stream));
    MUST(cuEventSynchronize(event));
    expect(seen_by_host(words)[0], value, "a wait for an upload");
  }
  // Quiet work alone.
  words[0] = 1;
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemsetD32Async(address(words), 2, 4, stream));
  MUST(cuStreamSynchronize(stream));
  expect(words[0], 2, "a wait for a fill");
  MUST(cuEventDestroy(event));
  MUST(cuMemFree(scratch));
  MUST(cuMemFreeHost(words));
}

// A copy reads its source, and writes its destination, when the stream reaches it.
void copies(const Device& device, CUstream stream) {
  unsigned* const words = Device::pinned(kBytes);
  const CUdeviceptr memory = Device::memory(kBytes);
  for (const unsigned bytes : {4U, 4096U, unsigned{kBytes}}) {
    std::memset(words, 0, kBytes);
    device.launch_fill(stream, address(words), 256, 0x2000);
    MUST(cuMemcpyHtoDAsync(memory, words, bytes, stream));
    MUST(cuMemsetD32Async(address(words), 9, kWords, stream));
    MUST(cuMemcpyDtoHAsync(words, memory, bytes, stream));
    MUST(cuStreamSynchronize(stream));
    expect(words[0], 0x2000, "the first word of a copy");
    const unsigned last = bytes / 4 - 1;
    expect(words[last], last < 256 ? 0x2000 + last : 0, "the last word of a copy");
    if (bytes < kBytes) expect(words[bytes / 4], 9, "the word behind a copy");
  }
  // Between pinned memory, and from and to pageable memory.
  unsigned* const others = Device::pinned(kBytes);
  MUST(cuMemcpyAsync(address(others), address(words), kBytes, stream));
  MUST(cuStreamSynchronize(stream));
  expect(others[1], 0x2001, "a copy between pinned memory");
  unsigned plain[4] = {1, 2, 3, 4};
  MUST(cuMemcpyAsync(address(others), address(plain), sizeof plain, stream));
  MUST(cuStreamSynchronize(stream));
  expect(others[3], 4, "a copy from pageable memory");
  MUST(cuMemcpy(address(plain), address(words), sizeof plain));
  expect(plain[3], 0x2003, "a copy into pageable memory");
  MUST(cuMemcpyDtoD(memory + 64, address(words), 64));
  expect(Device::read(memory + 64), 0x2000, "a copy from an address of the device");
  // Boxes with gaps on the host's side.
  CUDA_MEMCPY2D box = {};
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = words;
  box.srcPitch = 64;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = memory;
  box.dstPitch = 16;
  box.WidthInBytes = 16;
  box.Height = 3;
  MUST(cuMemcpy2D(&box));
  expect(Device::read(memory + 32), words[32], "a box to the device");
  box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = memory;
  box.srcPitch = 16;
  box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  box.dstDevice = address(others);
  box.dstPitch = 128;
  MUST(cuMemcpy2DAsync(&box, stream));
  MUST(cuStreamSynchronize(stream));
  expect(others[64], words[32], "a box from the device");
  MUST(cuMemFreeHost(others));
  MUST(cuMemFree(memory));
  MUST(cuMemFreeHost(words));
}

CUdeviceptr register_words(unsigned* words, size_t bytes) {
  MUST(cuMemHostRegister(words, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr there = 0;
  MUST(cuMemHostGetDevicePointer(&there, words, 0));
  return there;
}

// Memory of the program's own, which the device reaches at an address that may be another one. The
// program goes on to write to its neighbours in the same lines and pages.
void registered(const Device& device, CUstream stream) {
  std::vector<unsigned> all(6 * kWords, 1);
  unsigned* const first = all.data() + 3;
  unsigned* const second = first + 100;  // In the same page.
  unsigned* const large = second + 1001;
  const CUdeviceptr at_first = register_words(first, 400);
  const CUdeviceptr at_second = register_words(second, 4000);
  const CUdeviceptr at_large = register_words(large, 4 * kBytes);
  for (unsigned round = 1; round <= 20; ++round) {
    first[0] = second[0] = large[0] = round;
    all[2] = all[1] = round;  // Beside the memory.
    MUST(cuMemcpyDtoDAsync(at_second + 4, at_first, 4, stream));
    MUST(cuMemcpyDtoDAsync(at_large + 3 * kBytes, at_second, 4, stream));
    device.launch_fill(stream, at_first + 4, 99, round * 0x100);
    device.launch_fill(stream, at_large + 4, 1000, round * 0x1000);
    all[0] = round;
    MUST(cuStreamSynchronize(stream));
    expect(second[1], round, "a copy to registered memory");
    expect(large[3 * kWords], round, "a copy between registered memory");
    expect(first[99], round * 0x100 + 98, "a store to registered memory");
    expect(large[1000], round * 0x1000 + 999, "a store to much registered memory");
    expect(first[0] + second[0] + large[0], 3 * round, "words of the program");
    expect(all[0] + all[1] + all[2], 3 * round, "words beside registered memory");
    expect(second[1000], 1, "the word behind registered memory");
  }
  // The program's own address, behind a kernel of the same stream.
  const CUdeviceptr memory = Device::memory(4096);
  device.launch_fill(stream, at_first, 100, 0x50);
  MUST(cuMemcpyHtoDAsync(memory, first, 400, stream));
  device.launch_fill(stream, at_first, 100, 0);
  MUST(cuMemcpyDtoHAsync(second, memory, 400, stream));
  device.launch_fill(stream, at_second, 1, 0x60);
  MUST(cuMemcpyDtoHAsync(large, memory, 400, stream));
  MUST(cuStreamSynchronize(stream));
  expect(first[5], 5, "a store behind a copy");
  expect(second[0], 0x60, "a store to a copy's destination");
  expect(second[5], 0x55, "a copy of registered memory");
  expect(large[99], 0x50 + 99, "a copy into registered memory");
  unsigned plain = 0;
  MUST(cuMemcpyDtoH(&plain, at_first + 4, 4));
  expect(plain, 1, "a copy from the device's address");
  plain = 77;
  MUST(cuMemcpyHtoD(at_first + 4, &plain, 4));
  expect(first[1], 77, "a copy to the device's address");
  MUST(cuMemsetD32(at_first, 5, 100));
  expect(first[99], 5, "a fill of registered memory");
  // What it is.
  CUdeviceptr pointer = 0;
  MUST(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address(first + 1)));
  EXPECT(pointer == at_first + 4);
  void* host = nullptr;
  MUST(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at_first + 4));
  EXPECT(host == first + 1);
  unsigned type = 0;
  MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at_first));
  expect(type, CU_MEMORYTYPE_HOST, "the memory type of registered memory");
  // Its end waits for the kernel.
  device.launch_linger(stream, at_second, 0x99);
  MUST(cuMemHostUnregister(second));
  expect(second[0], 0x99, "cuMemHostUnregister");
  EXPECT(cuMemHostGetDevicePointer(&pointer, second, 0) == CUDA_ERROR_INVALID_VALUE);
  second[0] = 1;
  const CUdeviceptr again = register_words(second, 4000);
  device.launch_fill(stream, again + 8, 1, 3);
  MUST(cuStreamSynchronize(stream));
  expect(second[0] + second[2], 4, "memory that is registered again");
  MUST(cuMemHostUnregister(second));
  MUST(cuMemHostUnregister(first));
  MUST(cuMemHostUnregister(large));
  MUST(cuMemFree(memory));
}

// Copies of a graph use the memory at each launch.
void graphs(const Device& device, CUstream stream) {
  unsigned* const words = Device::pinned(kBytes);
  const CUdeviceptr memory = Device::memory(kBytes);
  CUgraph captured = nullptr, built = nullptr;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  MUST(cuMemcpyHtoDAsync(memory, words, 64, stream));
  void* arguments[2];
  CUdeviceptr values = memory;
  unsigned count = 16;
  arguments[0] = &values;
  arguments[1] = &count;
  MUST(cuLaunchKernel(device.pass_on, 1, 1, 1, 16, 1, 1, 0, stream, arguments, nullptr));
  MUST(cuMemcpyDtoHAsync(words + 16, memory, 64, stream));
  MUST(cuStreamEndCapture(stream, &captured));
  MUST(cuGraphCreate(&built, 0));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = words;
  copy.srcPitch = 64;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = words + 32;
  copy.dstPitch = 64;
  copy.WidthInBytes = 64;
  copy.Height = copy.Depth = 1;
  CUgraphNode node = nullptr;
  MUST(cuGraphAddMemcpyNode(&node, built, nullptr, 0, &copy, device.context));
  CUgraphExec run_captured = nullptr, run_built = nullptr;
  MUST(cuGraphInstantiate(&run_captured, captured, 0));
  MUST(cuGraphInstantiate(&run_built, built, 0));
  for (unsigned round = 1; round <= 3; ++round) {
    words[5] = 100 * round;
    MUST(cuGraphLaunch(run_captured, stream));
    MUST(cuGraphLaunch(run_built, stream));
    MUST(cuStreamSynchronize(stream));
    expect(words[16 + 5], 100 * round + 1, "a captured copy");
    expect(words[32 + 5], 100 * round, "a copy node");
  }
  MUST(cuGraphExecDestroy(run_captured));
  MUST(cuGraphExecDestroy(run_built));
  MUST(cuGraphDestroy(captured));
  MUST(cuGraphDestroy(built));
  MUST(cuMemFree(memory));
  MUST(cuMemFreeHost(words));
}

int range_attribute(CUmem_range_attribute which, CUdeviceptr at, size_t bytes) {
  int value = -7;
  MUST(cuMemRangeGetAttribute(&value, sizeof value, which, at, bytes));
  return value;
}

// Managed memory is used by host and device without a copy. Advice on it is kept by pages.
void advice(CUstream stream, CUdeviceptr at) {
  const CUdeviceptr second = at + 4096;
  MUST(cuMemAdvise(second, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, CUmemLocation{}));
  expect(range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, second, 4096), 1, "READ_MOSTLY");
  expect(range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, kBytes), 0, "READ_MOSTLY of all");
  CUmemLocation here{};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  here.id = 0;
  MUST(cuMemAdvise(at, kBytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
  expect(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, at, kBytes), 0, "preferred");
  MUST(cuMemAdvise(at, kBytes, CU_MEM_ADVISE_SET_ACCESSED_BY, here));
  int devices[2] = {};
  MUST(cuMemRangeGetAttribute(devices, sizeof devices, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, at, 64));
  EXPECT(devices[0] == 0 && devices[1] == CU_DEVICE_INVALID);
  expect(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at, 64),
         static_cast<unsigned>(CU_DEVICE_INVALID), "before a prefetch");
  MUST(cuMemPrefetchAsync(at, kBytes, here, 0, stream));
  here.type = CU_MEM_LOCATION_TYPE_HOST;
  MUST(cuMemPrefetchAsync(at, 64, here, 0, stream));
  expect(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at, 4096),
         static_cast<unsigned>(CU_DEVICE_CPU), "a prefetch to the host");
  expect(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, second, 64), 0,
         "a prefetch to the device");
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  here.id = 99;
  EXPECT(cuMemPrefetchAsync(at, 64, here, 0, stream) == CUDA_ERROR_INVALID_DEVICE);
  here.id = 0;
  EXPECT(cuMemPrefetchAsync(at + 64, kBytes, here, 0, stream) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMemAdvise(at, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, here) == CUDA_ERROR_INVALID_VALUE);
  CUmemLocation places[] = {here, {}};
  places[1].type = CU_MEM_LOCATION_TYPE_HOST;
  CUdeviceptr starts[] = {at, second, second + 4096};
  size_t sizes[] = {4096, 4096, 4096}, firsts[] = {0, 2};
  MUST(cuMemPrefetchBatchAsync(starts, sizes, 3, places, firsts, 2, 0, stream));
  expect(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at, 8192), 0,
         "the first location of a batch");
  expect(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, second + 4096, 64),
         static_cast<unsigned>(CU_DEVICE_CPU), "the second location of a batch");
  MUST(cuMemDiscardBatchAsync(starts, sizes, 3, 0, stream));
  MUST(cuMemDiscardAndPrefetchBatchAsync(starts, sizes, 3, places, firsts, 1, 0, stream));
  EXPECT(cuMemPrefetchBatchAsync(starts, sizes, 3, places, firsts, 2, 0, nullptr) ==
         CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMemPrefetchBatchAsync(starts, sizes, 2, places, firsts, 2, 0, stream) ==
         CUDA_ERROR_INVALID_VALUE);
  starts[2] = at + kBytes;
  EXPECT(cuMemDiscardBatchAsync(starts, sizes, 3, 0, stream) == CUDA_ERROR_INVALID_VALUE);
}

// A device without concurrent access has no part of managed memory for itself.
void advice_in_turn(CUstream stream, CUdeviceptr at) {
  CUmemLocation place{};
  MUST(cuMemAdvise(at, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, place));
  expect(range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, 4096), 1, "READ_MOSTLY");
  place.type = CU_MEM_LOCATION_TYPE_HOST;
  MUST(cuMemAdvise(at, kBytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, place));
  EXPECT(cuMemPrefetchAsync(at, 64, place, 0, stream) == CUDA_ERROR_INVALID_DEVICE);
  place.type = CU_MEM_LOCATION_TYPE_DEVICE;
  EXPECT(cuMemPrefetchAsync(at, 64, place, 0, stream) == CUDA_ERROR_INVALID_DEVICE);
  size_t bytes = 64, first = 0;
  EXPECT(cuMemPrefetchBatchAsync(&at, &bytes, 1, &place, &first, 1, 0, stream) ==
         CUDA_ERROR_INVALID_DEVICE);
  EXPECT(cuMemDiscardBatchAsync(&at, &bytes, 1, 0, stream) == CUDA_ERROR_INVALID_DEVICE);
  for (const CUmem_advise each :
       {CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_SET_ACCESSED_BY}) {
    EXPECT(cuMemAdvise(at, kBytes, each, place) == CUDA_ERROR_INVALID_DEVICE);
  }
}

void managed(const Device& device, CUstream stream) {
  int has = 0;
  MUST(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device.device));
  expect(has, 1, "MANAGED_MEMORY");
  MUST(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device.device));
  expect(has, in_turn ? 0 : 1, "CONCURRENT_MANAGED_ACCESS");
  CUdeviceptr at = 0;
  MUST(cuMemAllocManaged(&at, kBytes, CU_MEM_ATTACH_GLOBAL));
  auto* const words = reinterpret_cast<unsigned*>(at);
  unsigned fact = 0;
  MUST(cuPointerGetAttribute(&fact, CU_POINTER_ATTRIBUTE_IS_MANAGED, at + 8));
  expect(fact, 1, "IS_MANAGED");
  MUST(cuPointerGetAttribute(&fact, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
  expect(fact, CU_MEMORYTYPE_DEVICE, "memory type");
  void* host = nullptr;
  MUST(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at + 16));
  EXPECT(address(host) == at + 16);
  for (unsigned i = 0; i < 16; ++i) words[i] = i;
  unsigned count = 16;
  void* arguments[] = {&at, &count};
  for (unsigned round = 1; round <= 3; ++round) {
    MUST(cuLaunchKernel(device.pass_on, 1, 1, 1, 16, 1, 1, 0, stream, arguments, nullptr));
    MUST(cuStreamSynchronize(stream));
    expect(words[15], 15 + 2 * round - 1, "a kernel's store to managed memory");
    words[15] += 1;
  }
  if (!in_turn) {
    words[100] = words[101] = 0;
    device.launch_wait(stream, at + 400, at + 404);
    seen_by_host(words)[100] = 9;
    while (seen_by_host(words)[101] == 0) {
    }
    MUST(cuStreamSynchronize(stream));
  }
  // Copies.
  unsigned plain[4] = {1, 2, 3, 4};
  MUST(cuMemcpyHtoD(at + 4096, plain, sizeof plain));
  expect(words[1027], 4, "a copy to managed memory");
  words[1027] = 44;
  MUST(cuMemcpyDtoH(plain, at + 4096, sizeof plain));
  expect(plain[3], 44, "a copy from managed memory");
  const CUdeviceptr memory = Device::memory(kBytes);
  MUST(cuMemcpy(memory, at, kBytes));
  expect(Device::read(memory + 4096 + 12), 44, "a copy to the device");
  MUST(cuMemcpyAsync(at + 8192, memory + 4096, 16, stream));
  MUST(cuStreamSynchronize(stream));
  expect(words[2051], 44, "a copy from the device");
  MUST(cuMemFree(memory));
  // Several attributes at once.
  int mostly = 7, preferred = 7;
  void* outputs[] = {&mostly, &preferred};
  size_t sizes[] = {sizeof mostly, sizeof preferred};
  CUmem_range_attribute wanted[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                    CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION};
  MUST(cuMemRangeGetAttributes(outputs, sizes, wanted, 2, at, kBytes));
  EXPECT(mostly == 0 && preferred == CU_DEVICE_INVALID);
  EXPECT(cuMemRangeGetAttributes(outputs, sizes, wanted, 0, at, 64) == CUDA_ERROR_INVALID_VALUE);
  sizes[1] = 1;
  mostly = 7;
  EXPECT(cuMemRangeGetAttributes(outputs, sizes, wanted, 2, at, 64) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(mostly == 0);
  EXPECT(cuMemRangeGetAttributes(outputs, sizes, wanted, 1, at - 64, 64) ==
         CUDA_ERROR_INVALID_VALUE);
  if (in_turn) {
    advice_in_turn(stream, at);
  } else {
    advice(stream, at);
  }
  MUST(cuStreamAttachMemAsync(stream, at, 0, CU_MEM_ATTACH_SINGLE));
  // The free waits for the kernel.
  CUdeviceptr other = 0;
  MUST(cuMemAllocManaged(&other, 9 << 20, CU_MEM_ATTACH_HOST));
  words[0] = 0;
  device.launch_linger(nullptr, at, 0x66);
  MUST(cuMemFree(other));
  expect(words[0], 0x66, "cuMemFree of managed memory");
  MUST(cuMemFree(at));
  EXPECT(cuMemFree(at) == CUDA_ERROR_INVALID_VALUE);
}

// Allocations of many sizes, in two contexts. No two share memory.
void many(const Device& device) {
  CUcontext second = nullptr;
  MUST(cuCtxCreate(&second, nullptr, 0, device.device));
  struct Piece {
    unsigned* words;
    size_t bytes;
    CUcontext context;
  };
  std::vector<Piece> pieces;
  unsigned random = 1;
  for (unsigned i = 0; i < 300; ++i) {
    random = random * 1664525u + 1013904223u;
    if (i % 3 == 2) {
      const size_t which = random % pieces.size();
      MUST(cuCtxSetCurrent(pieces[which].context));
      expect(pieces[which].words[0], pieces[which].words[pieces[which].bytes / 4 - 1], "a piece");
      MUST(cuMemFreeHost(pieces[which].words));
      pieces.erase(pieces.begin() + static_cast<long>(which));
      continue;
    }
    const size_t bytes = i % 20 == 0 ? 9 << 20 : 4 + random % 100'000 / 4 * 4;
    const CUcontext context = i % 2 == 0 ? device.context : second;
    MUST(cuCtxSetCurrent(context));
    pieces.push_back({Device::pinned(bytes), bytes, context});
    MUST(cuMemsetD32(address(pieces.back().words), i + 1, bytes / 4));
    MUST(cuCtxSynchronize());
  }
  for (const Piece& piece : pieces) {
    expect(piece.words[0], piece.words[piece.bytes / 4 - 1], "a kept piece");
  }
  // The memory ends with its context.
  MUST(cuCtxDestroy(second));
  MUST(cuCtxSetCurrent(device.context));
  for (const Piece& piece : pieces) {
    if (piece.context == second) {
      EXPECT(cuMemFreeHost(piece.words) == CUDA_ERROR_INVALID_VALUE);
    } else {
      MUST(cuMemFreeHost(piece.words));
    }
  }
  unsigned* const again = Device::pinned(kBytes);
  MUST(cuMemsetD32(address(again), 3, kWords));
  MUST(cuCtxSynchronize());
  expect(again[kWords - 1], 3, "memory after the end of a context");
  MUST(cuMemFreeHost(again));
}

}  // namespace

int main(int count, char** arguments) {
  end_after(200);
  in_turn = count > 2;
  const Device device(arguments[1]);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  attributes(device);
  kernels(device, stream);
  polls(device, stream);
  waits(device, stream, nullptr);
  copies(device, stream);
  registered(device, stream);
  graphs(device, stream);
  managed(device, stream);
  many(device);
  std::printf("PASSED\n");
  return 0;
}
