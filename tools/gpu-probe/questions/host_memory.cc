// Question: how do pinned and registered host memory behave? Whether addresses are equal, what
// registration costs, and what it costs that host and device see the same bytes.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include "questions/questions.h"

namespace gpurun::probe {

namespace {

// Costs of a shadow that the hardware keeps coherent. Compares kernels that read and write it over
// the bus with copies of the same bytes to device memory and back.
void ask_coherency(const Stage& stage, char* shadow, std::size_t bytes, Answer* answer) {
  const Driver& driver = stage.driver;
  CUfunction increment = nullptr;
  must(CU(driver, cuModuleGetFunction)(&increment, stage.module, "increment"),
       "cuModuleGetFunction");
  CUdeviceptr mapped = 0, memory = 0;
  must(CU(driver, cuMemHostRegister_v2)(shadow, bytes, CU_MEMHOSTREGISTER_DEVICEMAP),
       "cuMemHostRegister");
  must(CU(driver, cuMemHostGetDevicePointer_v2)(&mapped, shadow, 0), "cuMemHostGetDevicePointer");
  must(CU(driver, cuMemAlloc_v2)(&memory, bytes), "cuMemAlloc");
  const auto words = static_cast<unsigned>(bytes / 4);
  const auto run = [&](CUdeviceptr where) {
    unsigned count = words;
    void* parameters[] = {&where, &count};
    return CU(driver, cuLaunchKernel)(increment, (words + 255) / 256, 1, 1, 256, 1, 1, 0,
                                      stage.stream, parameters, nullptr);
  };
  const auto timed = [&](const std::function<CUresult()>& work) {
    CUresult result = CUDA_SUCCESS;
    double least = 1e9;
    for (int i = 0; i < 3 && result == CUDA_SUCCESS; ++i) {  // The first may touch new pages.
      const auto start = std::chrono::steady_clock::now();
      result = work();
      if (result == CUDA_SUCCESS) result = CU(driver, cuStreamSynchronize)(stage.stream);
      least = std::min(least, seconds_since(start));
    }
    return result == CUDA_SUCCESS ? Json::number(least * 1e6) : Json::result(result);
  };
  const Json in_memory = timed([&] { return run(memory); });
  const Json in_shadow = timed([&] { return run(mapped); });
  const Json copies = timed([&] {
    CUresult result = CU(driver, cuMemcpyHtoDAsync_v2)(memory, shadow, bytes, stage.stream);
    if (result == CUDA_SUCCESS) result = run(memory);
    if (result != CUDA_SUCCESS) return result;
    return CU(driver, cuMemcpyDtoHAsync_v2)(shadow, memory, bytes, stage.stream);
  });
  unsigned first = 0;
  std::memcpy(&first, shadow, sizeof first);
  answer->fact("coherency." + std::to_string(bytes >> 10) + "KiB",
               Json::object({{"kernel_in_device_memory_us", in_memory},
                             {"kernel_in_the_shadow_us", in_shadow},
                             {"copy_in_kernel_copy_out_us", copies},
                             // Three kernels there, and one for each copy in.
                             {"times_incremented", Json::integer(first)}}));
  must(CU(driver, cuMemFree_v2)(memory), "cuMemFree");
  must(CU(driver, cuMemHostUnregister)(shadow), "cuMemHostUnregister");
}

// Whether a running kernel sees what the host writes into a shadow, and after what time.
void ask_host_write(const Stage& stage, char* shadow, Answer* answer) {
  const Driver& driver = stage.driver;
  constexpr std::size_t kPage = 4096;
  CUdeviceptr flag = 0;
  std::memset(shadow, 0, kPage);
  must(CU(driver, cuMemHostRegister_v2)(shadow, kPage, CU_MEMHOSTREGISTER_DEVICEMAP),
       "cuMemHostRegister");
  must(CU(driver, cuMemHostGetDevicePointer_v2)(&flag, shadow, 0), "cuMemHostGetDevicePointer");
  void* parameters[] = {&flag};
  must(CU(driver, cuLaunchKernel)(stage.spin, 1, 1, 1, 1, 1, 1, 0, stage.stream, parameters,
                                  nullptr),
       "cuLaunchKernel");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // So that the kernel is running.
  const bool held = CU(driver, cuStreamQuery)(stage.stream) == CUDA_ERROR_NOT_READY;
  const auto start = std::chrono::steady_clock::now();
  *reinterpret_cast<volatile unsigned*>(shadow) = 1;
  CUresult result = CUDA_ERROR_NOT_READY;
  while (result == CUDA_ERROR_NOT_READY && seconds_since(start) < 5) {
    result = CU(driver, cuStreamQuery)(stage.stream);
  }
  const double took = seconds_since(start);
  answer->fact("host_write_into_the_shadow",
               Json::object({{"kernel_waited_for_it", Json::boolean(held)},
                             {"seen_by_the_running_kernel", Json::result(result)},
                             {"us_until_its_stream_was_done", Json::number(took * 1e6)}}));
  // A kernel that has not seen it still uses the page, which then ends with the process.
  if (result == CUDA_SUCCESS) must(CU(driver, cuMemHostUnregister)(shadow), "cuMemHostUnregister");
}

}  // namespace

void ask_host_memory(const std::string& libcuda, Answer* answer) {
  const Driver driver(libcuda);
  Stage stage(driver, Level::kWork);
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
  // A shadow of a client's buffer is at the client's address. Can memory there be registered?
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
  auto* bytes = static_cast<char*>(shadow);
  for (const std::size_t size : {std::size_t{64} << 10, std::size_t{4} << 20}) {
    std::memset(bytes, 0, size);
    ask_coherency(stage, bytes, size, answer);
  }
  ask_host_write(stage, bytes, answer);
}

}  // namespace gpurun::probe
