// Question: which calls does each mode of stream capture prohibit, on the capturing thread and on
// another one, and does the capture survive? The client enforces these rules itself.
#include <thread>

#include "questions/questions.h"

namespace gpurun::probe {
namespace {

struct Mode {
  const char* name;
  CUstreamCaptureMode mode;
};
constexpr Mode kModes[] = {{"global", CU_STREAM_CAPTURE_MODE_GLOBAL},
                           {"thread_local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
                           {"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED}};

struct Attempt {
  const char* name;
  CUresult (*make)(const Stage& stage, CUstream other);
};

constexpr Attempt kAttempts[] = {
    {"cuMemAlloc",
     [](const Stage& s, CUstream) {
       CUdeviceptr made = 0;
       return CU(s.driver, cuMemAlloc_v2)(&made, 4096);
     }},
    {"cuMemcpyHtoD",
     [](const Stage& s, CUstream) {
       char bytes[4] = {};
       return CU(s.driver, cuMemcpyHtoD_v2)(s.memory, bytes, 4);
     }},
    {"cuMemcpyHtoDAsync on another stream",
     [](const Stage& s, CUstream other) {
       static char bytes[4];
       return CU(s.driver, cuMemcpyHtoDAsync_v2)(s.memory, bytes, 4, other);
     }},
    {"cuMemsetD8 (legacy stream)",
     [](const Stage& s, CUstream) { return CU(s.driver, cuMemsetD8_v2)(s.memory, 0, 4); }},
    {"cuEventQuery of an event outside",
     [](const Stage& s, CUstream) { return CU(s.driver, cuEventQuery)(s.event); }},
    {"cuStreamSynchronize of another stream",
     [](const Stage& s, CUstream other) { return CU(s.driver, cuStreamSynchronize)(other); }},
    {"cuStreamSynchronize of the captured stream",
     [](const Stage& s, CUstream) { return CU(s.driver, cuStreamSynchronize)(s.stream); }},
    {"cuStreamQuery of the captured stream",
     [](const Stage& s, CUstream) { return CU(s.driver, cuStreamQuery)(s.stream); }},
    {"cuCtxSynchronize", [](const Stage& s, CUstream) { return CU(s.driver, cuCtxSynchronize)(); }},
    {"cuStreamCreate",
     [](const Stage& s, CUstream) {
       CUstream made = nullptr;
       return CU(s.driver, cuStreamCreate)(&made, CU_STREAM_NON_BLOCKING);
     }},
    {"cuMemGetInfo",
     [](const Stage& s, CUstream) {
       std::size_t free = 0;
       std::size_t total = 0;
       return CU(s.driver, cuMemGetInfo_v2)(&free, &total);
     }},
    {"cuLaunchHostFunc on another stream",
     [](const Stage& s, CUstream other) {
       return CU(s.driver, cuLaunchHostFunc)(
           other, [](void*) {}, nullptr);
     }},
};

// One attempt during one capture. Ends the capture and returns the results.
Json attempt(const Stage& stage, CUstream other, const Mode& mode, const Attempt& what,
             bool from_another_thread) {
  const Driver& driver = stage.driver;
  const CUresult begun = CU(driver, cuStreamBeginCapture_v2)(stage.stream, mode.mode);
  if (begun != CUDA_SUCCESS) return Json::object({{"begin", Json::result(begun)}});
  CUresult result = CUDA_ERROR_UNKNOWN;
  if (from_another_thread) {
    std::thread([&] {
      CU(driver, cuCtxSetCurrent)(stage.context);
      result = what.make(stage, other);
    }).join();
  } else {
    result = what.make(stage, other);
  }
  CUgraph graph = nullptr;
  const CUresult ended = CU(driver, cuStreamEndCapture)(stage.stream, &graph);
  if (graph != nullptr) CU(driver, cuGraphDestroy)(graph);
  return Json::object({{"result", Json::result(result)}, {"end_capture", Json::result(ended)}});
}

}  // namespace

void ask_capture_modes(const std::string& libcuda, Answer* answer) {
  const Driver driver(libcuda);
  Stage stage(driver, Level::kContext);
  CUstream other = nullptr;
  must(CU(driver, cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  must(CU(driver, cuEventRecord)(stage.event, other), "cuEventRecord");
  must(CU(driver, cuStreamSynchronize)(other), "cuStreamSynchronize");
  for (const Mode& mode : kModes) {
    for (const bool another : {false, true}) {
      std::vector<std::pair<std::string, Json>> results;
      for (const Attempt& what : kAttempts)
        results.emplace_back(what.name, attempt(stage, other, mode, what, another));
      answer->fact(std::string(mode.name) + (another ? ".another_thread" : ".same_thread"),
                   Json::object(results));
    }
    // End the capture on another thread than the one that began it.
    CUresult ended = CUDA_ERROR_UNKNOWN;
    CUgraph graph = nullptr;
    if (CU(driver, cuStreamBeginCapture_v2)(stage.stream, mode.mode) != CUDA_SUCCESS) continue;
    std::thread([&] {
      CU(driver, cuCtxSetCurrent)(stage.context);
      ended = CU(driver, cuStreamEndCapture)(stage.stream, &graph);
    }).join();
    if (ended != CUDA_SUCCESS) CU(driver, cuStreamEndCapture)(stage.stream, &graph);
    answer->fact(std::string(mode.name) + ".end_on_another_thread", Json::result(ended));
  }
}

}  // namespace gpurun::probe
