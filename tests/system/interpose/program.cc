// Program under gpurun: its view of memory, contexts, streams, errors and itself.
//
// usage: interpose_program CASE
// Prints PASSED.
#include "tests/system/interpose/program.h"

#include <cstring>

CUcontext start() {
  MUST(cuInit(0));
  CUcontext context = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  return context;
}

int main(int argc, char** argv) {
  struct Case {
    const char* name;
    void (*run)();
  };
  constexpr Case kCases[] = {
      {"copies", copies},   {"blocks", blocks},           {"pointers", pointers},
      {"errors", errors},   {"contexts", contexts},       {"reset", reset},
      {"streams", streams}, {"capture", capture},         {"exports", exports},
      {"pools", pools},     {"pool_places", pool_places}, {"fork", fork_rule},
      {"threads", threads},
  };
  for (const Case& each : kCases) {
    if (argc != 2 || std::strcmp(argv[1], each.name) != 0) continue;
    each.run();
    std::printf("PASSED\n");
    return 0;
  }
  return 2;
}
