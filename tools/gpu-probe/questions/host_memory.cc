// Pinned and registered host memory: equal addresses, and what registering costs.
#include <sys/mman.h>

#include "questions/questions.h"

namespace gpurun::probe {

void ask_host_memory(const std::string& libcuda, Answer* answer) {
  const Driver driver(libcuda);
  Stage stage(driver, Level::kContext);
  for (const int id : {19, 41, 83, 88, 89, 90, 91, 99, 100, 101}) {
    int value = 0;
    const CUresult result =
        CU(driver, cuDeviceGetAttribute)(&value, static_cast<CUdevice_attribute>(id), stage.device);
    answer->fact("attribute." + std::to_string(id),
                 result == CUDA_SUCCESS ? Json::integer(value) : Json::result(result));
  }
  void* pinned = nullptr;
  CUdeviceptr mapped = 0;
  CUresult result = CU(driver, cuMemHostAlloc)(&pinned, 1 << 20, CU_MEMHOSTALLOC_DEVICEMAP);
  if (result == CUDA_SUCCESS) result = CU(driver, cuMemHostGetDevicePointer_v2)(&mapped, pinned, 0);
  answer->fact("pinned_memory_has_the_same_device_address",
               result == CUDA_SUCCESS
                   ? Json::boolean(mapped == reinterpret_cast<std::uintptr_t>(pinned))
                   : Json::result(result));
  // A shadow of a client's buffer lies at the client's address: does registering one there work?
  constexpr std::size_t kLargest = 256 << 20;
  void* wish = reinterpret_cast<void*>(0x3300'0000'0000);
  void* shadow = mmap(wish, kLargest, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (shadow != wish) {
    if (shadow != MAP_FAILED) munmap(shadow, kLargest);
    answer->fact("shadow", Json::text("the address could not be mapped"));
    return;
  }
  for (const std::size_t bytes : {std::size_t{4096}, std::size_t{1} << 20, kLargest}) {
    auto start = std::chrono::steady_clock::now();
    result = CU(driver, cuMemHostRegister_v2)(shadow, bytes, CU_MEMHOSTREGISTER_DEVICEMAP);
    const double registering = seconds_since(start);
    if (result != CUDA_SUCCESS) {
      answer->fact("register." + std::to_string(bytes >> 10) + "KiB", Json::result(result));
      continue;
    }
    const CUresult got = CU(driver, cuMemHostGetDevicePointer_v2)(&mapped, shadow, 0);
    start = std::chrono::steady_clock::now();
    must(CU(driver, cuMemHostUnregister)(shadow), "cuMemHostUnregister");
    answer->fact(
        "register." + std::to_string(bytes >> 10) + "KiB",
        Json::object(
            {{"us", Json::number(registering * 1e6)},
             {"unregister_us", Json::number(seconds_since(start) * 1e6)},
             {"pointer_result", Json::result(got)},
             {"same_address", Json::boolean(mapped == reinterpret_cast<std::uintptr_t>(shadow))}}));
  }
}

}  // namespace gpurun::probe
