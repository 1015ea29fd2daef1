// Question: what do calls cost on this driver? A forwarded call is compared with this local price.
#include <functional>

#include "kernels.h"
#include "questions/questions.h"

namespace gpurun::probe {
namespace {

// Repeats `call` for about a tenth of a second, at least three times, and reports the mean.
void cost(Answer* answer, const std::string& name, const std::function<CUresult()>& call) {
  CUresult result = call();  // The first one may initialize something.
  if (result != CUDA_SUCCESS) {
    answer->fact(name, Json::result(result));
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  std::int64_t count = 0;
  while (result == CUDA_SUCCESS && (count < 3 || seconds_since(start) < 0.1)) {
    result = call();
    ++count;
  }
  const double mean = seconds_since(start) / static_cast<double>(count);
  answer->fact(name, result == CUDA_SUCCESS ? Json::object({{"us", Json::number(mean * 1e6)},
                                                            {"calls", Json::integer(count)}})
                                            : Json::result(result));
}

void state_costs(const Stage& s, Answer* answer) {
  const Driver& d = s.driver;
  cost(answer, "cuCtxGetCurrent", [&] {
    CUcontext current = nullptr;
    return CU(d, cuCtxGetCurrent)(&current);
  });
  cost(answer, "cuCtxSetCurrent", [&] { return CU(d, cuCtxSetCurrent)(s.context); });
  cost(answer, "cuDeviceGetAttribute", [&] {
    int value = 0;
    return CU(d, cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, s.device);
  });
  cost(answer, "cuPointerGetAttribute", [&] {
    unsigned value = 0;
    return CU(d, cuPointerGetAttribute)(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, s.memory);
  });
  cost(answer, "cuMemGetInfo", [&] {
    std::size_t free = 0;
    std::size_t total = 0;
    return CU(d, cuMemGetInfo_v2)(&free, &total);
  });
  cost(answer, "cuEventRecord", [&] { return CU(d, cuEventRecord)(s.event, s.stream); });
  cost(answer, "cuEventQuery", [&] {
    const CUresult result = CU(d, cuEventQuery)(s.event);
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
  });
  cost(answer, "cuStreamWaitEvent", [&] { return CU(d, cuStreamWaitEvent)(s.stream, s.event, 0); });
  cost(answer, "cuStreamSynchronize idle", [&] { return CU(d, cuStreamSynchronize)(s.stream); });
  cost(answer, "cuCtxSynchronize idle", [&] { return CU(d, cuCtxSynchronize)(); });
  cost(answer, "cuEventCreate + cuEventDestroy", [&] {
    CUevent made = nullptr;
    const CUresult result = CU(d, cuEventCreate)(&made, CU_EVENT_DISABLE_TIMING);
    return result != CUDA_SUCCESS ? result : CU(d, cuEventDestroy_v2)(made);
  });
  cost(answer, "cuStreamCreate + cuStreamDestroy", [&] {
    CUstream made = nullptr;
    const CUresult result = CU(d, cuStreamCreate)(&made, CU_STREAM_NON_BLOCKING);
    return result != CUDA_SUCCESS ? result : CU(d, cuStreamDestroy_v2)(made);
  });
}

void launch_costs(const Stage& s, Answer* answer) {
  const Driver& d = s.driver;
  const auto launch = [&] {
    return CU(d, cuLaunchKernel)(s.empty, 1, 1, 1, 32, 1, 1, 0, s.stream, nullptr, nullptr);
  };
  // Below every queue depth, so that no launch waits.
  cost(answer, "100 cuLaunchKernel + cuStreamSynchronize", [&] {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < 100 && result == CUDA_SUCCESS; ++i) result = launch();
    return result != CUDA_SUCCESS ? result : CU(d, cuStreamSynchronize)(s.stream);
  });
  cost(answer, "cuLaunchKernel + cuStreamSynchronize", [&] {
    const CUresult result = launch();
    return result != CUDA_SUCCESS ? result : CU(d, cuStreamSynchronize)(s.stream);
  });
  cost(answer, "cuModuleGetFunction", [&] {
    CUfunction found = nullptr;
    return CU(d, cuModuleGetFunction)(&found, s.module, "with_five");
  });
  cost(answer, "cuModuleLoadData + cuModuleUnload", [&] {
    CUmodule made = nullptr;
    const CUresult result = CU(d, cuModuleLoadData)(&made, kKernels);
    return result != CUDA_SUCCESS ? result : CU(d, cuModuleUnload)(made);
  });
}

// Costs of noticing that a kernel has ended without a wait in the driver. One way queries the
// stream again and again. The other reads a word of host memory that the device writes behind the
// kernel.
void notice_costs(const Stage& s, Answer* answer) {
  const Driver& d = s.driver;
  const auto launch = [&] {
    return CU(d, cuLaunchKernel)(s.empty, 1, 1, 1, 32, 1, 1, 0, s.stream, nullptr, nullptr);
  };
  const auto query = CU(d, cuStreamQuery);
  cost(answer, "cuLaunchKernel + cuStreamQuery until it is done", [&] {
    CUresult result = launch();
    if (result != CUDA_SUCCESS) return result;
    do {
      result = query(s.stream);
    } while (result == CUDA_ERROR_NOT_READY);
    return result;
  });
  const char* const name = "cuLaunchKernel + cuStreamWriteValue32 until the word is read";
  void* memory = nullptr;
  CUdeviceptr address = 0;
  CUresult result = CU(d, cuMemHostAlloc)(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP);
  if (result == CUDA_SUCCESS) result = CU(d, cuMemHostGetDevicePointer_v2)(&address, memory, 0);
  if (result != CUDA_SUCCESS) {
    answer->fact(name, Json::result(result));
    return;
  }
  auto* const word = static_cast<volatile unsigned*>(memory);
  *word = 0;
  unsigned next = 0;
  cost(answer, name, [&] {
    CUresult done = launch();
    ++next;
    if (done == CUDA_SUCCESS) {
      done = CU(d, cuStreamWriteValue32_v2)(s.stream, address, next, 0);
    }
    const auto start = std::chrono::steady_clock::now();
    while (done == CUDA_SUCCESS && *word != next) {
      if (seconds_since(start) > 5) done = CUDA_ERROR_LAUNCH_TIMEOUT;
    }
    return done;
  });
}

// Costs of one kernel and of a hundred in a row, to show what a graph saves.
void graph_costs(const Stage& s, Answer* answer) {
  const Driver& d = s.driver;
  for (const unsigned nodes : {1u, 100u}) {
    const std::string size = " of " + std::to_string(nodes) + (nodes == 1 ? " kernel" : " kernels");
    CUgraph graph = nullptr;
    CUresult result = CU(d, cuGraphCreate)(&graph, 0);
    CUDA_KERNEL_NODE_PARAMS launch = {};
    launch.func = s.empty;
    launch.gridDimX = launch.gridDimY = launch.gridDimZ = 1;
    launch.blockDimX = 32;
    launch.blockDimY = launch.blockDimZ = 1;
    CUgraphNode last = nullptr;
    for (unsigned i = 0; i < nodes && result == CUDA_SUCCESS; ++i) {
      const CUgraphNode before = last;
      result = CU(d, cuGraphAddKernelNode_v2)(&last, graph, &before, i == 0 ? 0 : 1, &launch);
    }
    if (result != CUDA_SUCCESS) {
      answer->fact("graph" + size, Json::result(result));
      continue;
    }
    cost(answer, "cuGraphInstantiate + cuGraphExecDestroy" + size, [&] {
      CUgraphExec made = nullptr;
      const CUresult instantiated = CU(d, cuGraphInstantiateWithFlags)(&made, graph, 0);
      return instantiated != CUDA_SUCCESS ? instantiated : CU(d, cuGraphExecDestroy)(made);
    });
    CUgraphExec executable = nullptr;
    result = CU(d, cuGraphInstantiateWithFlags)(&executable, graph, 0);
    if (result != CUDA_SUCCESS) continue;  // The cost above reports it.
    cost(answer, "cuGraphLaunch + cuStreamSynchronize" + size, [&] {
      const CUresult launched = CU(d, cuGraphLaunch)(executable, s.stream);
      return launched != CUDA_SUCCESS ? launched : CU(d, cuStreamSynchronize)(s.stream);
    });
    cost(answer, "10 cuGraphLaunch + cuStreamSynchronize" + size, [&] {
      CUresult launched = CUDA_SUCCESS;
      for (int i = 0; i < 10 && launched == CUDA_SUCCESS; ++i) {
        launched = CU(d, cuGraphLaunch)(executable, s.stream);
      }
      return launched != CUDA_SUCCESS ? launched : CU(d, cuStreamSynchronize)(s.stream);
    });
  }
}

void memory_costs(const Stage& s, Answer* answer) {
  const Driver& d = s.driver;
  for (const std::size_t bytes : {std::size_t{4096}, std::size_t{1} << 20, std::size_t{64} << 20}) {
    const std::string size = std::to_string(bytes >> 10) + " KiB";
    cost(answer, "cuMemAlloc + cuMemFree " + size, [&] {
      CUdeviceptr made = 0;
      const CUresult result = CU(d, cuMemAlloc_v2)(&made, bytes);
      return result != CUDA_SUCCESS ? result : CU(d, cuMemFree_v2)(made);
    });
    cost(answer, "cuMemAllocAsync + cuMemFreeAsync + synchronize " + size, [&] {
      CUdeviceptr made = 0;
      CUresult result = CU(d, cuMemAllocAsync)(&made, bytes, s.stream);
      if (result == CUDA_SUCCESS) result = CU(d, cuMemFreeAsync)(made, s.stream);
      return result != CUDA_SUCCESS ? result : CU(d, cuStreamSynchronize)(s.stream);
    });
  }
  for (const std::size_t bytes : {std::size_t{4096}, std::size_t{1} << 20, std::size_t{64} << 20}) {
    const std::string size = std::to_string(bytes >> 10) + " KiB";
    cost(answer, "cuMemHostAlloc + cuMemFreeHost " + size, [&] {
      void* made = nullptr;
      const CUresult result = CU(d, cuMemHostAlloc)(&made, bytes, 0);
      return result != CUDA_SUCCESS ? result : CU(d, cuMemFreeHost)(made);
    });
  }
  for (const std::size_t bytes : {std::size_t{4}, Stage::kMemoryBytes}) {
    cost(answer, "cuMemsetD8Async + synchronize " + std::to_string(bytes) + " B", [&] {
      const CUresult result = CU(d, cuMemsetD8Async)(s.memory, 1, bytes, s.stream);
      return result != CUDA_SUCCESS ? result : CU(d, cuStreamSynchronize)(s.stream);
    });
  }
  cost(answer, "100 cuMemsetD8Async 4 B + synchronize", [&] {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < 100 && result == CUDA_SUCCESS; ++i) {
      result = CU(d, cuMemsetD8Async)(s.memory, 1, 4, s.stream);
    }
    return result != CUDA_SUCCESS ? result : CU(d, cuStreamSynchronize)(s.stream);
  });
  void* pinned = nullptr;
  if (CU(d, cuMemHostAlloc)(&pinned, 16 << 20, 0) != CUDA_SUCCESS) pinned = nullptr;
  std::vector<char> pageable(16 << 20);
  CUdeviceptr target = 0;
  must(CU(d, cuMemAlloc_v2)(&target, pageable.size()), "cuMemAlloc");
  for (const std::size_t bytes : {std::size_t{4}, std::size_t{64} << 10, std::size_t{16} << 20}) {
    const std::string size = std::to_string(bytes) + " B";
    cost(answer, "cuMemcpyHtoD pageable " + size,
         [&] { return CU(d, cuMemcpyHtoD_v2)(target, pageable.data(), bytes); });
    cost(answer, "cuMemcpyDtoH pageable " + size,
         [&] { return CU(d, cuMemcpyDtoH_v2)(pageable.data(), target, bytes); });
    if (pinned == nullptr) continue;
    cost(answer, "cuMemcpyHtoDAsync pinned + synchronize " + size, [&] {
      const CUresult result = CU(d, cuMemcpyHtoDAsync_v2)(target, pinned, bytes, s.stream);
      return result != CUDA_SUCCESS ? result : CU(d, cuStreamSynchronize)(s.stream);
    });
    cost(answer, "cuMemcpyDtoHAsync pinned + synchronize " + size, [&] {
      const CUresult result = CU(d, cuMemcpyDtoHAsync_v2)(pinned, target, bytes, s.stream);
      return result != CUDA_SUCCESS ? result : CU(d, cuStreamSynchronize)(s.stream);
    });
  }
}

}  // namespace

void ask_call_costs(const std::string& libcuda, Answer* answer) {
  const Driver driver(libcuda);
  Stage stage(driver, Level::kWork);
  state_costs(stage, answer);
  launch_costs(stage, answer);
  notice_costs(stage, answer);
  graph_costs(stage, answer);
  memory_costs(stage, answer);
}

}  // namespace gpurun::probe
