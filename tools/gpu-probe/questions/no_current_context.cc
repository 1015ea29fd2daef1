// Question: which handles and addresses bring a context with them in calls of a thread without a
// current context? The emulated device and the client follow driver_abi/cuda_driver.toml
// (context_of).
#include "kernels.h"
#include "questions/questions.h"

namespace gpurun::probe {
namespace {

class Asked {
 public:
  explicit Asked(Answer* answer) : answer_(answer) {}
  void operator()(const char* call, CUresult result) { answer_->fact(call, Json::result(result)); }

 private:
  Answer* const answer_;
};

void ask_streams(const Stage& stage, Asked ask) {
  const Driver& driver = stage.driver;
  CUcontext context = nullptr;
  CUstreamCaptureStatus status{};
  unsigned flags = 0, word = 0;
  int priority = 0;
  unsigned long long id = 0;
  float milliseconds = 0;
  ask("cuStreamGetCtx", CU(driver, cuStreamGetCtx)(stage.stream, &context));
  ask("cuStreamGetCtx.default", CU(driver, cuStreamGetCtx)(nullptr, &context));
  ask("cuStreamGetFlags", CU(driver, cuStreamGetFlags)(stage.stream, &flags));
  ask("cuStreamGetPriority", CU(driver, cuStreamGetPriority)(stage.stream, &priority));
  ask("cuStreamGetId", CU(driver, cuStreamGetId)(stage.stream, &id));
  ask("cuStreamIsCapturing", CU(driver, cuStreamIsCapturing)(stage.stream, &status));
  ask("cuStreamQuery", CU(driver, cuStreamQuery)(stage.stream));
  ask("cuEventRecord", CU(driver, cuEventRecord)(stage.event, stage.stream));
  ask("cuEventRecord.default", CU(driver, cuEventRecord)(stage.event, nullptr));
  ask("cuStreamWaitEvent", CU(driver, cuStreamWaitEvent)(stage.stream, stage.event, 0));
  ask("cuEventSynchronize", CU(driver, cuEventSynchronize)(stage.event));
  ask("cuEventQuery", CU(driver, cuEventQuery)(stage.event));
  ask("cuEventElapsedTime",
      CU(driver, cuEventElapsedTime_v2)(&milliseconds, stage.event, stage.event));
  ask("cuStreamSynchronize", CU(driver, cuStreamSynchronize)(stage.stream));
  ask("cuMemsetD8Async", CU(driver, cuMemsetD8Async)(stage.memory, 1, 16, stage.stream));
  ask("cuMemcpyHtoDAsync", CU(driver, cuMemcpyHtoDAsync_v2)(stage.memory, &word, 4, stage.stream));
  ask("cuMemcpyDtoHAsync", CU(driver, cuMemcpyDtoHAsync_v2)(&word, stage.memory, 4, stage.stream));
  ask("cuMemcpyDtoDAsync",
      CU(driver, cuMemcpyDtoDAsync_v2)(stage.memory + 64, stage.memory, 4, stage.stream));
  ask("cuMemcpyAsync", CU(driver, cuMemcpyAsync)(stage.memory + 64, stage.memory, 4, stage.stream));
  ask("cuLaunchKernel",
      CU(driver, cuLaunchKernel)(stage.empty, 1, 1, 1, 1, 1, 1, 0, stage.stream, nullptr, nullptr));
  ask("cuLaunchKernel.default",
      CU(driver, cuLaunchKernel)(stage.empty, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  CUdeviceptr pooled = 0;
  ask("cuMemAllocAsync", CU(driver, cuMemAllocAsync)(&pooled, 4096, stage.stream));
  if (pooled != 0) ask("cuMemFreeAsync", CU(driver, cuMemFreeAsync)(pooled, stage.stream));
  ask("cuStreamSynchronize.again", CU(driver, cuStreamSynchronize)(stage.stream));
}

void ask_code(const Stage& stage, Asked ask) {
  const Driver& driver = stage.driver;
  CUfunction function = nullptr;
  CUmodule module = nullptr;
  CUdeviceptr variable = 0;
  std::size_t bytes = 0, offset = 0;
  const char* name = nullptr;
  int value = 0;
  ask("cuModuleGetFunction", CU(driver, cuModuleGetFunction)(&function, stage.module, "spin"));
  ask("cuModuleGetGlobal",
      CU(driver, cuModuleGetGlobal_v2)(&variable, &bytes, stage.module, "counter"));
  ask("cuFuncGetModule", CU(driver, cuFuncGetModule)(&module, stage.empty));
  ask("cuFuncGetName", CU(driver, cuFuncGetName)(&name, stage.empty));
  ask("cuFuncGetAttribute",
      CU(driver, cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, stage.empty));
  ask("cuFuncGetParamInfo", CU(driver, cuFuncGetParamInfo)(stage.with_five, 0, &offset, &bytes));
  ask("cuFuncSetCacheConfig",
      CU(driver, cuFuncSetCacheConfig)(stage.empty, CU_FUNC_CACHE_PREFER_NONE));
  ask("cuFuncSetBlockShape", CU(driver, cuFuncSetBlockShape)(stage.empty, 1, 1, 1));
}

void ask_memory(const Stage& stage, void* pinned, CUarray array, Asked ask) {
  const Driver& driver = stage.driver;
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  unsigned flags = 0;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  CUmemorytype type{};
  CUipcMemHandle handle{};
  ask("cuPointerGetAttribute",
      CU(driver, cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, stage.memory));
  ask("cuMemGetAddressRange", CU(driver, cuMemGetAddressRange_v2)(&base, &bytes, stage.memory + 4));
  ask("cuIpcGetMemHandle", CU(driver, cuIpcGetMemHandle)(&handle, stage.memory));
  ask("cuMemHostGetFlags", CU(driver, cuMemHostGetFlags)(&flags, pinned));
  ask("cuArray3DGetDescriptor", CU(driver, cuArray3DGetDescriptor_v2)(&descriptor, array));
  ask("cuArrayDestroy", CU(driver, cuArrayDestroy)(array));
  ask("cuMemFreeHost", CU(driver, cuMemFreeHost)(pinned));
  ask("cuMemFree", CU(driver, cuMemFree_v2)(stage.memory));
}

}  // namespace

void ask_no_current_context(const std::string& libcuda, Answer* answer) {
  const Driver driver(libcuda);
  Stage stage(driver, Level::kWork);
  void* pinned = nullptr;
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR descriptor{16, 1, CU_AD_FORMAT_FLOAT, 1};
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  must(CU(driver, cuMemHostAlloc)(&pinned, 4096, 0), "cuMemHostAlloc");
  must(CU(driver, cuArrayCreate_v2)(&array, &descriptor), "cuArrayCreate");
  must(CU(driver, cuGraphCreate)(&graph, 0), "cuGraphCreate");
  must(CU(driver, cuGraphAddEmptyNode)(&node, graph, nullptr, 0), "cuGraphAddEmptyNode");
  must(CU(driver, cuGraphInstantiateWithFlags)(&exec, graph, 0), "cuGraphInstantiate");
  must(CU(driver, cuCtxSetCurrent)(nullptr), "cuCtxSetCurrent");
  Asked ask(answer);
  ask_streams(stage, ask);
  ask("cuGraphLaunch", CU(driver, cuGraphLaunch)(exec, stage.stream));
  ask("cuGraphLaunch.default", CU(driver, cuGraphLaunch)(exec, nullptr));
  CU(driver, cuStreamSynchronize)(stage.stream);
  ask_code(stage, ask);
  ask_memory(stage, pinned, array, ask);
  ask("cuGraphExecDestroy", CU(driver, cuGraphExecDestroy)(exec));
  ask("cuModuleUnload", CU(driver, cuModuleUnload)(stage.module));
  ask("cuEventDestroy", CU(driver, cuEventDestroy_v2)(stage.event));
  ask("cuStreamDestroy", CU(driver, cuStreamDestroy_v2)(stage.stream));
}

}  // namespace gpurun::probe
