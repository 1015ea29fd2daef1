// Question: what happens at a launch with an invalid shape? The driver's result, the result for a
// program of the runtime, and the runtime's calls to the driver in between. The manuals differ:
// cuLaunchKernel says INVALID_VALUE, and programs have long read cudaErrorInvalidConfiguration.
#include <dlfcn.h>

#include <cstdlib>

#include "kernels.h"
#include "questions/questions.h"
#include "runtime_calls.h"

namespace gpurun::probe {
namespace {

struct Dim3 {  // cudart's dim3, passed by value.
  unsigned x, y, z;
};
struct Shape {
  const char* name;
  Dim3 grid, block;
  unsigned shared_bytes;
};
constexpr Shape kShapes[] = {
    {"right", {1, 1, 1}, {1, 1, 1}, 0},
    {"grid_x_0", {0, 1, 1}, {1, 1, 1}, 0},
    {"grid_y_0", {1, 0, 1}, {1, 1, 1}, 0},
    {"grid_z_0", {1, 1, 0}, {1, 1, 1}, 0},
    {"grid_x_2e31", {0x8000'0000, 1, 1}, {1, 1, 1}, 0},
    {"grid_y_65536", {1, 65536, 1}, {1, 1, 1}, 0},
    {"grid_z_65536", {1, 1, 65536}, {1, 1, 1}, 0},
    {"block_x_0", {1, 1, 1}, {0, 1, 1}, 0},
    {"block_y_0", {1, 1, 1}, {1, 0, 1}, 0},
    {"block_z_0", {1, 1, 1}, {1, 1, 0}, 0},
    {"block_x_1025", {1, 1, 1}, {1025, 1, 1}, 0},
    {"block_z_65", {1, 1, 1}, {1, 1, 65}, 0},
    {"block_64_64", {1, 1, 1}, {64, 64, 1}, 0},
    {"shared_1_mib", {1, 1, 1}, {1, 1, 1}, 1 << 20},
};

void ask_driver(const Stage& stage, const Shape& shape, Answer* answer) {
  const Driver& driver = stage.driver;
  const CUresult plain = CU(driver, cuLaunchKernel)(
      stage.empty, shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y,
      shape.block.z, shape.shared_bytes, nullptr, nullptr, nullptr);
  CUlaunchConfig config{};
  config.gridDimX = shape.grid.x, config.gridDimY = shape.grid.y, config.gridDimZ = shape.grid.z;
  config.blockDimX = shape.block.x, config.blockDimY = shape.block.y;
  config.blockDimZ = shape.block.z, config.sharedMemBytes = shape.shared_bytes;
  const CUresult extended = CU(driver, cuLaunchKernelEx)(&config, stage.empty, nullptr, nullptr);
  answer->fact(std::string("driver.") + shape.name,
               Json::object({{"cuLaunchKernel", Json::result(plain)},
                             {"cuLaunchKernelEx", Json::result(extended)}}));
}

// The runtime's functions that this question needs, by their exported names.
struct Runtime {
  int (*load)(void**, const void*, const void*, const void*, unsigned, const void*, const void*,
              unsigned);
  int (*get_kernel)(void**, void*, const char*);
  int (*launch)(const void*, Dim3, Dim3, void**, std::size_t, void*);
  int (*last_error)();

  bool open() {
    const char* const chosen = std::getenv("GPU_PROBE_CUDART");
    void* library = nullptr;
    for (const char* name : {chosen, "libcudart.so.13", "libcudart.so.12", "libcudart.so"}) {
      if (library == nullptr && name != nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    return library != nullptr && find(library, "cudaLibraryLoadData", load) &&
           find(library, "cudaLibraryGetKernel", get_kernel) &&
           find(library, "cudaLaunchKernel", launch) &&
           find(library, "cudaGetLastError", last_error);
  }
  template <typename Function>
  static bool find(void* library, const char* name, Function*& into) {
    into = reinterpret_cast<Function*>(dlsym(library, name));
    return into != nullptr;
  }
};

void ask_runtime(const Runtime& runtime, void* kernel, const Shape& shape, Answer* answer) {
  static_cast<void>(runtime.last_error());
  static_cast<void>(runtime_calls::take());
  const int launched =
      runtime.launch(kernel, shape.grid, shape.block, nullptr, shape.shared_bytes, nullptr);
  const int read = runtime.last_error();
  std::vector<Json> calls;
  for (const std::string& call : runtime_calls::take()) calls.push_back(Json::text(call));
  answer->fact(std::string("runtime.") + shape.name,
               Json::object({{"cudaLaunchKernel", Json::integer(launched)},
                             {"cudaGetLastError", Json::integer(read)},
                             {"driver_calls", Json::list(calls)}}));
}

}  // namespace

void ask_launch_shape(const std::string& libcuda, Answer* answer) {
  const Driver driver(libcuda);
  Stage stage(driver, Level::kWork);
  for (const Shape& shape : kShapes) ask_driver(stage, shape, answer);
  must(CU(driver, cuCtxSynchronize)(), "cuCtxSynchronize");

  runtime_calls::record();
  Runtime runtime{};
  if (!runtime.open()) {
    answer->unanswerable(
        "no shared CUDA runtime of 12.8 or later was found: set GPU_PROBE_CUDART to its path");
    return;
  }
  void* library = nullptr;
  void* kernel = nullptr;
  const int loaded = runtime.load(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0);
  const int found = loaded != 0 ? loaded : runtime.get_kernel(&kernel, library, "empty");
  if (found != 0) {
    answer->fact("runtime.load", Json::integer(found));
    return;
  }
  for (const Shape& shape : kShapes) ask_runtime(runtime, kernel, shape, answer);
}

}  // namespace gpurun::probe
