// Recording lines: reads the format of tests/drivers/null/record.h.
#include "tests/parity/custom/recording.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "tests/parity/custom/world.h"

namespace gpurun::parity {
namespace {

// "[0807...]": eight bytes in little-endian order.
std::uint64_t little_endian(const char* text) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < 8 && *text != ']' && *text != '\0'; ++i, text += 2) {
    const char digits[] = {text[0], text[1], '\0'};
    value |= std::strtoull(digits, nullptr, 16) << 8 * i;
  }
  return value;
}

// Calls on objects without a context, for which the driver ignores the current context.
bool is_of_no_context(const std::string& name) {
  static const char* const kNames[] = {"cuCtxCreate_v2",
                                       "cuCtxCreate_v3",
                                       "cuDevicePrimaryCtxRelease_v2",
                                       "cuDevicePrimaryCtxRetain",
                                       "cuDevicePrimaryCtxSetFlags_v2",
                                       "cuLibraryGetKernel",
                                       "cuLibraryLoadData",
                                       "cuLibraryUnload",
                                       "cuMemCreate",
                                       "cuMemPoolGetAttribute",
                                       "cuMemPoolSetAttribute",
                                       "cuMemRelease"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace

std::string name_of(const std::string& line) { return line.substr(0, line.find('(')); }

std::string inputs_of_line(const std::string& line) {
  std::string text = line.substr(0, line.rfind(") = ") + 1);
  if (is_of_no_context(name_of(line))) text.erase(text.rfind("context="));
  return text;
}

std::uint64_t value_in(const std::string& line, const std::string& name) {
  for (std::size_t at = line.find(name + "="); at != std::string::npos;
       at = line.find(name + "=", at + 1)) {
    const char* text = line.c_str() + at + name.size() + 1;
    if (*text == '{' && text[1] != '}') ++text;
    if (*text == '[') return little_endian(text + 1);
    if (text[0] == '0' && text[1] == 'x') return std::strtoull(text, nullptr, 16);
  }
  return 0;
}

std::string line_of(const Seen& seen, const std::string& function) {
  const auto found = std::find_if(seen.lines.rbegin(), seen.lines.rend(),
                                  [&](const auto& line) { return name_of(line) == function; });
  return found == seen.lines.rend() ? "" : *found;
}

bool is_housekeeping(const std::string& line) {
  static const char* const kNames[] = {
      "cuCtxGetDevice",
      "cuCtxPopCurrent_v2",
      "cuCtxPushCurrent_v2",
      "cuCtxSetCurrent",
      "cuEventQuery",
      "cuFuncGetAttribute",
      "cuFuncGetName",
      "cuFuncGetParamInfo",
      "cuKernelGetAttribute",
      "cuKernelGetName",
      "cuKernelGetParamInfo",
      "cuLibraryGetKernelCount",
      "cuLibraryEnumerateKernels",
      "cuMemHostAlloc",
      "cuMemHostRegister_v2",
      "cuMemHostUnregister",
      "cuModuleEnumerateFunctions",
      "cuStreamGetCtx",
      "cuStreamGetFlags",
      "cuStreamIsCapturing",
      "cuStreamQuery",
      "cuModuleGetFunctionCount",
      "cuThreadExchangeStreamCaptureMode",
  };
  const std::string name = name_of(line);
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

std::vector<std::string> without_looks(std::vector<std::string> lines) {
  const auto begins = [](const std::string& line, const std::string& next) {
    return name_of(line) == "cuStreamIsCapturing" && name_of(next) == "cuStreamQuery" &&
           value_in(line, "hStream") == value_in(next, "hStream");
  };
  for (std::size_t at = 0; at + 1 < lines.size();) {
    const auto look = lines.begin() + static_cast<std::ptrdiff_t>(at);
    if (begins(*look, *std::next(look))) {
      lines.erase(look, look + 2);
    } else {
      ++at;
    }
  }
  return lines;
}

bool is_on_an_own_event(const std::string& line) {
  const std::string name = name_of(line);
  // The worker's own events have these flags (server/worker). The trials draw none of them.
  if (name == "cuEventCreate") {
    const std::uint64_t flags = value_in(line, "Flags");
    return flags == 2 || flags == 3;
  }
  if (name.rfind("cuEvent", 0) != 0 && name != "cuStreamWaitEvent") return false;
  const std::uint64_t event = value_in(line, "hEvent");
  return event != 0 && !World::get().knows_event(event);
}

}  // namespace gpurun::parity
