// hostile_client: a CUDA program that makes its driver do one of tests/hostile/malicious_actions.h,
// and prints the outcome. Usage: hostile_client ACTION ARGUMENT. When the call fails it prints that
// and waits for a line. Exit status: the result of the call.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver_abi/cuda_abi.h"
#include "tests/hostile/malicious_actions.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  // Not one of the enumerators. `volatile` hides the value from the compiler.
  volatile int argument = gpurun::hostile::kArgument;
  CUcontext context = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS) {
    return 3;
  }
  int limit = gpurun::hostile::kFirstAction;
  for (const char* name : gpurun::hostile::kActions) {
    if (std::strcmp(name, argv[1]) == 0) break;
    ++limit;
  }
  const auto about = static_cast<CUlimit>(argument);
  if (cuCtxSetLimit(about, std::strtoul(argv[2], nullptr, 10)) != CUDA_SUCCESS) return 4;
  std::size_t outcome = 0;
  const CUresult result = cuCtxGetLimit(&outcome, static_cast<CUlimit>(limit));
  if (result == CUDA_SUCCESS) {
    std::printf("%zu\n", outcome);
  } else {
    std::puts("failed");
    std::fflush(stdout);
    std::getchar();  // Until the test has read the reason.
  }
  return result;
}
