// Pinned memory: it is the client's own, and the worker never sees it.
#include "tests/parity/custom/trial_cuda.h"

namespace gpurun::parity {
namespace {

constexpr char kOurs[] = "the client's own memory, of which the worker never hears";

// Checks that all of it is writable.
void fill(void* memory, std::size_t bytes) {
  ASSERT_NE(memory, nullptr);
  std::memset(memory, 0x5a, bytes);
}

void add_own_memory(TrialTable& table) {
  table.translated("cuMemAllocHost_v2", kOurs, [](Trial& t) {
    const std::size_t bytes = t.draw(1, 20'000);
    void* memory = nullptr;
    t.expect_local(t.client(FN(cuMemAllocHost_v2), &memory, bytes), CUDA_SUCCESS);
    fill(memory, bytes);
    t.expect_local(t.client(FN(cuMemFreeHost), memory), CUDA_SUCCESS);
  });
  table.translated("cuMemHostAlloc", kOurs, [](Trial& t) {
    const std::size_t bytes = t.draw(1, 20'000);
    const auto flags = static_cast<unsigned>(t.draw(0, 7));
    void* memory = nullptr;
    t.expect_local(t.client(FN(cuMemHostAlloc), &memory, bytes, flags), CUDA_SUCCESS);
    fill(memory, bytes);
    unsigned kept = ~0u;
    t.expect_local(t.client(FN(cuMemHostGetFlags), &kept, memory), CUDA_SUCCESS);
    t.expect_value(kept, flags);
    EXPECT_EQ(t.call_client(FN(cuMemFreeHost), memory), CUDA_SUCCESS);
  });
  table.translated("cuMemFreeHost", kOurs, [](Trial& t) {
    void* memory = nullptr;
    void* other = nullptr;
    EXPECT_EQ(t.call_client(FN(cuMemHostAlloc), &memory, 4096u, 0u), CUDA_SUCCESS);
    EXPECT_EQ(t.call_client(FN(cuMemHostAlloc), &other, 4096u, 0u), CUDA_SUCCESS);
    t.expect_local(t.client(FN(cuMemFreeHost), memory), CUDA_SUCCESS);
    fill(other, 4096);
    t.expect_local(t.client(FN(cuMemFreeHost), memory), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(t.call_client(FN(cuMemFreeHost), other), CUDA_SUCCESS);
  });
}

void add_registered_memory(TrialTable& table) {
  table.translated("cuMemHostRegister_v2", kOurs, [](Trial& t) {
    std::vector<unsigned char> memory(t.draw(1, 20'000));
    const auto flags = static_cast<unsigned>(t.draw(0, 3));
    t.expect_local(
        t.client(FN(cuMemHostRegister_v2), static_cast<void*>(memory.data()), memory.size(), flags),
        CUDA_SUCCESS);
    Both<unsigned> type{0, CU_MEMORYTYPE_HOST};
    t.expect_local(
        t.client(FN(cuPointerGetAttribute), static_cast<void*>(&type.client),
                 CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&memory.back())),
        CUDA_SUCCESS);
    t.expect_equal(type);
    EXPECT_EQ(t.call_client(FN(cuMemHostUnregister), static_cast<void*>(memory.data())),
              CUDA_SUCCESS);
  });
  table.translated("cuMemHostUnregister", kOurs, [](Trial& t) {
    std::vector<unsigned char> memory(t.draw(1, 20'000));
    void* const place = memory.data();
    EXPECT_EQ(t.call_client(FN(cuMemHostRegister_v2), place, memory.size(), 0u), CUDA_SUCCESS);
    t.expect_local(t.client(FN(cuMemHostUnregister), place), CUDA_SUCCESS);
    t.expect_local(t.client(FN(cuMemHostUnregister), place), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  });
  table.translated("cuMemAllocManaged", "refused with GPURUN_HOST_MEMORY=copy", [](Trial& t) {
    CUdeviceptr address = 0;
    t.expect_local(t.client(FN(cuMemAllocManaged), &address, 4096u, unsigned{CU_MEM_ATTACH_GLOBAL}),
                   CUDA_ERROR_NOT_SUPPORTED);
  });
  table.translated(
      "cuMemHostGetDevicePointer_v2", "refused with GPURUN_HOST_MEMORY=copy", [](Trial& t) {
        void* memory = nullptr;
        EXPECT_EQ(t.call_client(FN(cuMemHostAlloc), &memory, 4096u, 0u), CUDA_SUCCESS);
        CUdeviceptr address = 0;
        t.expect_local(t.client(FN(cuMemHostGetDevicePointer_v2), &address, memory, 0u),
                       CUDA_ERROR_NOT_SUPPORTED);
        EXPECT_EQ(t.call_client(FN(cuMemFreeHost), memory), CUDA_SUCCESS);
      });
}

}  // namespace

void add_host_memory_trials(TrialTable& table) {
  add_own_memory(table);
  add_registered_memory(table);
}

}  // namespace gpurun::parity
