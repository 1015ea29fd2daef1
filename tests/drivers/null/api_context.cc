// Contexts, streams and events of the null device. Nothing is ever pending, except kernels that are
// configured to take time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <set>

#include "tests/drivers/null/api.h"
#include "tests/drivers/null/entry.h"

namespace gpurun::null_device::api {
namespace {

using driver_abi::HandleKind;

constexpr unsigned kStackDepthMax = 64;

struct Stack {
  CUcontext contexts[kStackDepthMax];
  unsigned depth;
};

thread_local Stack t_stack;
std::atomic<CUcontext> g_primary{nullptr};

CUcontext current() { return t_stack.depth == 0 ? nullptr : t_stack.contexts[t_stack.depth - 1]; }

CUresult push(CUcontext context) {
  if (t_stack.depth == kStackDepthMax) return CUDA_ERROR_OUT_OF_MEMORY;
  t_stack.contexts[t_stack.depth++] = context;
  return CUDA_SUCCESS;
}

CUresult create_context(CUcontext* pctx) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = mint_as<CUcontext>(HandleKind::kContext);
  return push(*pctx);
}

// GPURUN_EMULATED=kernel-us=N: a kernel keeps the whole device busy for that time. Without it
// kernels take no time.
const std::int64_t g_kernel_ns = [] {
  const char* given = std::getenv("GPURUN_EMULATED");
  long long us = 0;
  return given != nullptr && std::sscanf(given, "kernel-us=%lld", &us) == 1 ? us * 1000 : 0LL;
}();
std::atomic<std::int64_t> g_busy_until{0};

std::int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void launched() {
  if (g_kernel_ns == 0) return;
  std::int64_t until = g_busy_until.load();
  while (!g_busy_until.compare_exchange_weak(until, std::max(until, now()) + g_kernel_ns)) continue;
}

bool busy() { return g_kernel_ns != 0 && now() < g_busy_until.load(); }

// Spins, as NVIDIA's driver does by default.
CUresult wait() {
  while (busy()) continue;
  return CUDA_SUCCESS;
}

// The streams that capture. The low bits of a stream's handle are its flags.
struct Captures {
  std::mutex mutex;
  std::set<CUstream> streams;
};

Captures& captures() {
  alignas(Captures) static unsigned char storage[sizeof(Captures)];
  static auto* const all = new (storage) Captures;
  return *all;
}

CUresult begin_capture(CUstream stream) {
  Captures& all = captures();
  const std::lock_guard lock(all.mutex);
  return all.streams.insert(stream).second ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

CUstreamCaptureStatus capture_status(CUstream stream) {
  Captures& all = captures();
  const std::lock_guard lock(all.mutex);
  return all.streams.count(stream) != 0 ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                        : CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int, CUdevice) { return create_context(pctx); }
CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam*, int, unsigned int, CUdevice) {
  return create_context(pctx);
}
CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams*, unsigned int, CUdevice) {
  return create_context(pctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  if (ctx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (ctx == current()) --t_stack.depth;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (dev != 0) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext primary = g_primary.load();
  if (primary == nullptr) {
    const auto mine = mint_as<CUcontext>(HandleKind::kContext);
    if (g_primary.compare_exchange_strong(primary, mine)) primary = mine;
  }
  *pctx = primary;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = current();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  if (t_stack.depth != 0) --t_stack.depth;
  return ctx == nullptr ? CUDA_SUCCESS : push(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  return ctx == nullptr ? CUDA_ERROR_INVALID_CONTEXT : push(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  if (t_stack.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = current();
  --t_stack.depth;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  if (phStream == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phStream = reinterpret_cast<CUstream>(mint(HandleKind::kStream) | (Flags & 1));
  return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int) {
  return api::cuStreamCreate(phStream, flags);
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto value = reinterpret_cast<std::uint64_t>(hStream);
  *flags = kind_of(value) == HandleKind::kStream ? static_cast<unsigned>(value & 1) : 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream, CUcontext* pctx) { return api::cuCtxGetCurrent(pctx); }

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  if (captureStatus == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *captureStatus = capture_status(hStream);
  return CUDA_SUCCESS;
}

// A capture's id is its stream's number.
CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                cuuint64_t* id_out) {
  if (captureStatus_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *captureStatus_out = capture_status(hStream);
  if (id_out != nullptr) *id_out = reinterpret_cast<std::uint64_t>(hStream);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream hStream) { return begin_capture(hStream); }
CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode) {
  return begin_capture(hStream);
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  Captures& all = captures();
  const std::lock_guard lock(all.mutex);
  if (all.streams.erase(hStream) == 0) return CUDA_ERROR_ILLEGAL_STATE;
  if (phGraph != nullptr) *phGraph = mint_as<CUgraph>(HandleKind::kGraph);
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  thread_local CUstreamCaptureMode t_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUstreamCaptureMode before = t_mode;
  t_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}

// A real stream runs the function in its turn. Here nothing is ever ahead of it, so it runs at
// once.
CUresult cuLaunchHostFunc(CUstream, CUhostFn fn, void* userData) {
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  fn(userData);
  return CUDA_SUCCESS;
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int) {
  if (callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  callback(hStream, CUDA_SUCCESS, userData);
  return CUDA_SUCCESS;
}

// These calls ignore their arguments, because the benches measure the path to here.
CUresult cuEventRecord(CUevent, CUstream) { return CUDA_SUCCESS; }
CUresult cuEventQuery(CUevent) { return busy() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent) { return wait(); }
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned int) { return CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream) { return wait(); }
CUresult cuStreamQuery(CUstream) { return busy() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }
CUresult cuCtxSynchronize() { return wait(); }

CUresult cuLaunchKernel(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                        unsigned int, unsigned int, unsigned int, CUstream, void**, void**) {
  launched();
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction, void**, void**) {
  launched();
  return CUDA_SUCCESS;
}
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned int, unsigned int, unsigned int,
                                   unsigned int, unsigned int, unsigned int, unsigned int, CUstream,
                                   void**) {
  return CUDA_SUCCESS;
}

}  // namespace gpurun::null_device::api
