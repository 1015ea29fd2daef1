// Driver API: device memory as a program can observe it: addresses, free bytes, the use of freed
// addresses, and the total. Prints it, so that a run with windows, one without, and one without
// gpurun can be compared.
#include <cuda.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/support/cuda.h"

namespace {

using cuda_check::name_of;

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  MUST(cuMemGetInfo(&free, &total));
  EXPECT(free <= total);
  return free;
}

void print(const char* what, CUresult code) { std::printf("%s: %s\n", what, name_of(code)); }

void many_small() {
  const std::size_t before = free_bytes();
  std::vector<CUdeviceptr> all(100);
  for (CUdeviceptr& each : all) {
    MUST(cuMemAlloc(&each, 4096));
    EXPECT(each % 256 == 0);
  }
  std::printf("100 allocations take %zu bytes\n", before - free_bytes());
  std::vector<CUdeviceptr> sorted = all;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 1; i < sorted.size(); ++i) EXPECT(sorted[i] - sorted[i - 1] >= 4096);
  std::vector<unsigned char> bytes(4096);
  for (std::size_t i = 0; i < all.size(); ++i)
    MUST(cuMemsetD8(all[i], static_cast<unsigned char>(i), 4096));
  for (std::size_t i = 0; i < all.size(); ++i) {
    MUST(cuMemcpyDtoH(bytes.data(), all[i], bytes.size()));
    for (const unsigned char byte : bytes) EXPECT(byte == i);
  }
  for (const CUdeviceptr each : all) MUST(cuMemFree(each));
  std::printf("freed: %ld bytes missing\n", static_cast<long>(before - free_bytes()));
}

// `use_freed`: access freed memory. A free that is answered early races with that.
void facts_of_one(bool use_freed) {
  CUdeviceptr memory = 0, base = 0;
  std::size_t bytes = 0;
  MUST(cuMemAlloc(&memory, 10'000));
  MUST(cuMemGetAddressRange(&base, &bytes, memory + 9'999));
  EXPECT(base == memory && bytes == 10'000);
  print("range beyond", cuMemGetAddressRange(&base, &bytes, memory + 10'000 + 64 * kMiB));
  int ordinal = -1;
  CUcontext owner = nullptr, current = nullptr;
  MUST(cuCtxGetCurrent(&current));
  MUST(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
  MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory + 1));
  EXPECT(ordinal == 0 && owner == current);
  std::vector<unsigned char> host(20'000, 7);
  print("copy beyond", cuMemcpyHtoD(memory, host.data(), 10'001));
  print("fill beyond", cuMemsetD8(memory + 1, 0, 10'000));
  print("free inside", cuMemFree(memory + 512));
  CUmemGenericAllocationHandle handle = 0;
  print("retain", cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(memory)));
  MUST(cuMemFree(memory));
  print("free again", cuMemFree(memory));
  if (use_freed) {
    print("fill freed", cuMemsetD8(memory, 0, 1));
    print("copy to freed", cuMemcpyHtoD(memory, host.data(), 1));
  }
  print("attribute of freed",
        cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
  print("none", cuMemAlloc(&memory, 0));
  print("all there could be", cuMemAlloc(&memory, ~std::size_t{0}));
  std::size_t pitch = 0;
  MUST(cuMemAllocPitch(&memory, &pitch, 1'000, 10, 4));
  std::printf("pitch %zu\n", pitch);
  MUST(cuMemGetAddressRange(&base, &bytes, memory));
  EXPECT(base == memory && bytes == pitch * 10);
  MUST(cuMemFree(memory));
  print("pitch of too much", cuMemAllocPitch(&memory, &pitch, 1'000, ~std::size_t{0} / 8, 4));
}

// Allocates to the last byte, twice. Freed memory is available again, in pieces of any size.
void all_there_is() {
  const std::size_t before = free_bytes();
  for (const std::size_t each : {kMiB, 2 * kMiB, 96 * kMiB, 64 * 1024 + std::size_t{4096}}) {
    std::vector<CUdeviceptr> all;
    CUdeviceptr memory = 0;
    CUresult result;
    while ((result = cuMemAlloc(&memory, each)) == CUDA_SUCCESS) all.push_back(memory);
    std::printf("%zu times %zu bytes, then %s; %d left\n", all.size(), each, name_of(result),
                free_bytes() >= each);
    // A freed piece makes room for exactly one.
    MUST(cuMemFree(all[all.size() / 2]));
    MUST(cuMemAlloc(&all[all.size() / 2], each));
    print("one more", cuMemAlloc(&memory, each));
    for (const CUdeviceptr freed : all) MUST(cuMemFree(freed));
  }
  std::printf("freed: %ld bytes missing\n", static_cast<long>(before - free_bytes()));
}

// The same with the other allocators: as many pieces, the same code, and all of it back.
template <typename Allocate, typename Free>
void all_there_is_of(const char* what, Allocate allocate, Free free_one) {
  const std::size_t before = free_bytes();
  std::vector<std::uint64_t> all;
  std::uint64_t piece = 0;
  CUresult result;
  while ((result = allocate(&piece)) == CUDA_SUCCESS) all.push_back(piece);
  std::printf("%s: %zu pieces, then %s, %zu bytes free\n", what, all.size(), name_of(result),
              free_bytes());
  for (const std::uint64_t each : all) free_one(each);
  MUST(cuCtxSynchronize());
  CUmemoryPool pool = nullptr;
  MUST(cuDeviceGetDefaultMemPool(&pool, 0));
  MUST(cuMemPoolTrimTo(pool, 0));
  std::printf("%s: %ld bytes missing\n", what, static_cast<long>(before - free_bytes()));
}

void all_there_is_otherwise() {
  const auto free_address = [](std::uint64_t address) { MUST(cuMemFree(address)); };
  all_there_is_of(
      "pitch",
      [](std::uint64_t* out) {
        std::size_t pitch = 0;
        CUdeviceptr address = 0;
        const CUresult result = cuMemAllocPitch(&address, &pitch, 1'000, 100'000, 4);
        *out = address;
        return result;
      },
      free_address);
  all_there_is_of(
      "pool",
      [](std::uint64_t* out) {
        CUdeviceptr address = 0;
        const CUresult result = cuMemAllocAsync(&address, 8 * kMiB, nullptr);
        *out = address;
        return result;
      },
      [](std::uint64_t address) { MUST(cuMemFreeAsync(address, nullptr)); });
  all_there_is_of(
      "created",
      [](std::uint64_t* out) {
        CUmemAllocationProp properties = {};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CUmemGenericAllocationHandle handle = 0;
        const CUresult result = cuMemCreate(&handle, 2 * kMiB, &properties, 0);
        *out = handle;
        return result;
      },
      [](std::uint64_t handle) { MUST(cuMemRelease(handle)); });
  all_there_is_of(
      "one of 200 MiB",
      [](std::uint64_t* out) {
        CUdeviceptr address = 0;
        const CUresult result = cuMemAlloc(&address, 200 * kMiB);
        *out = address;
        return result;
      },
      free_address);
}

// Memory of a context ends with it.
void goes_with_its_context() {
  const std::size_t before = free_bytes();
  for (int round = 0; round < 50; ++round) {
    CUcontext own;
    CUdeviceptr memory = 0;
#if CUDA_VERSION >= 13000
    MUST(cuCtxCreate(&own, nullptr, 0, 0));
#else
    MUST(cuCtxCreate(&own, 0, 0));
#endif
    for (int i = 0; i < 20; ++i) {
      MUST(cuMemAlloc(&memory, kMiB));
      MUST(cuMemsetD8Async(memory, 1, kMiB, nullptr));
    }
    MUST(cuCtxDestroy(own));
    if (round == 0) print("free of a lost one", cuMemFree(memory));
  }
  std::printf("50 contexts later: %ld bytes missing\n", static_cast<long>(before - free_bytes()));
}

// Argument "count": N allocations of BYTES, all freed, REPEAT times. For tests that count fences.
int count(int n, std::size_t bytes, int repeat) {
  std::vector<CUdeviceptr> all(static_cast<std::size_t>(n));
  for (; repeat > 0; --repeat) {
    for (CUdeviceptr& each : all) MUST(cuMemAlloc(&each, bytes));
    for (const CUdeviceptr each : all) MUST(cuMemsetD8(each, 1, bytes));
    for (const CUdeviceptr each : all) MUST(cuMemFree(each));
    MUST(cuCtxSynchronize());
  }
  std::printf("PASSED\n");
  return 0;
}

// Argument "pairs": N times an allocation of BYTES and its free, and with WORK a fill in between.
// For tests that count records.
int pairs(int n, std::size_t bytes, bool work) {
  for (; n > 0; --n) {
    CUdeviceptr memory = 0;
    MUST(cuMemAlloc(&memory, bytes));
    if (work) MUST(cuMemsetD8Async(memory, 1, 4096, nullptr));
    MUST(cuMemFree(memory));
  }
  MUST(cuCtxSynchronize());
  std::printf("PASSED\n");
  return 0;
}

// The addresses at which the test driver places reservations (tests/drivers/CMakeLists.txt). Under
// ThreadSanitizer it uses the second one.
constexpr std::uint64_t kElsewhereUsually = std::uint64_t{0x4400} << 32;
constexpr std::uint64_t kElsewhereWatched = std::uint64_t{0x30} << 32;

// Occupies these addresses. Windows then exist only where this process has them free.
void occupy_elsewhere() {
#ifdef GPURUN_TSAN  // ThreadSanitizer ends a program that maps anything at the first address.
  const std::uint64_t places[] = {kElsewhereWatched};
#else
  const std::uint64_t places[] = {kElsewhereUsually, kElsewhereWatched};
#endif
  for (const std::uint64_t place : places) {
    void* const at = reinterpret_cast<void*>(place + 4096);
    void* const got =
        mmap(at, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    // A sanitizer may already use this address.
    EXPECT(got == at || errno == EEXIST || errno == EINVAL);
  }
}
bool allocates_elsewhere() {
  CUdeviceptr memory = 0;
  MUST(cuMemAlloc(&memory, 4096));
  MUST(cuMemFree(memory));
  return memory >> 32 == kElsewhereUsually >> 32 || memory >> 32 == kElsewhereWatched >> 32;
}

}  // namespace

// Argument "capture": a capture begins while a free still waits for the device's work.
int capture() {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  CUdeviceptr filled = 0, freed = 0;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  MUST(cuMemAlloc(&filled, kBytes));
  MUST(cuMemAlloc(&freed, 4096));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 16; ++i) MUST(cuMemsetD8Async(filled, 1, kBytes, stream));
  MUST(cuMemFree(freed));
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(cuStreamEndCapture(stream, &graph));
  return 0;
}

int main(int argc, char** argv) {
  const bool elsewhere = argc == 2 && std::strcmp(argv[1], "elsewhere") == 0;
  const bool occupied = argc == 2 && std::strcmp(argv[1], "occupied") == 0;
  if (occupied) occupy_elsewhere();
  MUST(cuInit(0));
  CUcontext context;
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  if (argc == 2 && std::strcmp(argv[1], "capture") == 0) return capture();
  if (argc == 5 && std::strcmp(argv[1], "count") == 0) {
    return count(std::atoi(argv[2]), std::strtoull(argv[3], nullptr, 10), std::atoi(argv[4]));
  }
  if (argc == 5 && std::strcmp(argv[1], "pairs") == 0) {
    return pairs(std::atoi(argv[2]), std::strtoull(argv[3], nullptr, 10),
                 std::strcmp(argv[4], "work") == 0);
  }
  if (elsewhere || occupied) EXPECT(allocates_elsewhere() == elsewhere);
  many_small();
  facts_of_one(argc == 1 || elsewhere);
  all_there_is();
  all_there_is_otherwise();
  goes_with_its_context();
  std::printf("PASSED\n");
  return 0;
}
