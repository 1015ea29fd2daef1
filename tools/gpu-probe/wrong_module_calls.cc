// Wrong calls: modules, libraries, functions, launches, occupancy, linking.
#include "kernels.h"
#include "wrong_call.h"

namespace gpurun::probe {
namespace {

constexpr char kModule[] = "Module Management";
constexpr char kLibrary[] = "Library Management";
constexpr char kExec[] = "Execution Control";
constexpr char kOccupancy[] = "Occupancy";

constexpr char kBadPtx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { nonsense; }\n";
constexpr char kFuturePtx[] = ".version 99.0\n.target sm_75\n.address_size 64\n";
constexpr char kNotCode[] = "this is no code at all";

CUmodule unloaded_module(WrongStage& s) {
  must(CU(s.driver, cuModuleUnload)(s.module), "cuModuleUnload");
  return s.module;
}
// Parameters for with_five, in order.
void** five(WrongStage& s) {
  static CUdeviceptr out;
  static char small = 1;
  static double number = 1;
  alignas(16) static char structure[40];
  static unsigned short last = 3;
  static void* list[] = {&out, &small, &number, structure, &last};
  out = s.memory;
  return list;
}

void** short_extra(WrongStage& s) {
  static std::size_t bytes = 4;
  static void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, nullptr, CU_LAUNCH_PARAM_BUFFER_SIZE,
                          &bytes, CU_LAUNCH_PARAM_END};
  extra[1] = s.scratch;
  return extra;
}

constexpr WrongCall kCalls[] = {
    WRONG(cuModuleLoadData, "NULL image", 1, kModule, kContext, (s.out<CUmodule>(), nullptr)),
    WRONG(cuModuleLoadData, "NULL output", 1, kModule, kContext, (nullptr, kKernels)),
    WRONG(cuModuleLoadData, "text that is no PTX", 218, kModule, kContext,
          (s.out<CUmodule>(), kNotCode)),
    WRONG(cuModuleLoadData, "unknown instruction", 218, kModule, kContext,
          (s.out<CUmodule>(), kBadPtx)),
    WRONG(cuModuleLoadData, "PTX of a later version", 222, kModule, kContext,
          (s.out<CUmodule>(), kFuturePtx)),
    WRONG(cuModuleLoadData, "empty text", kNotInTheManual, "", kContext, (s.out<CUmodule>(), "")),
    WRONG(cuModuleLoadData, "no current context", 201, kModule, kInit,
          (s.out<CUmodule>(), kKernels)),
    WRONG(cuModuleLoad, "no such file", 301, kModule, kContext,
          (s.out<CUmodule>(), "/no/such/file.cubin")),
    WRONG(cuModuleLoadFatBinary, "no fat binary", kNotInTheManual, "", kContext,
          (s.out<CUmodule>(), s.zeroed<char>())),
    WRONG(cuModuleUnload, "NULL", 400, kModule, kContext, (nullptr)),
    WRONG(cuModuleUnload, "address of zeros", 400, kModule, kContext, (zeros_as<CUmodule>())),
    WRONG(cuModuleUnload, "twice", 400, kModule, kWork, (unloaded_module(s))),
    WRONG(cuModuleGetFunction, "unknown name", 500, kModule, kWork,
          (s.out<CUfunction>(), s.module, "no_such_kernel")),
    WRONG(cuModuleGetFunction, "NULL name", 1, kModule, kWork,
          (s.out<CUfunction>(), s.module, nullptr)),
    WRONG(cuModuleGetFunction, "NULL output", 1, kModule, kWork, (nullptr, s.module, "empty")),
    WRONG(cuModuleGetFunction, "NULL module", 400, kModule, kWork,
          (s.out<CUfunction>(), nullptr, "empty")),
    WRONG(cuModuleGetFunction, "unloaded module", 400, kModule, kWork,
          (s.out<CUfunction>(), unloaded_module(s), "empty")),
    WRONG(cuModuleGetGlobal_v2, "unknown name", 500, kModule, kWork,
          (s.out<CUdeviceptr>(), s.out<std::size_t>() + 1, s.module, "no_such_variable")),
    WRONG(cuModuleGetGlobal_v2, "the name of a kernel", 500, kModule, kWork,
          (s.out<CUdeviceptr>(), s.out<std::size_t>() + 1, s.module, "empty")),
    WRONG(cuModuleGetFunctionCount, "NULL output", 1, kModule, kWork, (nullptr, s.module)),
    WRONG(cuLibraryLoadData, "NULL code", 1, kLibrary, kContext,
          (s.out<CUlibrary>(), nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0)),
    WRONG(cuLibraryLoadData, "text that is no PTX", kNotInTheManual, "", kContext,
          (s.out<CUlibrary>(), kNotCode, nullptr, nullptr, 0, nullptr, nullptr, 0)),
    WRONG(cuLibraryUnload, "NULL", 400, kLibrary, kContext, (nullptr)),
    WRONG(cuLibraryUnload, "address of zeros", 400, kLibrary, kContext, (zeros_as<CUlibrary>())),
    WRONG_AFTER(
        cuLibraryGetKernel, "unknown name", 500, kLibrary, kContext, static CUlibrary library;
        must(CU(s.driver, cuLibraryLoadData)(&library, kKernels, nullptr, nullptr, 0, nullptr,
                                             nullptr, 0),
             "cuLibraryLoadData");
        , (s.out<CUkernel>(), library, "no_such_kernel")),
    WRONG(cuLibraryGetKernel, "NULL library", 400, kLibrary, kContext,
          (s.out<CUkernel>(), nullptr, "empty")),
    WRONG(cuKernelGetFunction, "NULL kernel", 400, kLibrary, kContext,
          (s.out<CUfunction>(), nullptr)),
    WRONG(cuFuncGetAttribute, "unknown attribute", 1, kExec, kWork,
          (s.out<int>(), number_as<CUfunction_attribute>(99), s.empty)),
    WRONG(cuFuncGetAttribute, "NULL function", 400, kExec, kWork,
          (s.out<int>(), CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr)),
    WRONG(cuFuncSetAttribute, "attribute that is read-only", 1, kExec, kWork,
          (s.empty, CU_FUNC_ATTRIBUTE_NUM_REGS, 1)),
    WRONG(cuFuncSetAttribute, "more shared memory than there is", 1, kExec, kWork,
          (s.empty, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 30)),
    WRONG(cuFuncGetParamInfo, "index beyond the last parameter", 1, kExec, kWork,
          (s.with_five, 5, s.out<std::size_t>(), s.out<std::size_t>() + 1)),
    WRONG(cuLaunchKernel, "NULL function", 400, kExec, kWork,
          (nullptr, 1, 1, 1, 1, 1, 1, 0, s.stream, nullptr, nullptr)),
    WRONG(cuLaunchKernel, "function of zeros", 400, kExec, kWork,
          (zeros_as<CUfunction>(), 1, 1, 1, 1, 1, 1, 0, s.stream, nullptr, nullptr)),
    WRONG(cuLaunchKernel, "grid of 0", 1, kExec, kWork,
          (s.empty, 0, 1, 1, 1, 1, 1, 0, s.stream, nullptr, nullptr)),
    WRONG(cuLaunchKernel, "block of 0", 1, kExec, kWork,
          (s.empty, 1, 1, 1, 0, 1, 1, 0, s.stream, nullptr, nullptr)),
    WRONG(cuLaunchKernel, "block of 2048 threads", 1, kExec, kWork,
          (s.empty, 1, 1, 1, 2048, 1, 1, 0, s.stream, nullptr, nullptr)),
    WRONG(cuLaunchKernel, "block of 65 in z", 1, kExec, kWork,
          (s.empty, 1, 1, 1, 1, 1, 65, 0, s.stream, nullptr, nullptr)),
    WRONG(cuLaunchKernel, "grid of 65536 in y", 1, kExec, kWork,
          (s.empty, 1, 65536, 1, 1, 1, 1, 0, s.stream, nullptr, nullptr)),
    WRONG(cuLaunchKernel, "more shared memory than there is", 1, kExec, kWork,
          (s.empty, 1, 1, 1, 1, 1, 1, 1 << 30, s.stream, nullptr, nullptr)),
    WRONG(cuLaunchKernel, "stream of zeros", 400, kExec, kWork,
          (s.empty, 1, 1, 1, 1, 1, 1, 0, zeros_as<CUstream>(), nullptr, nullptr)),
    WRONG(cuLaunchKernel, "NULL parameters where the kernel has some", 1, kExec, kWork,
          (s.with_five, 1, 1, 1, 1, 1, 1, 0, s.stream, nullptr, nullptr)),
    WRONG(cuLaunchKernel, "parameters and extra", 1, kExec, kWork,
          (s.with_five, 1, 1, 1, 1, 1, 1, 0, s.stream, five(s), short_extra(s))),
    WRONG(cuLaunchKernel, "extra that is too short for the parameters", kNotInTheManual, "", kWork,
          (s.with_five, 1, 1, 1, 1, 1, 1, 0, s.stream, nullptr, short_extra(s))),
    WRONG(cuLaunchCooperativeKernel, "more blocks than fit at once", 720, kExec, kWork,
          (s.empty, 1'000'000, 1, 1, 1024, 1, 1, 0, s.stream, nullptr)),
    WRONG(cuLaunchKernelEx, "NULL configuration", 1, kExec, kWork,
          (nullptr, s.empty, nullptr, nullptr)),
    WRONG(cuOccupancyMaxActiveBlocksPerMultiprocessor, "block of 0", 1, kOccupancy, kWork,
          (s.out<int>(), s.empty, 0, 0)),
    WRONG(cuOccupancyMaxActiveBlocksPerMultiprocessor, "NULL output", 1, kOccupancy, kWork,
          (nullptr, s.empty, 32, 0)),
    WRONG(cuOccupancyMaxActiveBlocksPerMultiprocessor, "NULL function", 400, kOccupancy, kWork,
          (s.out<int>(), nullptr, 32, 0)),
    WRONG(cuLinkDestroy, "address of zeros", 400, kModule, kContext, (zeros_as<CUlinkState>())),
    WRONG(cuLinkCreate_v2, "NULL output", 1, kModule, kContext, (0, nullptr, nullptr, nullptr)),
};

}  // namespace

std::span<const WrongCall> wrong_module_calls() { return kCalls; }

}  // namespace gpurun::probe
