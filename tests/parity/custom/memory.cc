// Device memory, and the attributes of its addresses.
#include "tests/parity/custom/trial_cuda.h"

namespace gpurun::parity {
namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20;

// Frees what a trial has allocated, on both sides.
void free_at_end(Trial& t, const Both<CUdeviceptr>& memory) {
  t.at_end([&t, memory] {
    (void)t.client(FN(cuMemFree_v2), memory.client);
    if (memory.driver != memory.client) (void)t.call_direct(FN(cuMemFree_v2), memory.driver);
  });
}

// The program gets the address that the worker got from the device.
void expect_address(Trial& t, Both<CUdeviceptr> memory, const Seen& by_client,
                    const char* function) {
  free_at_end(t, memory);
  t.bind(memory, by_client, function, "dptr");
  t.expect_equal(memory);
}

Both<CUmemoryPool> new_pool(Trial& t) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  Both<CUmemoryPool> pool;
  t.bind(pool, t.client(FN(cuMemPoolCreate), &pool.client, &properties), "cuMemPoolCreate", "pool");
  t.at_end([&t, pool] { (void)t.client(FN(cuMemPoolDestroy), pool); });
  return pool;
}

void add_allocations(TrialTable& table) {
  table.add("cuMemAlloc_v2", [](Trial& t) {
    Both<CUdeviceptr> memory;
    const Seen seen = t.same(FN(cuMemAlloc_v2), out(memory), t.draw(1, 1 << 20));
    expect_address(t, memory, seen, "cuMemAlloc_v2");
  });
  table.add("cuMemAllocPitch_v2", [](Trial& t) {
    Both<CUdeviceptr> memory;
    Both<std::size_t> pitch;
    const Seen seen = t.same(FN(cuMemAllocPitch_v2), out(memory), out(pitch), t.draw(1, 3000),
                             t.draw(1, 50), t.one_of({4u, 8u, 16u}));
    t.expect_equal(pitch);
    expect_address(t, memory, seen, "cuMemAllocPitch_v2");
  });
  table.add("cuMemAllocAsync", [](Trial& t) {
    Both<CUdeviceptr> memory;
    const Seen seen = t.same(FN(cuMemAllocAsync), out(memory), t.draw(1, 1 << 20), t.stream());
    expect_address(t, memory, seen, "cuMemAllocAsync");
  });
  table.add("cuMemAllocFromPoolAsync", [](Trial& t) {
    const Both<CUmemoryPool> pool = new_pool(t);
    Both<CUdeviceptr> memory;
    const Seen seen =
        t.same(FN(cuMemAllocFromPoolAsync), out(memory), t.draw(1, 1 << 20), pool, t.stream());
    expect_address(t, memory, seen, "cuMemAllocFromPoolAsync");
  });
  table.add("cuMemCreate", [](Trial& t) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    properties.allocFlags.compressionType = static_cast<unsigned char>(t.draw(0, 1));
    properties.allocFlags.usage = static_cast<unsigned short>(t.draw(0, 1));
    Both<CUmemGenericAllocationHandle> memory, directly;
    const std::size_t bytes = t.draw(1, 4) * kGranularity;
    const Seen seen = t.client(FN(cuMemCreate), &memory.client, bytes, &properties, 0ull);
    t.expect_same(seen, t.direct(FN(cuMemCreate), &directly.driver, bytes, &properties, 0ull));
    t.bind(memory, seen, "cuMemCreate", "handle");
    t.expect_same(
        t.client(FN(cuMemRelease), memory),
        Trial::renamed(t.direct(FN(cuMemRelease), directly), directly.driver, memory.driver));
  });
}

// Expects one call of that function, with the same inputs on both sides.
void expect_same_call(Trial& t, const char* function, const Seen& seen, const Seen& direct) {
  EXPECT_EQ(inputs_of_line(line_of(seen, function)), inputs_of_line(line_of(direct, function)));
  t.expect_value(static_cast<std::uint64_t>(seen.result), direct.result);
}

void add_frees(TrialTable& table) {
  // Each side frees its own memory, because nothing can be freed twice.
  table.add("cuMemFree_v2", [](Trial& t) {
    Both<CUdeviceptr> memory;
    EXPECT_EQ(t.call_client(FN(cuMemAlloc_v2), &memory.client, 4096u), CUDA_SUCCESS);
    EXPECT_EQ(t.call_direct(FN(cuMemAlloc_v2), &memory.driver, 4096u), CUDA_SUCCESS);
    t.expect_same(t.client(FN(cuMemFree_v2), memory),
                  Trial::renamed(t.direct(FN(cuMemFree_v2), memory), memory.driver, memory.client));
  });
  table.translated(
      "cuMemFreeAsync", "kept for an allocation, until a call that could show it", [](Trial& t) {
        const Both<CUstream> stream = t.stream();
        Both<CUdeviceptr> memory;
        EXPECT_EQ(t.call_client(FN(cuMemAllocAsync), &memory.client, 4096u, stream), CUDA_SUCCESS);
        EXPECT_EQ(t.call_direct(FN(cuMemAllocAsync), &memory.driver, 4096u, stream), CUDA_SUCCESS);
        const Seen seen = t.client_call([&t, memory, stream] {
          const CUresult result = t.call_client(FN(cuMemFreeAsync), memory, stream);
          return result != CUDA_SUCCESS ? result : t.call_client(FN(cuCtxSynchronize));
        });
        expect_same_call(t, "cuMemFreeAsync", seen,
                         Trial::renamed(t.direct(FN(cuMemFreeAsync), memory, stream), memory.driver,
                                        memory.client));
      });
}

void add_questions(TrialTable& table) {
  table.add("cuMemGetInfo_v2", [](Trial& t) {
    Both<std::size_t> available, total;
    t.same(FN(cuMemGetInfo_v2), out(available), out(total));
    t.expect_equal(available);
    t.expect_equal(total);
  });
  table.translated(
      "cuMemGetAddressRange_v2", "answered in the client for what was allocated there",
      [](Trial& t) {
        const std::size_t bytes = t.draw(2, 10'000);
        const CUdeviceptr memory = t.memory(bytes) + t.draw(0, bytes - 1);
        Both<CUdeviceptr> base;
        Both<std::size_t> size;
        t.expect_local(t.client(FN(cuMemGetAddressRange_v2), out(base), out(size), memory),
                       t.direct(FN(cuMemGetAddressRange_v2), out(base), out(size), memory).result);
        t.expect_equal(base);
        t.expect_equal(size);
        // Only the driver knows memory of others.
        CUdeviceptr other = 0;
        EXPECT_EQ(t.call_direct(FN(cuMemAlloc_v2), &other, bytes), CUDA_SUCCESS);
        t.at_end([&t, other] { (void)t.call_direct(FN(cuMemFree_v2), other); });
        t.same(FN(cuMemGetAddressRange_v2), out(base), out(size), other + 1);
        t.expect_equal(base);
        t.expect_equal(size);
      });
}

CUipcMemHandle any_handle(Trial& t) {
  CUipcMemHandle handle;
  for (char& byte : handle.reserved) byte = static_cast<char>(t.draw(0, 127));
  return handle;
}

// Without a daemon the worker passes the driver's own handles.
void add_shared_memory(TrialTable& table) {
  const char* const settled = "a stream is waited for first: nothing may be on its way to memory";
  table.translated("cuIpcGetMemHandle", settled, [](Trial& t) {
    const CUdeviceptr memory = t.memory(t.draw(2, 10'000));
    Both<CUipcMemHandle> handle;
    const Seen seen = t.client(FN(cuIpcGetMemHandle), out(handle), memory);
    expect_same_call(t, "cuIpcGetMemHandle", seen,
                     t.direct(FN(cuIpcGetMemHandle), out(handle), memory));
    t.expect_equal(handle);
  });
  table.translated("cuIpcOpenMemHandle_v2", settled, [](Trial& t) {
    const CUipcMemHandle handle = any_handle(t);
    const unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    CUdeviceptr opened = 0, directly = 0;
    const Seen seen = t.client(FN(cuIpcOpenMemHandle_v2), &opened, handle, flags);
    expect_same_call(t, "cuIpcOpenMemHandle_v2", seen,
                     t.direct(FN(cuIpcOpenMemHandle_v2), &directly, handle, flags));
    t.expect_value(value_in(line_of(seen, "cuIpcOpenMemHandle_v2"), "pdptr"), opened);
    if (seen.result == CUDA_SUCCESS) (void)t.call_client(FN(cuIpcCloseMemHandle), opened);
  });
  table.translated("cuIpcCloseMemHandle", "its context is waited for first", [](Trial& t) {
    CUdeviceptr opened = 0;
    EXPECT_EQ(t.call_client(FN(cuIpcOpenMemHandle_v2), &opened, any_handle(t),
                            unsigned{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS}),
              CUDA_SUCCESS);
    const Seen seen = t.client(FN(cuIpcCloseMemHandle), opened);
    expect_same_call(t, "cuIpcCloseMemHandle", seen, t.direct(FN(cuIpcCloseMemHandle), opened));
  });
}

// Descriptors go through the daemon, which a worker in this process does not have. So this compares
// what the client refuses by itself. callpath_shareable_handles_test has the worker's part.
void add_shareable_handles(TrialTable& table) {
  table.add("cuMemExportToShareableHandle", [](Trial& t) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemGenericAllocationHandle memory = 0;
    EXPECT_EQ(t.call_client(FN(cuMemCreate), &memory, kGranularity, &properties, 0ull),
              CUDA_SUCCESS);
    int descriptor = -1;
    t.expect_local(t.client(FN(cuMemExportToShareableHandle), &descriptor, memory,
                            CU_MEM_HANDLE_TYPE_FABRIC, 0ull),
                   CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(descriptor, -1);
    EXPECT_EQ(t.call_client(FN(cuMemRelease), memory), CUDA_SUCCESS);
  });
  table.add("cuMemImportFromShareableHandle", [](Trial& t) {
    CUmemGenericAllocationHandle memory = 0;
    t.expect_local(t.client(FN(cuMemImportFromShareableHandle), &memory, reinterpret_cast<void*>(0),
                            CU_MEM_HANDLE_TYPE_FABRIC),
                   CUDA_ERROR_NOT_SUPPORTED);
  });
  table.add("cuMemPoolExportToShareableHandle", [](Trial& t) {
    const Both<CUmemoryPool> pool = new_pool(t);
    int descriptor = -1;
    t.expect_local(t.client(FN(cuMemPoolExportToShareableHandle), &descriptor, pool,
                            CU_MEM_HANDLE_TYPE_FABRIC, 0ull),
                   CUDA_ERROR_NOT_SUPPORTED);
  });
  table.add("cuMemPoolImportFromShareableHandle", [](Trial& t) {
    CUmemoryPool pool = nullptr;
    t.expect_local(t.client(FN(cuMemPoolImportFromShareableHandle), &pool,
                            reinterpret_cast<void*>(0), CU_MEM_HANDLE_TYPE_FABRIC, 0ull),
                   CUDA_ERROR_NOT_SUPPORTED);
  });
}

// Attributes that the device answers as the client does.
constexpr CUpointer_attribute kPointerAttributes[] = {
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE};

void add_pointer_attributes(TrialTable& table) {
  const char* const local = "answered in the client, which knows all memory of its process";
  table.translated("cuPointerGetAttribute", local, [](Trial& t) {
    const std::size_t bytes = t.draw(2, 10'000);
    const CUdeviceptr memory = t.memory(bytes) + t.draw(0, bytes - 1);
    for (const CUpointer_attribute which : kPointerAttributes) {
      Both<std::uint64_t> value;
      const int expected = t.direct(FN(cuPointerGetAttribute), &value.driver, which, memory).result;
      t.expect_local(t.client(FN(cuPointerGetAttribute), &value.client, which, memory), expected);
      t.expect_equal(value);
    }
  });
  table.translated("cuPointerGetAttributes", local, [](Trial& t) {
    const std::size_t bytes = t.draw(2, 10'000);
    const CUdeviceptr memory = t.memory(bytes) + t.draw(0, bytes - 1);
    std::vector<CUpointer_attribute> which(std::begin(kPointerAttributes),
                                           std::end(kPointerAttributes));
    std::vector<Both<std::uint64_t>> values(which.size());
    std::vector<void*> places;
    for (std::size_t i = 0; i < which.size(); ++i) {
      places.push_back(&values[i].client);
      EXPECT_EQ(t.call_direct(FN(cuPointerGetAttribute), &values[i].driver, which[i], memory),
                CUDA_SUCCESS);
    }
    t.expect_local(t.client(FN(cuPointerGetAttributes), static_cast<unsigned>(which.size()),
                            which.data(), places.data(), memory),
                   CUDA_SUCCESS);
    for (const Both<std::uint64_t>& value : values) t.expect_equal(value);
  });
}

// The first four are int, the others cuuint64_t (manual, "CUmemPool_attribute").
std::uint64_t pool_value(Trial& t, CUmemPool_attribute which) {
  if (which < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) return t.draw(0, 1);
  return which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? t.draw(1, std::size_t{1} << 40) : 0;
}

void add_pool_attributes(TrialTable& table) {
  table.add("cuMemPoolSetAttribute", [](Trial& t) {
    const Both<CUmemoryPool> pool = new_pool(t);
    for (const auto which :
         {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
          CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
          CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
          CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, CU_MEMPOOL_ATTR_USED_MEM_HIGH}) {
      std::uint64_t value = pool_value(t, which);
      t.same(FN(cuMemPoolSetAttribute), pool, which, static_cast<void*>(&value));
    }
  });
  table.add("cuMemPoolGetAttribute", [](Trial& t) {
    const Both<CUmemoryPool> pool = new_pool(t);
    std::uint64_t threshold = t.draw(1, std::size_t{1} << 40);
    EXPECT_EQ(t.call_client(FN(cuMemPoolSetAttribute), pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                            static_cast<void*>(&threshold)),
              CUDA_SUCCESS);
    // Completes a posted call, which must not reach the device in the middle of a direct call.
    EXPECT_EQ(t.call_client(FN(cuCtxSynchronize)), CUDA_SUCCESS);
    for (const auto which :
         {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
          CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
          CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
          CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
          CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH}) {
      Both<std::uint64_t> value{~0ull, ~0ull};
      t.expect_same(
          t.client(FN(cuMemPoolGetAttribute), pool, which, static_cast<void*>(&value.client)),
          t.direct(FN(cuMemPoolGetAttribute), pool, which, static_cast<void*>(&value.driver)));
      t.expect_equal(value);
      if (which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) t.expect_value(value.client, threshold);
    }
  });
}

}  // namespace

void add_memory_trials(TrialTable& table) {
  add_allocations(table);
  add_frees(table);
  add_questions(table);
  add_shared_memory(table);
  add_shareable_handles(table);
  add_pointer_attributes(table);
  add_pool_attributes(table);
}

}  // namespace gpurun::parity
