// Question: which parameter layouts does the driver report, for functions and kernels? Also whether
// a CUkernel can be launched directly, even in another context than that of its first use.
#include "kernels.h"
#include "questions/questions.h"

namespace gpurun::probe {
namespace {

template <typename Ask>
Json layout(const Ask& ask) {
  std::vector<Json> parameters;
  for (std::size_t i = 0; i < 64; ++i) {
    std::size_t offset = 0;
    std::size_t size = 0;
    const CUresult result = ask(i, &offset, &size);
    if (result != CUDA_SUCCESS) {
      return Json::object(
          {{"parameters", Json::list(parameters)}, {"ends_with", Json::result(result)}});
    }
    parameters.push_back(Json::list({Json::integer(static_cast<std::int64_t>(offset)),
                                     Json::integer(static_cast<std::int64_t>(size))}));
  }
  return Json::text("does not end");
}

// Queries a kernel by each kind of handle, and by a handle of the wrong kind.
void ask_every_kind(const Stage& stage, CUlibrary library, Answer* answer) {
  const Driver& driver = stage.driver;
  const auto as_kernel = [&driver](CUkernel kernel) {
    return layout([&](std::size_t i, std::size_t* at, std::size_t* size) {
      return CU(driver, cuKernelGetParamInfo)(kernel, i, at, size);
    });
  };
  CUkernel empty = nullptr, kernel = nullptr;
  must(CU(driver, cuLibraryGetKernel)(&empty, library, "empty"), "cuLibraryGetKernel");
  must(CU(driver, cuLibraryGetKernel)(&kernel, library, "with_five"), "cuLibraryGetKernel");
  answer->fact("kernel.empty", as_kernel(empty));
  unsigned count = 0;
  CUkernel enumerated[16] = {};
  CUresult result = CU(driver, cuLibraryGetKernelCount)(&count, library);
  if (result == CUDA_SUCCESS) {
    result = CU(driver, cuLibraryEnumerateKernels)(enumerated, count < 16 ? count : 16, library);
  }
  answer->fact("enumerated_kernels",
               result == CUDA_SUCCESS ? Json::integer(count) : Json::result(result));
  for (const CUkernel found : enumerated) {
    if (found == kernel) answer->fact("enumerated_kernel.with_five", as_kernel(found));
  }
  CUfunction function = nullptr;
  result = CU(driver, cuKernelGetFunction)(&function, kernel);
  answer->fact("function_of_the_kernel.with_five",
               result != CUDA_SUCCESS
                   ? Json::result(result)
                   : layout([&](std::size_t i, std::size_t* at, std::size_t* size) {
                       return CU(driver, cuFuncGetParamInfo)(function, i, at, size);
                     }));
  // A thread without a context may load a library and query its kernels.
  CUcontext own = nullptr;
  must(CU(driver, cuCtxPopCurrent_v2)(&own), "cuCtxPopCurrent");
  answer->fact("kernel_without_a_context", as_kernel(kernel));
  must(CU(driver, cuCtxPushCurrent_v2)(own), "cuCtxPushCurrent");
  // Last, because a driver may dereference a handle that it did not make.
  answer->fact(
      "kernel_asked_as_a_function", layout([&](std::size_t i, std::size_t* at, std::size_t* size) {
        return CU(driver, cuFuncGetParamInfo)(reinterpret_cast<CUfunction>(kernel), i, at, size);
      }));
  answer->fact("function_asked_as_a_kernel",
               as_kernel(reinterpret_cast<CUkernel>(stage.with_five)));
}

CUresult launch_handle(const Stage& stage, CUkernel kernel, CUstream stream) {
  const CUresult result = CU(stage.driver, cuLaunchKernel)(
      reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  return result != CUDA_SUCCESS ? result : CU(stage.driver, cuCtxSynchronize)();
}

}  // namespace

void ask_kernel_parameters(const std::string& libcuda, Answer* answer) {
  const Driver driver(libcuda);
  Stage stage(driver, Level::kWork);
  answer->fact("function.with_five", layout([&](std::size_t i, std::size_t* at, std::size_t* size) {
                 return CU(driver, cuFuncGetParamInfo)(stage.with_five, i, at, size);
               }));
  answer->fact("function.empty", layout([&](std::size_t i, std::size_t* at, std::size_t* size) {
                 return CU(driver, cuFuncGetParamInfo)(stage.empty, i, at, size);
               }));
  CUlibrary library = nullptr;
  must(CU(driver, cuLibraryLoadData)(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0),
       "cuLibraryLoadData");
  CUkernel kernel = nullptr;
  must(CU(driver, cuLibraryGetKernel)(&kernel, library, "with_five"), "cuLibraryGetKernel");
  answer->fact("kernel.with_five", layout([&](std::size_t i, std::size_t* at, std::size_t* size) {
                 return CU(driver, cuKernelGetParamInfo)(kernel, i, at, size);
               }));
  CUkernel empty = nullptr;
  must(CU(driver, cuLibraryGetKernel)(&empty, library, "empty"), "cuLibraryGetKernel");
  answer->fact("kernel_launched_without_get_function",
               Json::result(launch_handle(stage, empty, stage.stream)));

  CUcontext second = nullptr;
  must(CU(driver, cuCtxCreate_v2)(&second, 0, stage.device), "cuCtxCreate");
  answer->fact("kernel_launched_in_another_context",
               Json::result(launch_handle(stage, empty, nullptr)));
  answer->fact(
      "function_launched_in_another_context",
      Json::result(launch_handle(stage, reinterpret_cast<CUkernel>(stage.empty), nullptr)));
  must(CU(driver, cuCtxSetCurrent)(stage.context), "cuCtxSetCurrent");
  ask_every_kind(stage, library, answer);
}

}  // namespace gpurun::probe
