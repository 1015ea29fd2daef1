// Visible devices: the devices that a program sees with CUDA_VISIBLE_DEVICES and its own changes to
// it.
#include <cstdlib>

#include "tests/system/process/cases.h"

namespace process_cases {
namespace {

void tell_devices() {
  const CUresult initialized = cuInit(0);
  int count = -1;
  const CUresult counted = cuDeviceGetCount(&count);
  std::string line = "init " + std::to_string(initialized) + ", count " + std::to_string(counted) +
                     " " + std::to_string(count) + ":";
  for (int device = 0; device < count; ++device) {
    char bus[32] = "";
    MUST(cuDeviceGetPCIBusId(bus, sizeof bus, device));
    line += std::string(" ") + bus;
    CUcontext context = nullptr;
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    compute(9);
  }
  say(line + "\n");
}

}  // namespace

// Words: the value that the program itself sets, if any. "ask": it has queried the version before.
void visible() {
  if (word(1) == "ask") {
    int version = 0;
    MUST(cuDriverGetVersion(&version));
  }
  if (word(0) != "") setenv("CUDA_VISIBLE_DEVICES", word(0) == "empty" ? "" : word(0).c_str(), 1);
  tell_devices();
  tell_devices();  // A second cuInit gives the same result.
}

}  // namespace process_cases
