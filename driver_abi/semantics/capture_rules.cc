// Capture rules: the table of what captures forbid, and the family of each function.
#include "driver_abi/semantics/capture_rules.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace gpurun::driver_abi {
namespace {

constexpr std::uint16_t kUnsupported = 900;
constexpr std::uint16_t kInvalidated = 901;
constexpr std::uint16_t kImplicit = 906;
constexpr std::uint16_t kCapturedEvent = 907;

constexpr CaptureRefusal kNone = {};
// guide: a stream that captures can be neither waited for nor queried.
constexpr CaptureRefusal kOfStream = {kUnsupported, true};
// guide: the streams of an invalidated capture give errors until its end.
constexpr CaptureRefusal kOfInvalidated = {kInvalidated, false};
// guide: any use of the legacy stream is invalid while a blocking stream of the context captures.
constexpr CaptureRefusal kOfLegacy = {kImplicit, true};
// cuda.h, cuStreamIsCapturing: "The blocking stream capture is not invalidated".
constexpr CaptureRefusal kOfLegacyStatus = {kImplicit, false};
// guide: nor can a context be waited for, "when any associated stream is in capture mode".
constexpr CaptureRefusal kOfContext = {kUnsupported, true};
// cuda.h, CUDA_ERROR_CAPTURED_EVENT. guide: an invalid operation invalidates the graph.
constexpr CaptureRefusal kOfEvent = {kCapturedEvent, true};

// In the order of CaptureFamily.
constexpr CaptureRule kRules[] = {
    {CaptureFamily::kOpen, false, false, kNone, kNone, kNone, kNone, kNone},
    {CaptureFamily::kUnsafe, true, false, kNone, kNone, kNone, kNone, kNone},
    // cuda_runtime_api.h, cudaFree: for null "no operation is performed".
    {CaptureFamily::kFree, true, true, kNone, kNone, kNone, kNone, kNone},
    {CaptureFamily::kWork, false, false, kNone, kOfInvalidated, kOfLegacy, kNone, kNone},
    {CaptureFamily::kWaits, true, false, kOfStream, kOfInvalidated, kOfLegacy, kNone, kNone},
    {CaptureFamily::kLooks, false, false, kOfStream, kOfInvalidated, kOfLegacy, kNone, kNone},
    {CaptureFamily::kStatus, false, false, kNone, kNone, kOfLegacyStatus, kNone, kNone},
    {CaptureFamily::kContext, true, false, kNone, kNone, kNone, kOfContext, kNone},
    {CaptureFamily::kEvent, true, true, kNone, kNone, kNone, kNone, kOfEvent},
};

struct Member {
  std::string_view name;  // Row::base. A star at the end matches all names with that prefix.
  CaptureFamily family;
};

// The first match counts.
constexpr Member kMembers[] = {
    // cuda.h names cudaMalloc. It is documented nowhere that the other allocations, including
    // pinned memory, and the frees are of its kind. practice warns of pinned memory, and libraries
    // make these calls in relaxed mode.
    {"cuMemAlloc", CaptureFamily::kUnsafe},
    {"cuMemAllocPitch", CaptureFamily::kUnsafe},
    {"cuMemAllocManaged", CaptureFamily::kUnsafe},
    {"cuMemFree", CaptureFamily::kFree},
    {"cuMemAllocHost", CaptureFamily::kUnsafe},
    {"cuMemHostAlloc", CaptureFamily::kUnsafe},
    {"cuMemFreeHost", CaptureFamily::kUnsafe},
    {"cuMemHostRegister", CaptureFamily::kUnsafe},
    {"cuMemHostUnregister", CaptureFamily::kUnsafe},
    // Loads of modules and libraries are open: drivers of CUDA 12.3 and newer allow them in a
    // capture (NVIDIA Warp's manual, capture_begin), and Warp loads in the middle of one. That the
    // end of a module is unsafe is documented nowhere. Warp defers it to the end of the capture.
    {"cuModuleUnload", CaptureFamily::kUnsafe},

    // cuda.h: these calls necessarily conflict when the event was captured. practice: otherwise
    // they are unsafe ("no background thread queries").
    {"cuEventQuery", CaptureFamily::kEvent},
    {"cuEventSynchronize", CaptureFamily::kEvent},
    // Other streams may be waited for and queried. practice forbids it only for capturing ones.
    {"cuStreamQuery", CaptureFamily::kLooks},
    {"cuStreamSynchronize", CaptureFamily::kLooks},
    {"cuStreamAddCallback", CaptureFamily::kLooks},  // cuda.h there: no use in a capture.
    {"cuStreamIsCapturing", CaptureFamily::kStatus},
    {"cuStreamGetCaptureInfo", CaptureFamily::kStatus},
    {"cuStreamUpdateCaptureDependencies", CaptureFamily::kStatus},
    {"cuCtxSynchronize", CaptureFamily::kContext},

    // guide: synchronous calls enqueue in the legacy stream and wait. Copies between device memory
    // and fills do not wait (manual, "API synchronization behavior").
    {"cuMemcpyDtoD", CaptureFamily::kWork},
    {"cuMemcpyPeer", CaptureFamily::kWork},
    {"cuMemcpy3DPeer", CaptureFamily::kWork},
    {"cuMemcpy", CaptureFamily::kWaits},
    {"cuMemcpyHtoD", CaptureFamily::kWaits},
    {"cuMemcpyDtoH", CaptureFamily::kWaits},
    {"cuMemcpyHtoA", CaptureFamily::kWaits},
    {"cuMemcpyAtoH", CaptureFamily::kWaits},
    {"cuMemcpyDtoA", CaptureFamily::kWork},
    {"cuMemcpyAtoD", CaptureFamily::kWork},
    {"cuMemcpyAtoA", CaptureFamily::kWork},
    {"cuMemcpy2D", CaptureFamily::kWaits},
    {"cuMemcpy2DUnaligned", CaptureFamily::kWaits},
    {"cuMemcpy3D", CaptureFamily::kWaits},
    {"cuMemcpy*", CaptureFamily::kWork},
    {"cuMemset*", CaptureFamily::kWork},
    {"cuLaunch*", CaptureFamily::kWork},
    {"cuGraphLaunch", CaptureFamily::kWork},
    {"cuGraphUpload", CaptureFamily::kWork},
    {"cuEventRecord*", CaptureFamily::kWork},
    {"cuStreamWaitEvent", CaptureFamily::kWork},
    {"cuStreamWaitValue*", CaptureFamily::kWork},
    {"cuStreamWriteValue*", CaptureFamily::kWork},
    {"cuStreamBatchMemOp", CaptureFamily::kWork},
    {"cuMemAllocAsync", CaptureFamily::kWork},
    {"cuMemAllocFromPoolAsync", CaptureFamily::kWork},
    {"cuMemFreeAsync", CaptureFamily::kWork},
};

bool fits(std::string_view name, std::string_view base) {
  if (name.back() != '*') return name == base;
  name.remove_suffix(1);
  return base.substr(0, name.size()) == name;
}

constexpr unsigned kGlobal = 0;
constexpr unsigned kRelaxed = 2;

}  // namespace

const CaptureRule& capture_rule(CaptureFamily family) noexcept {
  return kRules[static_cast<std::size_t>(family)];
}

CaptureFamily capture_family(const char* base) noexcept {
  const auto* const found =
      std::find_if(std::begin(kMembers), std::end(kMembers),
                   [base](const Member& member) { return fits(member.name, base); });
  return found == std::end(kMembers) ? CaptureFamily::kOpen : found->family;
}

bool mode_prohibits(unsigned own, unsigned capture, bool begun_by_this_thread) noexcept {
  if (own == kRelaxed || capture == kRelaxed) return false;
  return begun_by_this_thread || (own == kGlobal && capture == kGlobal);
}

}  // namespace gpurun::driver_abi
