// Question: which calls wait for a kernel on an unrelated, non-blocking stream? The server runs
// these on a thread of their own, and a client that answers them early must keep their order. Also
// which launches of graphs wait for an earlier kernel of their stream, and when their copies read.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels.h"
#include "questions/held_stream.h"
#include "questions/questions.h"

namespace gpurun::probe {
namespace {

// What a call needs before it, made while nothing runs.
struct Prepared {
  explicit Prepared(const Stage& stage) {
    const Driver& driver = stage.driver;
    must(CU(driver, cuMemAlloc_v2)(&memory, 1 << 16), "cuMemAlloc");
    must(CU(driver, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    must(CU(driver, cuEventCreate)(&event, 0), "cuEventCreate");
    must(CU(driver, cuModuleLoadData)(&module, kKernels), "cuModuleLoadData");
    must(CU(driver, cuMemHostAlloc)(&pinned, 1 << 16, 0), "cuMemHostAlloc");
    must(CU(driver, cuMemHostRegister_v2)(registered, kHostBytes, 0), "cuMemHostRegister");
  }
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  void* pinned = nullptr;
  // Never freed, because the driver may keep it.
  static constexpr std::size_t kHostBytes = std::size_t{4} << 20;
  void* pageable = std::aligned_alloc(4096, kHostBytes);
  void* registered = std::aligned_alloc(4096, kHostBytes);
};

struct Call {
  const char* name;
  CUresult (*make)(const Driver& driver, Prepared& p);
};

struct GraphCase {
  const char* name;
  bool out;  // Out of device memory.
  bool pinned;
  std::size_t bytes;
  int launches;
};
constexpr std::size_t kMany = std::size_t{16} << 20;
constexpr GraphCase kGraphs[] = {
    {"cuGraphLaunch behind the kernel, of a copy to pageable memory", true, false, 4096, 1},
    {"cuGraphLaunch behind the kernel, of a copy from pageable memory", false, false, 4096, 1},
    {"cuGraphLaunch behind the kernel, of 16 MiB from pageable memory", false, false, kMany, 1},
    {"cuGraphLaunch behind the kernel, twice, from pageable memory", false, false, 4096, 2},
    {"cuGraphLaunch behind the kernel, twice, of 16 MiB from it", false, false, kMany, 2},
    {"cuGraphLaunch behind the kernel, of a copy to pinned memory", true, true, 4096, 1},
    {"cuGraphLaunch behind the kernel, of a copy from pinned memory", false, true, 4096, 1},
    {"cuGraphLaunch behind the kernel, twice, of 16 MiB from pinned", false, true, kMany, 2},
};

// A graph with one copy, made while nothing runs.
class PreparedGraph {
 public:
  PreparedGraph(const Driver& driver, const GraphCase& of) : driver_(driver) {
    must(CU(driver, cuMemAlloc_v2)(&memory_, of.bytes), "cuMemAlloc");
    if (of.pinned) {
      must(CU(driver, cuMemHostAlloc)(&host_, of.bytes, 0), "cuMemHostAlloc");
    } else {
      pageable_.resize(of.bytes);
      host_ = pageable_.data();
    }
    std::memset(host_, 1, of.bytes);
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = of.out ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    copy.dstMemoryType = of.out ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = copy.dstDevice = memory_;
    copy.srcHost = copy.dstHost = host_;
    copy.WidthInBytes = of.bytes;
    copy.Height = copy.Depth = 1;
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUcontext context = nullptr;
    must(CU(driver, cuCtxGetCurrent)(&context), "cuCtxGetCurrent");
    must(CU(driver, cuGraphCreate)(&graph, 0), "cuGraphCreate");
    must(CU(driver, cuGraphAddMemcpyNode)(&node, graph, nullptr, 0, &copy, context),
         "cuGraphAddMemcpyNode");
    must(CU(driver, cuGraphInstantiateWithFlags)(&exec, graph, 0), "cuGraphInstantiate");
  }
  bool change_host() {
    std::memset(host_, 2, 1);
    return true;
  }
  // Call when nothing runs. True when the copy in read the memory from before change_host(), which
  // was called while the copy could not run.
  bool has_read_before() const {
    char first = 0;
    must(CU(driver_, cuMemcpyDtoH_v2)(&first, memory_, 1), "cuMemcpyDtoH");
    return first == 1;
  }
  CUgraphExec exec = nullptr;

 private:
  const Driver& driver_;
  CUdeviceptr memory_ = 0;
  std::vector<char> pageable_;
  void* host_ = nullptr;
};

constexpr Call kCalls[] = {
    {"cuMemAlloc",
     [](const Driver& d, Prepared&) {
       CUdeviceptr made = 0;
       return CU(d, cuMemAlloc_v2)(&made, 4096);
     }},
    {"cuMemAlloc 64 MiB",
     [](const Driver& d, Prepared&) {
       CUdeviceptr made = 0;
       return CU(d, cuMemAlloc_v2)(&made, 64 << 20);
     }},
    {"cuMemFree", [](const Driver& d, Prepared& p) { return CU(d, cuMemFree_v2)(p.memory); }},
    {"cuMemHostAlloc",
     [](const Driver& d, Prepared&) {
       void* made = nullptr;
       return CU(d, cuMemHostAlloc)(&made, 4096, 0);
     }},
    {"cuMemFreeHost", [](const Driver& d, Prepared& p) { return CU(d, cuMemFreeHost)(p.pinned); }},
    {"cuMemHostRegister 4 MiB",
     [](const Driver& d, Prepared& p) {
       return CU(d, cuMemHostRegister_v2)(p.pageable, Prepared::kHostBytes, 0);
     }},
    {"cuMemHostUnregister 4 MiB",
     [](const Driver& d, Prepared& p) { return CU(d, cuMemHostUnregister)(p.registered); }},
    {"cuMemcpyHtoD 16 B pageable",
     [](const Driver& d, Prepared& p) {
       char bytes[16] = {};
       return CU(d, cuMemcpyHtoD_v2)(p.memory, bytes, sizeof bytes);
     }},
    {"cuMemcpyHtoD 16 B pinned",
     [](const Driver& d, Prepared& p) { return CU(d, cuMemcpyHtoD_v2)(p.memory, p.pinned, 16); }},
    {"cuMemcpyDtoH 16 B",
     [](const Driver& d, Prepared& p) {
       char bytes[16] = {};
       return CU(d, cuMemcpyDtoH_v2)(bytes, p.memory, sizeof bytes);
     }},
    {"cuMemcpyDtoD",
     [](const Driver& d, Prepared& p) {
       return CU(d, cuMemcpyDtoD_v2)(p.memory, p.memory + 4096, 4096);
     }},
    {"cuMemsetD8",
     [](const Driver& d, Prepared& p) { return CU(d, cuMemsetD8_v2)(p.memory, 0, 4096); }},
    {"cuStreamCreate",
     [](const Driver& d, Prepared&) {
       CUstream made = nullptr;
       return CU(d, cuStreamCreate)(&made, CU_STREAM_NON_BLOCKING);
     }},
    {"cuStreamDestroy of an idle stream",
     [](const Driver& d, Prepared& p) { return CU(d, cuStreamDestroy_v2)(p.stream); }},
    {"cuEventDestroy",
     [](const Driver& d, Prepared& p) { return CU(d, cuEventDestroy_v2)(p.event); }},
    {"cuModuleLoadData",
     [](const Driver& d, Prepared&) {
       CUmodule made = nullptr;
       return CU(d, cuModuleLoadData)(&made, kKernels);
     }},
    {"cuModuleUnload",
     [](const Driver& d, Prepared& p) { return CU(d, cuModuleUnload)(p.module); }},
    {"cuModuleGetFunction",
     [](const Driver& d, Prepared& p) {
       CUfunction made = nullptr;
       return CU(d, cuModuleGetFunction)(&made, p.module, "empty");
     }},
    {"cuMemAllocAsync",
     [](const Driver& d, Prepared& p) {
       CUdeviceptr made = 0;
       return CU(d, cuMemAllocAsync)(&made, 4096, p.stream);
     }},
    {"cuMemAddressReserve",
     [](const Driver& d, Prepared&) {
       CUdeviceptr made = 0;
       return CU(d, cuMemAddressReserve)(&made, 2 << 20, 0, 0, 0);
     }},
    {"cuCtxSetLimit stack",
     [](const Driver& d, Prepared&) { return CU(d, cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 4096); }},
    {"cuStreamSynchronize of an idle stream",
     [](const Driver& d, Prepared& p) { return CU(d, cuStreamSynchronize)(p.stream); }},
    {"cuMemGetInfo",
     [](const Driver& d, Prepared&) {
       std::size_t free = 0;
       std::size_t total = 0;
       return CU(d, cuMemGetInfo_v2)(&free, &total);
     }},
};

}  // namespace

void ask_blocking_calls(const std::string& libcuda, Answer* answer) {
  const Driver driver(libcuda);
  Stage stage(driver, Level::kWork);
  // Tests whether `make` returns while a kernel runs on the stage's stream. Then calls `after_it`.
  const auto ask = [&](const std::function<CUresult()>& make,
                       const std::function<void()>& after_it) {
    must(CU(driver, cuCtxSynchronize)(), "cuCtxSynchronize");
    HeldStream held(stage, stage.stream);
    CUresult result = CUDA_ERROR_UNKNOWN;
    double took = 0;
    const bool in_time = returns_within(
        stage, 400,
        [&] {
          const auto start = std::chrono::steady_clock::now();
          result = make();
          took = seconds_since(start);
        },
        [&held] { held.release(); });
    if (in_time) {
      after_it();
      held.release();
    }
    must(CU(driver, cuCtxSynchronize)(), "cuCtxSynchronize");
    return std::vector<std::pair<std::string, Json>>{
        {"waits_for_the_kernel", Json::boolean(!in_time)},
        {"us", in_time ? Json::number(took * 1e6) : Json::null()},
        {"result", Json::result(result)}};
  };
  for (const Call& call : kCalls) {
    Prepared prepared(stage);
    answer->fact(call.name, Json::object(ask([&] { return call.make(driver, prepared); }, [] {})));
  }
  for (const GraphCase& each : kGraphs) {
    PreparedGraph prepared(driver, each);
    CUresult launched = CUDA_ERROR_UNKNOWN;
    bool changed = false;
    auto facts = ask(
        [&] {
          launched = CUDA_SUCCESS;
          for (int i = 0; i < each.launches && launched == CUDA_SUCCESS; ++i) {
            launched = CU(driver, cuGraphLaunch)(prepared.exec, stage.stream);
          }
          return launched;
        },
        [&] { changed = prepared.change_host(); });
    if (!each.out) {
      // Unknown when the launch waited.
      const bool known = changed && launched == CUDA_SUCCESS;
      facts.emplace_back("reads_when_launched",
                         known ? Json::boolean(prepared.has_read_before()) : Json::null());
    }
    answer->fact(each.name, Json::object(facts));
  }
}

}  // namespace gpurun::probe
