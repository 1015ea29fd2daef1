// Driver API: repeatable queries. `queries IMAGE` shows each answer, also after it changes: by a
// setter, another thread's setter, another context, the context's next life, its loss. `queries
// count ROUNDS` makes each query ROUNDS times. For each function it prints how many of its queries
// are different ones, or came after a change.
#define CUDA_ENABLE_DEPRECATED  // For cuCtxGetSharedMemConfig.
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "driver_test.h"

namespace {

using cuda_check::name_of;

// Prints the query, its object and its result.
template <typename T>
void show(const char* what, int number, CUresult result, T value) {
  std::printf("%s %d: %s %lld\n", what, number, name_of(result), static_cast<long long>(value));
}

CUmemAllocationProp memory_of(int device) {
  CUmemAllocationProp of{};
  of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  of.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  return of;
}

CUmemoryPool new_pool(int device) {
  CUmemPoolProps of{};
  of.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  of.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  CUmemoryPool pool;
  MUST(cuMemPoolCreate(&pool, &of));
  return pool;
}

CUmemoryPool current_pool(int device) {
  CUmemoryPool pool;
  MUST(cuDeviceGetMemPool(&pool, device));
  return pool;
}

std::size_t limit_of(CUlimit limit) {
  std::size_t value = 0;
  MUST(cuCtxGetLimit(&value, limit));
  return value;
}

CUfunc_cache cache_config() {
  CUfunc_cache config;
  MUST(cuCtxGetCacheConfig(&config));
  return config;
}

void show_context() {
  for (const int limit : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 99, -1}) {
    std::size_t value = 7;
    const CUresult result = cuCtxGetLimit(&value, static_cast<CUlimit>(limit));
    show("limit", limit, result, value);
  }
  show("limit into nothing", 0, cuCtxGetLimit(nullptr, CU_LIMIT_PRINTF_FIFO_SIZE), 0);
  CUfunc_cache cache{};
  CUsharedconfig shared{};
  CUresult result = cuCtxGetCacheConfig(&cache);
  show("cache config", 0, result, cache);
  show("cache config into nothing", 0, cuCtxGetCacheConfig(nullptr), 0);
  result = cuCtxGetSharedMemConfig(&shared);
  show("shared memory config", 0, result, shared);
  show("shared memory config into nothing", 0, cuCtxGetSharedMemConfig(nullptr), 0);
}

void show_devices() {
  for (const int id : {0, 1, 2, 3, 4, 5, 99}) {
    for (const auto& [from, to] : {std::pair{0, 1}, {1, 0}, {0, 0}, {0, 2}, {-1, 1}}) {
      int value = 7;
      const CUresult result =
          cuDeviceGetP2PAttribute(&value, static_cast<CUdevice_P2PAttribute>(id), from, to);
      show("attribute of a pair", id * 100 + from * 10 + to, result, value);
    }
  }
  const auto access = CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
  show("attribute into nothing", 0, cuDeviceGetP2PAttribute(nullptr, access, 0, 1), 0);
  for (const int device : {0, 1, 2, -1}) {
    for (const int option : {0, 1, 2}) {
      if (option == 2 && device != 0) continue;  // Only one error in each call.
      std::size_t value = 7;
      const CUmemAllocationProp of = memory_of(device);
      const CUresult result = cuMemGetAllocationGranularity(
          &value, &of, static_cast<CUmemAllocationGranularity_flags>(option));
      show("granularity", device * 10 + option, result, value);
    }
    CUmemoryPool pools[2] = {};
    const CUresult result = cuDeviceGetDefaultMemPool(&pools[0], device);
    show("default pool", device, result, pools[0] != nullptr);
    show("pool", device, cuDeviceGetMemPool(&pools[1], device), pools[1] == pools[0]);
  }
  CUmemAllocationProp of = memory_of(0);
  const auto least = CU_MEM_ALLOC_GRANULARITY_MINIMUM;
  std::size_t value = 7;
  show("granularity of nothing", 0, cuMemGetAllocationGranularity(&value, nullptr, least), value);
  show("granularity into nothing", 0, cuMemGetAllocationGranularity(nullptr, &of, least), 0);
  of.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  show("granularity of no type", 0, cuMemGetAllocationGranularity(&value, &of, least), value);
}

void show_stream(CUstream stream) {
  for (const int id : {0, 1, 2, 3, 4, 8, 9, 10, 99}) {
    CUstreamAttrValue value;
    std::memset(&value, 0, sizeof value);
    const CUresult result = cuStreamGetAttribute(stream, static_cast<CUstreamAttrID>(id), &value);
    int first = 0;
    std::memcpy(&first, &value, sizeof first);
    show("attribute of a stream", id, result, first);
  }
  const auto policy = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
  show("attribute into nothing", 0, cuStreamGetAttribute(stream, policy, nullptr), 0);
}

// Every thread of that context reads the set value, and no other context does.
void setters(CUcontext one, CUcontext other) {
  const CUlimit fifo = CU_LIMIT_PRINTF_FIFO_SIZE;
  MUST(cuCtxSetCurrent(other));
  const std::size_t before = limit_of(fifo);
  MUST(cuCtxSetCurrent(one));
  MUST(cuCtxSetLimit(fifo, 3 << 20));
  const std::size_t set = limit_of(fifo);
  MUST(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
  const CUfunc_cache configured = cache_config();
  show("set", 0, cuCtxSetCacheConfig(static_cast<CUfunc_cache>(77)), cache_config());
  MUST(cuCtxSetCurrent(other));
  EXPECT(limit_of(fifo) == before);
  show("of the other one", 0, CUDA_SUCCESS, cache_config());
  std::size_t seen = 0;
  std::thread([&] {
    MUST(cuCtxSetCurrent(one));
    EXPECT(limit_of(fifo) == set && cache_config() == configured);
    MUST(cuCtxSetLimit(fifo, 5 << 20));
    MUST(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_EQUAL));
    seen = limit_of(fifo);
  }).join();
  MUST(cuCtxSetCurrent(one));
  EXPECT(limit_of(fifo) == seen);
  show("set", 1, CUDA_SUCCESS, set);
  show("set by another thread", 1, CUDA_SUCCESS, seen);
  show("set by another thread", 2, CUDA_SUCCESS, cache_config());
  show("refused", 0, cuCtxSetLimit(static_cast<CUlimit>(99), 1), 0);
  show_context();
}

// A thread that queries without pause never gets an older value than the last one that it was told.
void setters_in_turn(CUcontext context) {
  constexpr std::size_t kFirst = 1 << 20, kRounds = 1000;
  std::atomic<std::size_t> told{kFirst};
  std::atomic<bool> over{false};
  MUST(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, kFirst));
  const auto ask = [&] {
    MUST(cuCtxSetCurrent(context));
    while (!over) {
      const std::size_t least = told;
      EXPECT(limit_of(CU_LIMIT_PRINTF_FIFO_SIZE) >= least);
    }
  };
  std::thread one(ask), two(ask);
  for (std::size_t i = 1; i <= kRounds; ++i) {
    MUST(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, kFirst + i * 4096));
    told = kFirst + i * 4096;
    // No reply reports this one.
    const auto config = static_cast<CUfunc_cache>(i % 4);
    MUST(cuCtxSetCacheConfig(config));
    EXPECT(cache_config() == config);
  }
  over = true;
  one.join();
  two.join();
}

// CUDA 13 names a place in place of a device. Both ways lead to the same pools. A pool of host or
// managed memory is refused, because its addresses would mean nothing to the host here.
void pools_by_place(CUmemoryPool ordinary, CUmemoryPool other) {
  CUmemLocation place{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  CUmemoryPool found = nullptr;
  MUST(cuMemGetDefaultMemPool(&found, &place, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT(found == ordinary);
  MUST(cuMemGetMemPool(&found, &place, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT(found == ordinary);
  MUST(cuMemSetMemPool(&place, CU_MEM_ALLOCATION_TYPE_PINNED, other));
  EXPECT(current_pool(0) == other);
  MUST(cuDeviceSetMemPool(0, ordinary));
  MUST(cuMemGetMemPool(&found, &place, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT(found == ordinary);
  for (const int type : {0, 1, 2, 3, 4, 5, 99}) {
    for (const int kind : {0, 1, 2, 99}) {
      place.type = static_cast<CUmemLocationType>(type);
      place.id = type == CU_MEM_LOCATION_TYPE_DEVICE ? 4711 : 0;
      const auto allocation = static_cast<CUmemAllocationType>(kind);
      show("current pool", type * 100 + kind, cuMemGetMemPool(&found, &place, allocation), 0);
      show("default pool", type * 100 + kind, cuMemGetDefaultMemPool(&found, &place, allocation),
           0);
      const CUresult set = cuMemSetMemPool(&place, allocation, other);
      show("set pool", type * 100 + kind, set, 0);
      CUmemPoolProps of{};
      of.allocType = allocation;
      of.location = place;
      show("new pool", type * 100 + kind, cuMemPoolCreate(&found, &of), 0);
    }
  }
  place = {.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0};
  EXPECT(cuMemGetMemPool(&found, &place, CU_MEM_ALLOCATION_TYPE_PINNED) ==
         CUDA_ERROR_NOT_SUPPORTED);
  EXPECT(cuMemGetMemPool(&found, &place, CU_MEM_ALLOCATION_TYPE_MANAGED) ==
         CUDA_ERROR_NOT_SUPPORTED);
}

void pools() {
  CUmemoryPool ordinary;
  MUST(cuDeviceGetDefaultMemPool(&ordinary, 0));
  EXPECT(current_pool(0) == ordinary);
  const CUmemoryPool pool = new_pool(0), second = new_pool(0);
  MUST(cuDeviceSetMemPool(0, pool));
  EXPECT(current_pool(0) == pool);
  std::thread([&] { MUST(cuDeviceSetMemPool(0, second)); }).join();
  EXPECT(current_pool(0) == second);
  CUmemoryPool still;
  MUST(cuDeviceGetDefaultMemPool(&still, 0));
  EXPECT(still == ordinary);
  MUST(cuDeviceSetMemPool(0, ordinary));
  EXPECT(current_pool(0) == ordinary);
  pools_by_place(ordinary, pool);
  MUST(cuMemPoolDestroy(pool));
  MUST(cuMemPoolDestroy(second));
}

// The same handle. Whether earlier settings remain depends on the driver.
void next_life() {
  CUcontext context, again;
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  const std::size_t before = limit_of(CU_LIMIT_PRINTF_FIFO_SIZE);
  MUST(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 9 << 20));
  EXPECT(limit_of(CU_LIMIT_PRINTF_FIFO_SIZE) != before);
  MUST(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_SHARED));
  EXPECT(cache_config() == CU_FUNC_CACHE_PREFER_SHARED);
  MUST(cuDevicePrimaryCtxReset(0));
  MUST(cuDevicePrimaryCtxRetain(&again, 0));
  EXPECT(again == context);
  show_context();
  MUST(cuDevicePrimaryCtxRelease(0));
  MUST(cuDevicePrimaryCtxRelease(0));
}

// Earlier answers are no longer valid.
void loss(const char* image) {
  const Device device(image);
  (void)limit_of(CU_LIMIT_PRINTF_FIFO_SIZE);
  (void)cache_config();
  device.launch_fill(nullptr, 4096, 1, 1);
  show("a fault", 0, cuCtxSynchronize(), 0);
  std::size_t value = 7;
  show("after the fault", 0, cuCtxGetLimit(&value, CU_LIMIT_PRINTF_FIFO_SIZE), value);
  CUfunc_cache config{};
  show("after the fault", 1, cuCtxGetCacheConfig(&config), config);
  (void)cuCtxDestroy(device.context);
}

void show_everything(const char* image) {
  std::size_t value = 7;
  show("limit without a context", 0, cuCtxGetLimit(&value, CU_LIMIT_PRINTF_FIFO_SIZE), value);
  show_devices();
  CUcontext one, other;
  MUST(cuCtxCreate(&one, nullptr, 0, 0));
  MUST(cuCtxCreate(&other, nullptr, 0, 1));
  for (const CUcontext context : {one, other, one}) {
    MUST(cuCtxSetCurrent(context));
    show_context();
    show_devices();
    show_stream(nullptr);
    show_stream(CU_STREAM_PER_THREAD);
  }
  CUstream stream;
  MUST(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -2));
  show_stream(stream);
  CUstreamAttrValue policy{};
  policy.syncPolicy = CU_SYNC_POLICY_SPIN;
  MUST(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &policy));
  show_stream(stream);
  MUST(cuStreamDestroy(stream));
  show_stream(stream);
  setters(one, other);
  setters_in_turn(one);
  pools();
  MUST(cuCtxDestroy(other));
  MUST(cuCtxDestroy(one));
  next_life();
  loss(image);
}

// Not CU_LIMIT_STACK_SIZE, which launches change.
void ask_all(CUstream stream) {
  for (const CUlimit limit :
       {CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_PERSISTING_L2_CACHE_SIZE}) {
    (void)limit_of(limit);
  }
  (void)cache_config();
  CUsharedconfig shared;
  MUST(cuCtxGetSharedMemConfig(&shared));
  for (const int device : {0, 1}) {
    int can = 0;
    MUST(cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, device,
                                 1 - device));
    CUmemoryPool pool;
    MUST(cuDeviceGetDefaultMemPool(&pool, device));
    MUST(cuDeviceGetMemPool(&pool, device));
    const CUmemAllocationProp of = memory_of(device);
    std::size_t bytes = 0;
    MUST(cuMemGetAllocationGranularity(&bytes, &of, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    MUST(cuMemGetAllocationGranularity(&bytes, &of, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  }
  CUstreamAttrValue value;
  for (const CUstream of : {CUstream{nullptr}, stream}) {
    MUST(cuStreamGetAttribute(of, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    CUgreenCtx green = nullptr;
    MUST(cuStreamGetGreenCtx(of, &green));
    EXPECT(green == nullptr);
  }
}

void count(int rounds) {
  CUcontext context;
  CUstream stream;
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  MUST(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  for (int i = 0; i < rounds; ++i) ask_all(stream);
  // Values that may have changed are queried once more.
  MUST(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 3 << 20));
  MUST(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
  MUST(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE));
  CUstreamAttrValue policy{};
  MUST(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &policy));
  for (int i = 0; i < rounds; ++i) ask_all(stream);
  // The context's next life, under the same handle.
  MUST(cuDevicePrimaryCtxReset(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  for (int i = 0; i < rounds; ++i) ask_all(stream);
  std::printf("cuCtxGetLimit %d\n", 3 * 3);
  std::printf("cuCtxGetCacheConfig %d\n", 3);
  std::printf("cuCtxGetSharedMemConfig %d\n", 3);
  std::printf("cuDeviceGetP2PAttribute %d\n", 0);  // Known before anybody asks.
  std::printf("cuDeviceGetDefaultMemPool %d\n", 2 * 2);
  std::printf("cuDeviceGetMemPool %d\n", 2 * 2);
  std::printf("cuMemGetAllocationGranularity %d\n", 2 * 2 * 2);
  std::printf("cuStreamGetAttribute %d\n", 3 * 2);
  std::printf("cuStreamGetGreenCtx %d\n", 2 * 2);
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2 || argc == 3);
  end_after(100);
  MUST(cuInit(0));
  if (argc == 3) {
    count(std::atoi(argv[2]));
  } else {
    show_everything(argv[1]);
  }
  std::puts("PASSED");
  return 0;
}
