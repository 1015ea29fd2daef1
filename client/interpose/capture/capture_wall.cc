// Capture wall: unsafe calls, and calls that use stream 0 without a parameter for it.
#include "client/interpose/capture/capture_wall.h"

#include <algorithm>
#include <cstring>

#include "client/interpose/capture/capture.h"
#include "client/interpose/capture/stream_argument.h"
#include "driver_abi/semantics/capture_rules.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::CaptureFamily;
using driver_abi::CaptureRule;

// Whether the call uses stream 0 because it has no stream parameter. (cuLaunchKernelEx has its
// stream in its configuration.)
bool uses_stream_0(const driver_abi::Row& row, const CaptureRule& rule) {
  if (std::strcmp(row.base, "cuLaunchKernelEx") == 0) return false;
  const bool of_stream =
      rule.family == CaptureFamily::kWork || rule.family == CaptureFamily::kWaits;
  return of_stream && row.stream_parameter == driver_abi::kNoParameter &&
         std::none_of(row.parameters.begin(), row.parameters.end(), [](const auto& parameter) {
           return parameter.handle == HandleKind::kStream;
         });
}

}  // namespace

int refuse_while_capturing(const driver_abi::Row& row) {
  const CaptureRule& rule = driver_abi::capture_rule(driver_abi::capture_family(row.base));
  if (rule.family == CaptureFamily::kOpen) return 0;
  EntryContext here;
  if (here.enter() != 0) return 0;  // The call itself returns the error.
  if (rule.unsafe && !rule.by_argument) {
    if (const int result = refuse_unsafe_call(here); result != 0) return result;
  }
  Handle stream = 0;
  if (!uses_stream_0(row, rule) || here.enter_context() != 0) return 0;
  return resolve_stream(here, nullptr, &stream);
}

}  // namespace gpurun::client::interpose
