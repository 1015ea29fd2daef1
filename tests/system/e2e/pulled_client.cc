// pulled_client: a CUDA program that copies pinned memory to the device and back, in the ways in
// which such memory is used. It knows nothing of gpurun. usage: pulled_client BYTES [WAY]. Prints
// "right", or the first wrong place. WAY is one of these:
//   pinned   Every copy has pinned memory.
//   results  Copies from the device.
//   boxes    Copies of two dimensions from the device.
//   ended    A context ends while its registered memory is read, and the next one registers more
//            memory at the same address.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "tests/support/cuda.h"

namespace {

struct Ends {
  CUdeviceptr device = 0;
  std::size_t bytes = 0;
  CUstream stream = nullptr;
};

void fill(void* memory, std::size_t bytes, unsigned seed) {
  auto* const to = static_cast<unsigned char*>(memory);
  for (std::size_t i = 0; i < bytes; ++i) {
    to[i] = static_cast<unsigned char>(i * 131 + i / 251 + seed * 7);
  }
}

// What is on the device behind the stream's work.
bool is_there(const Ends& ends, unsigned seed, const char* what) {
  MUST(cuStreamSynchronize(ends.stream));
  std::vector<unsigned char> got(ends.bytes);
  std::vector<unsigned char> wanted(ends.bytes);
  MUST(cuMemcpyDtoH_v2(got.data(), ends.device, ends.bytes));
  fill(wanted.data(), ends.bytes, seed);
  for (std::size_t i = 0; i < ends.bytes; ++i) {
    if (got[i] == wanted[i]) continue;
    std::printf("%s: byte %zu is wrong\n", what, i);
    return false;
  }
  return true;
}

void copy(const Ends& ends, const void* source) {
  MUST(cuMemcpyHtoDAsync_v2(ends.device, source, ends.bytes, ends.stream));
}

bool allocated(const Ends& ends) {
  void* memory = nullptr;
  MUST(cuMemAllocHost_v2(&memory, ends.bytes));
  fill(memory, ends.bytes, 1);
  copy(ends, memory);
  const bool right = is_there(ends, 1, "allocated");
  MUST(cuMemFreeHost(memory));
  return right;
}

// The program may write the source once an event behind the copy is complete.
bool written_behind_event(const Ends& ends) {
  void* memory = nullptr;
  CUevent event = nullptr;
  bool right = true;
  MUST(cuMemAllocHost_v2(&memory, ends.bytes));
  MUST(cuEventCreate(&event, 0));
  for (unsigned round = 0; round < 3 && right; ++round) {
    fill(memory, ends.bytes, round);
    copy(ends, memory);
    MUST(cuEventRecord(event, ends.stream));
    MUST(cuEventSynchronize(event));
    std::memset(memory, 0xee, ends.bytes);
    right = is_there(ends, round, "written behind an event");
  }
  MUST(cuEventDestroy_v2(event));
  MUST(cuMemFreeHost(memory));
  return right;
}

bool freed_at_once(const Ends& ends) {
  void* memory = nullptr;
  MUST(cuMemAllocHost_v2(&memory, ends.bytes));
  fill(memory, ends.bytes, 3);
  copy(ends, memory);
  MUST(cuMemFreeHost(memory));
  return is_there(ends, 3, "freed at once");
}

bool registered(const Ends& ends) {
  std::vector<unsigned char> memory(ends.bytes + 3);
  fill(memory.data() + 3, ends.bytes, 4);
  MUST(cuMemHostRegister_v2(memory.data(), memory.size(), 0));
  copy(ends, memory.data() + 3);
  MUST(cuMemHostUnregister(memory.data()));
  std::memset(memory.data(), 0, memory.size());
  return is_there(ends, 4, "registered");
}

struct Task {
  void* memory;
  std::size_t bytes;
};
void write_memory(void* task) {
  const auto* const given = static_cast<const Task*>(task);
  fill(given->memory, given->bytes, 5);
}

// A host function of the stream writes the source.
bool written_by_function(const Ends& ends) {
  Task task = {nullptr, ends.bytes};
  MUST(cuMemAllocHost_v2(&task.memory, ends.bytes));
  std::memset(task.memory, 0, ends.bytes);
  MUST(cuLaunchHostFunc(ends.stream, &write_memory, &task));
  copy(ends, task.memory);
  const bool right = is_there(ends, 5, "written by a host function");
  MUST(cuMemFreeHost(task.memory));
  return right;
}

// A copy from the device writes the source.
bool written_by_copy(const Ends& ends) {
  void* memory = nullptr;
  CUdeviceptr other = 0;
  MUST(cuMemAllocHost_v2(&memory, ends.bytes));
  MUST(cuMemAlloc_v2(&other, ends.bytes));
  fill(memory, ends.bytes, 6);
  MUST(cuMemcpyHtoD_v2(other, memory, ends.bytes));
  std::memset(memory, 0, ends.bytes);
  MUST(cuMemcpyDtoHAsync_v2(memory, other, ends.bytes, ends.stream));
  copy(ends, memory);
  const bool right = is_there(ends, 6, "written by a copy");
  MUST(cuMemFree_v2(other));
  MUST(cuMemFreeHost(memory));
  return right;
}

bool holds(const void* memory, const Ends& ends, unsigned seed, const char* what) {
  std::vector<unsigned char> wanted(ends.bytes);
  fill(wanted.data(), ends.bytes, seed);
  const auto* const got = static_cast<const unsigned char*>(memory);
  for (std::size_t i = 0; i < ends.bytes; ++i) {
    if (got[i] == wanted[i]) continue;
    std::printf("%s: byte %zu is wrong\n", what, i);
    return false;
  }
  return true;
}

// One asynchronous and one synchronous copy in each direction, and no other copy.
bool pinned_both_ways(const Ends& ends) {
  void* source = nullptr;
  void* result = nullptr;
  MUST(cuMemAllocHost_v2(&source, ends.bytes));
  MUST(cuMemAllocHost_v2(&result, ends.bytes));
  fill(source, ends.bytes, 7);
  copy(ends, source);
  MUST(cuMemcpyDtoHAsync_v2(result, ends.device, ends.bytes, ends.stream));
  MUST(cuStreamSynchronize(ends.stream));
  bool right = holds(result, ends, 7, "asynchronous");
  fill(source, ends.bytes, 8);
  MUST(cuMemcpyHtoD_v2(ends.device, source, ends.bytes));
  std::memset(source, 0, ends.bytes);
  MUST(cuMemcpyDtoH_v2(result, ends.device, ends.bytes));
  right = right && holds(result, ends, 8, "synchronous");
  MUST(cuMemFreeHost(source));
  MUST(cuMemFreeHost(result));
  return right;
}

// The program frees the destination as soon as an event behind the copy is complete.
bool result_freed_behind_event(const Ends& ends) {
  CUevent event = nullptr;
  bool right = true;
  MUST(cuEventCreate(&event, 0));
  for (unsigned round = 0; round < 3 && right; ++round) {
    void* result = nullptr;
    MUST(cuMemAllocHost_v2(&result, ends.bytes));
    MUST(cuMemcpyDtoHAsync_v2(result, ends.device, ends.bytes, ends.stream));
    MUST(cuEventRecord(event, ends.stream));
    MUST(cuEventSynchronize(event));
    right = holds(result, ends, 9, "freed behind an event");
    MUST(cuMemFreeHost(result));
  }
  MUST(cuEventDestroy_v2(event));
  return right;
}

// Into a part of registered memory, by the form of cuMemcpy without directions.
bool result_registered(const Ends& ends) {
  std::vector<unsigned char> memory(ends.bytes + 6, 0xee);
  MUST(cuMemHostRegister_v2(memory.data(), memory.size(), 0));
  MUST(cuMemcpy(reinterpret_cast<CUdeviceptr>(memory.data() + 3), ends.device, ends.bytes));
  MUST(cuMemHostUnregister(memory.data()));
  if (memory[2] != 0xee || memory[ends.bytes + 3] != 0xee) {
    std::puts("registered: bytes beside the result are written");
    return false;
  }
  return holds(memory.data() + 3, ends, 9, "result in registered memory");
}

// The destination is freed while its copy is under way.
bool result_freed_at_once(const Ends& ends) {
  void* result = nullptr;
  MUST(cuMemAllocHost_v2(&result, ends.bytes));
  MUST(cuMemcpyDtoHAsync_v2(result, ends.device, ends.bytes, ends.stream));
  MUST(cuMemFreeHost(result));
  MUST(cuStreamSynchronize(ends.stream));
  return true;
}

bool results(const Ends& ends) {
  void* source = nullptr;
  MUST(cuMemAllocHost_v2(&source, ends.bytes));
  fill(source, ends.bytes, 9);
  MUST(cuMemcpyHtoD_v2(ends.device, source, ends.bytes));
  const bool right = result_freed_behind_event(ends) && result_registered(ends) &&
                     result_freed_at_once(ends) && result_freed_behind_event(ends);
  MUST(cuMemFreeHost(source));
  return right;
}

// Lines of the device that lie apart come to lines of `pitch` bytes in the program's memory.
bool box_comes(const Ends& ends, void* result, std::size_t pitch, unsigned seed, const char* what) {
  constexpr std::size_t kLines = 64;
  const std::size_t width = ends.bytes / kLines / 2;
  CUDA_MEMCPY2D box = {};
  box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = ends.device;
  box.srcPitch = 2 * width;
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = result;
  box.dstPitch = pitch;
  box.WidthInBytes = width;
  box.Height = kLines;
  MUST(cuMemcpy2DAsync_v2(&box, ends.stream));
  MUST(cuStreamSynchronize(ends.stream));
  std::vector<unsigned char> wanted(ends.bytes);
  fill(wanted.data(), ends.bytes, seed);
  const auto* const got = static_cast<const unsigned char*>(result);
  for (std::size_t i = 0; i < kLines * pitch; ++i) {
    const std::size_t line = i / pitch, at = i % pitch;
    const unsigned char is = at < width ? wanted[line * 2 * width + at] : 0xee;
    if (got[i] == is) continue;
    std::printf("%s: byte %zu is wrong\n", what, i);
    return false;
  }
  return true;
}

// One box without gaps in the program's memory, and one with gaps.
bool boxes(const Ends& ends) {
  const std::size_t width = ends.bytes / 128;
  void* memory = nullptr;
  MUST(cuMemAllocHost_v2(&memory, ends.bytes));
  fill(memory, ends.bytes, 10);
  MUST(cuMemcpyHtoD_v2(ends.device, memory, ends.bytes));
  std::memset(memory, 0xee, ends.bytes);
  bool right = box_comes(ends, memory, width, 10, "a box without gaps");
  std::memset(memory, 0xee, ends.bytes);
  right = right && box_comes(ends, memory, width + 512, 10, "a box with gaps");
  MUST(cuMemFreeHost(memory));
  return right;
}

bool ended_context(std::size_t bytes) {
  std::vector<unsigned char> memory(2 * bytes);
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr device = 0;
  MUST(cuCtxCreate_v4(&context, nullptr, 0, 0));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAlloc_v2(&device, bytes));
  MUST(cuMemHostRegister_v2(memory.data(), bytes, 0));
  copy({device, bytes, stream}, memory.data());
  MUST(cuCtxDestroy_v2(context));
  Ends ends = {0, 2 * bytes, nullptr};
  MUST(cuCtxCreate_v4(&context, nullptr, 0, 0));
  MUST(cuStreamCreate(&ends.stream, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAlloc_v2(&ends.device, ends.bytes));
  MUST(cuMemHostRegister_v2(memory.data(), ends.bytes, 0));
  fill(memory.data(), ends.bytes, 8);
  copy(ends, memory.data());
  const bool right = is_there(ends, 8, "registered behind the end of a context");
  MUST(cuMemHostUnregister(memory.data()));
  MUST(cuCtxDestroy_v2(context));
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) return 2;
  const std::string way = argc == 3 ? argv[2] : "";
  if (way == "ended") {
    MUST(cuInit(0));
    const bool right = ended_context(std::strtoul(argv[1], nullptr, 10));
    if (right) std::puts("right");
    return right ? 0 : 1;
  }
  Ends ends;
  ends.bytes = std::strtoul(argv[1], nullptr, 10);
  CUcontext context = nullptr;
  MUST(cuInit(0));
  MUST(cuCtxCreate_v4(&context, nullptr, 0, 0));
  MUST(cuStreamCreate(&ends.stream, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAlloc_v2(&ends.device, ends.bytes));
  const bool right = way == "pinned"    ? pinned_both_ways(ends)
                     : way == "results" ? results(ends)
                     : way == "boxes"   ? boxes(ends)
                                        : allocated(ends) && written_behind_event(ends) &&
                                            freed_at_once(ends) && registered(ends) &&
                                            written_by_function(ends) && written_by_copy(ends);
  MUST(cuMemFree_v2(ends.device));
  MUST(cuCtxDestroy_v2(context));
  if (right) std::puts("right");
  return right ? 0 : 1;
}
