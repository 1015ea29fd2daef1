// Process: the results of cuGetProcAddress and cuGetExportTable for a library, of calls in a forked
// child, and of short-lived threads.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tests/system/interpose/program.h"

void exports() {
  // CUDA's runtime queries the version before anything else.
  int version = 0;
  MUST(cuDriverGetVersion(&version));
  EXPECT(version >= 12000 && version <= CUDA_VERSION);
  MUST(cuInit(0));
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  MUST(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &status));
  EXPECT(function == reinterpret_cast<void*>(&cuMemAlloc_v2) && status == 0);
  MUST(cuGetProcAddress_v2("cuMemcpy", &function, 12000, 2, &status));
  EXPECT(function == reinterpret_cast<void*>(&cuMemcpy_ptds));
  MUST_BE(CUDA_ERROR_NOT_FOUND, cuGetProcAddress_v2("cuNothing", &function, 12000, 0, &status));
  EXPECT(function == nullptr);
  // The primary context has its handle before it is first retained: slot 2 of the table CUDART.
  const unsigned char kCudart[] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                   0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
  CUuuid id;
  std::memcpy(&id, kCudart, sizeof id);
  const void* table = nullptr;
  MUST(cuGetExportTable(&table, &id));
  using Primary = CUresult (*)(CUcontext*, CUdevice);
  const auto primary = reinterpret_cast<Primary>(static_cast<void* const*>(table)[2]);
  CUcontext before = nullptr, retained = nullptr;
  MUST(primary(&before, 0));
  unsigned flags = 0;
  int active = 1;
  MUST(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT(active == 0);
  MUST(cuDevicePrimaryCtxRetain(&retained, 0));
  EXPECT(before == retained);
  const char* name = nullptr;
  MUST(cuGetErrorName(CUDA_ERROR_INVALID_HANDLE, &name));
  EXPECT(std::strcmp(name, "CUDA_ERROR_INVALID_HANDLE") == 0);
}

void fork_rule() {
  start();
  CUdeviceptr memory = 0;
  MUST(cuMemAlloc_v2(&memory, 16));
  const pid_t child = fork();
  if (child == 0) {
    CUdeviceptr other = 0;
    _exit(cuMemAlloc_v2(&other, 16) == CUDA_ERROR_NOT_INITIALIZED &&
                  cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED
              ? 0
              : 1);
  }
  int ended = 1;
  EXPECT(waitpid(child, &ended, 0) == child && ended == 0);
  // The child's end does not disturb the parent's session.
  MUST(cuMemsetD8_v2(memory, 1, 16));
  MUST(cuCtxSynchronize());
}

void threads() {
  const CUcontext context = start();
  CUdeviceptr memory = 0;
  constexpr unsigned kThreads = 8, kRounds = 20;
  constexpr std::size_t kBytes = 20'000;
  MUST(cuMemAlloc_v2(&memory, kThreads * kBytes));
  for (unsigned round = 0; round < kRounds; ++round) {
    std::vector<std::thread> workers;
    for (unsigned i = 0; i < kThreads; ++i) {
      workers.emplace_back([&, i] {
        MUST(cuCtxSetCurrent(context));
        const CUdeviceptr mine = memory + i * kBytes;
        std::vector<unsigned char> sent(kBytes, static_cast<unsigned char>(round * kThreads + i));
        std::vector<unsigned char> got(kBytes);
        MUST(cuMemcpyHtoD_v2(mine, sent.data(), kBytes));
        MUST(cuMemcpyDtoH_v2(got.data(), mine, kBytes));
        EXPECT(got == sent);
      });
    }
    for (std::thread& worker : workers) worker.join();
  }
}
