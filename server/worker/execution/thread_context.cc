// Thread context: remembers what each thread has set in the driver, so that it sets only changes.
#include "server/worker/execution/thread_context.h"

#include <atomic>

#include "server/worker/execution/call.h"

namespace gpurun::server {
namespace {

constexpr int kCaptureModeRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED (cuda.h).
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED to CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD (cuda.h).
constexpr int kFirstCaptureError = 900;
constexpr int kLastCaptureError = 908;

struct ThreadState {
  std::uint64_t owner = 0;  // 0: none yet.
  std::uint64_t generation = 0;
  bool context_known = false;
  void* context = nullptr;
};
thread_local ThreadState state;
std::atomic<std::uint64_t> current_generation{0};
std::atomic<bool> captures_begun{false};

}  // namespace

int enter_context(const DriverFunctions& driver, std::uint64_t owner, void* context) {
  if (state.owner != owner) {
    int mode = kCaptureModeRelaxed;
    const int result = driver.cuThreadExchangeStreamCaptureMode(&mode);
    // A driver without captures has no mode to set.
    if (result != 0 && result != kErrorNotSupported) return result;
    state = ThreadState{};
    state.owner = owner;
  }
  const std::uint64_t generation = current_generation.load(std::memory_order_acquire);
  const bool known = state.context_known && state.generation == generation;
  if (known && state.context == context) return 0;
  if (const int result = driver.cuCtxSetCurrent(context); result != 0) return result;
  state.context_known = true;
  state.generation = generation;
  state.context = context;
  return 0;
}

void forget_thread_context() noexcept { state.context_known = false; }

void forget_all_thread_contexts() noexcept {
  current_generation.fetch_add(1, std::memory_order_acq_rel);
}

void note_capture() noexcept { captures_begun.store(true, std::memory_order_release); }

bool is_capturing(const DriverFunctions& driver, void* stream) {
  if (!captures_begun.load(std::memory_order_acquire)) return false;
  int status = 0;
  const int result = driver.cuStreamIsCapturing(stream, &status);
  if (result >= kFirstCaptureError && result <= kLastCaptureError) return true;
  return result == 0 && status != 0;  // The call in question reports any other error.
}

}  // namespace gpurun::server
