// check_calls(): makes many wrong calls in one process.
//
// A stage is made anew after a call that succeeded, after one that needed other calls before it,
// and after one that changed what it must not change. A reset of the primary context removes what
// the old one had.
#include "check_calls.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "answer.h"
#include "child.h"
#include "wrong_call.h"

namespace gpurun::probe {
namespace {

constexpr int kSecondsPerLevel = 240;
constexpr std::size_t kWatched = 65536 + 1024;  // Right structures copy from and to this range.
constexpr unsigned char kFilled = 0x5a;

class Checker {
 public:
  Checker(const Driver& driver, Level level, bool at_once)
      : driver_(driver), level_(level), at_once_(at_once) {}

  void check(const WrongCall& call) {
    try {
      if (stage_ == nullptr) make_stage();
      const CUresult code = (stage_.get()->*call.make)();
      const bool lacking =
          *call.lacking != '\0' && (code == CUDA_ERROR_NOT_SUPPORTED || comes_late(call, code));
      const bool right = call.expected == kOpen || code == call.expected || lacking;
      const bool touched = code == CUDA_SUCCESS || call.prepared;
      const char* changed = touched || level_ == Level::kLost ? "" : what_changed();
      // One side may have what the other lacks, so the code cannot be compared.
      if (*call.lacking != '\0' && right)
        say(call, "as expected, or lacking");
      else if (right)
        say(call, result_name(code));
      else
        wrong(call, std::string(result_name(code)) + ", not " +
                        result_name(static_cast<CUresult>(call.expected)));
      if (*changed != '\0') wrong(call, std::string("it has changed ") + changed);
      if ((touched || *changed != '\0') && level_ != Level::kLost) drop_stage();
    } catch (const MissingFunction& missing) {
      wrong(call, "the driver has no " + missing.name);
    } catch (const CallFailed& failed) {
      wrong(call, "before it " + failed.call + " gave " + result_name(failed.result));
      if (level_ != Level::kLost) drop_stage();
    }
    std::fflush(stdout);
  }

  bool all_right() const { return all_right_; }

 private:
  bool has_context() const { return level_ == Level::kContext || level_ == Level::kWork; }

  void make_stage() {
    stage_ = std::make_unique<WrongStage>(driver_, level_);
    if (!has_context()) return;
    must(CU(driver_, cuMemsetD8_v2)(stage_->memory, kFilled, kWatched), "cuMemsetD8");
    must(CU(driver_, cuCtxSynchronize)(), "cuCtxSynchronize");
  }
  // A late failure is returned here at the latest.
  void drop_stage() {
    if (level_ == Level::kNothing) return stage_.reset();
    CUcontext gone = nullptr;
    while (CU(driver_, cuCtxPopCurrent_v2)(&gone) == CUDA_SUCCESS) continue;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)CU(driver_, cuThreadExchangeStreamCaptureMode)(&mode);
    if (stage_ != nullptr) stage_->end_other_context();
    if (stage_ != nullptr && stage_->context != nullptr)
      (void)CU(driver_, cuCtxSetCurrent)(stage_->context);
    (void)CU(driver_, cuCtxSynchronize)();
    const CUresult reset = CU(driver_, cuDevicePrimaryCtxReset_v2)(0);
    if (reset != CUDA_SUCCESS) {
      std::printf("the end of its context: %s (WRONG)\n", result_name(reset));
      all_right_ = false;
    }
    (void)CU(driver_, cuCtxSetCurrent)(nullptr);
    mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    (void)CU(driver_, cuThreadExchangeStreamCaptureMode)(&mode);
    while (CU(driver_, cuDevicePrimaryCtxRelease_v2)(0) == CUDA_SUCCESS) continue;
    stage_.reset();  // Copies into its memory are complete now.
  }

  // True when the call may be answered before it is carried out, and the next call returned its
  // failure.
  bool comes_late(const WrongCall& call, CUresult code) {
    if (code != CUDA_SUCCESS) return false;
    if (std::strncmp(call.lacking, "later: ", 7) == 0) return true;
    return !at_once_ && std::strncmp(call.lacking, "late: ", 6) == 0 &&
           CU(driver_, cuCtxSynchronize)() == call.expected;
  }

  // "" when the stage is unchanged.
  const char* what_changed() {
    if (!has_context()) return "";
    CUcontext current = nullptr;
    must(CU(driver_, cuCtxGetCurrent)(&current), "cuCtxGetCurrent");
    if (current != stage_->context) return "the current context";
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (CU(driver_, cuStreamIsCapturing)(stage_->stream, &status) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_NONE)
      return "the stream's capture";
    if (CU(driver_, cuStreamSynchronize)(stage_->stream) != CUDA_SUCCESS) return "the stream";
    if (CU(driver_, cuEventQuery)(stage_->event) != CUDA_SUCCESS) return "the event";
    static unsigned char bytes[kWatched], filled[kWatched];
    if (filled[0] == 0) std::memset(filled, kFilled, sizeof filled);
    if (CU(driver_, cuMemcpyDtoH_v2)(bytes, stage_->memory, sizeof bytes) != CUDA_SUCCESS)
      return "the memory";
    if (std::memcmp(bytes, filled, sizeof bytes) != 0) return "the memory's contents";
    if (CU(driver_, cuCtxSynchronize)() != CUDA_SUCCESS) return "the context";
    return "";
  }

  static void say(const WrongCall& call, const std::string& what) {
    std::printf("%s: %s: %s\n", call.function, call.how, what.c_str());
  }
  void wrong(const WrongCall& call, const std::string& what) {
    say(call, what + " (WRONG)");
    all_right_ = false;
  }

  const Driver& driver_;
  Level level_;
  bool at_once_;
  std::unique_ptr<WrongStage> stage_;
  bool all_right_ = true;
};

}  // namespace

int check_calls(const std::string& libcuda, const std::string& only, bool at_once) {
  bool all_right = true;
  std::size_t made = 0;
  for (const Level level :
       {Level::kNothing, Level::kInit, Level::kContext, Level::kWork, Level::kLost}) {
    std::vector<const WrongCall*> calls;
    for (const WrongCall& call : wrong_calls())
      if (call.level == level && (only.empty() || only == call.function)) calls.push_back(&call);
    if (calls.empty()) continue;
    made += calls.size();
    const ChildResult result = run_child(kSecondsPerLevel, [&](int) {
      const Driver driver(libcuda);
      Checker checker(driver, level, at_once);
      for (const WrongCall* call : calls) checker.check(*call);
      return checker.all_right() ? 0 : 1;
    });
    if (result.exit_code == 0 && failure_of(result).empty()) continue;
    all_right = false;
    if (result.exit_code != 1)
      std::printf("the process of these calls: %s (WRONG)\n", failure_of(result).c_str());
  }
  std::printf("%zu wrong calls: %s\n", made, all_right && made > 0 ? "PASSED" : "FAILED");
  return all_right && made > 0 ? 0 : 1;
}

}  // namespace gpurun::probe
