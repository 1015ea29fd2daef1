// Lost: queries without cuInit when the server or the worker has gone.
#include <unistd.h>

#include "tests/system/process/cases.h"

namespace process_cases {

// Prints that it is ready, waits for a line, and prints the results of the version query and
// cuInit. Word: "attached" queries the version first, so that a session exists that can be lost.
void lost() {
  int version = 0;
  if (word(0) == "attached") MUST(cuDriverGetVersion(&version));
  say("ready\n");
  char line[8];
  EXPECT(read(STDIN_FILENO, line, sizeof line) > 0);
  version = 0;
  const CUresult asked = cuDriverGetVersion(&version);
  say("version " + std::to_string(asked) + " " + std::to_string(version) + "\n");
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  const CUresult found = cuGetProcAddress_v2("cuInit", &function, 12000, 0, &status);
  CUcontext context = nullptr;
  int result = cuInit(0);
  // The first call that needs the server detects the loss of the session.
  if (result == 0) result = cuDevicePrimaryCtxRetain(&context, 0);
  if (result == 0) result = cuCtxSetCurrent(context);
  if (result == 0) result = try_to_compute(1);
  say("function " + std::to_string(found) + ", then " + std::to_string(result) + "\n");
}

}  // namespace process_cases
