// nccl_processes: two processes, each with a rank on a device of its own. They share device memory
// by file descriptors (cuMemExportToShareableHandle), and their kernels poll flags there.
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

namespace {

constexpr int kRanks = 2;
constexpr std::size_t kCount = 100'000;

void compute(int rank, const ncclUniqueId& id) {
  MUST(cudaSetDevice(rank));
  ncclComm_t communicator = nullptr;
  MUST(ncclCommInitRank(&communicator, kRanks, id, rank));
  const std::vector<float> first = some_values(kCount, 1), second = some_values(kCount, 2);
  const DeviceArray<float> from(rank == 0 ? first : second), to(kCount), all(kRanks * kCount);
  cudaStream_t stream = nullptr;
  MUST(cudaStreamCreate(&stream));
  MUST(ncclAllReduce(from.get(), to.get(), kCount, ncclFloat, ncclSum, communicator, stream));
  MUST(cudaStreamSynchronize(stream));
  std::vector<double> sums(first.begin(), first.end());
  for (std::size_t i = 0; i < kCount; ++i) sums[i] += second[i];
  expect_close("all-reduce", to.read(), sums, 1e-6);
  MUST(ncclAllGather(from.get(), all.get(), kCount, ncclFloat, communicator, stream));
  MUST(cudaStreamSynchronize(stream));
  std::vector<float> both = first;
  both.insert(both.end(), second.begin(), second.end());
  expect_close("all-gather", all.read(), both, 0);
  MUST(ncclBroadcast(from.get(), to.get(), kCount, ncclFloat, 1, communicator, stream));
  MUST(cudaStreamSynchronize(stream));
  expect_close("broadcast", to.read(), second, 0);
  MUST(ncclCommDestroy(communicator));
}

}  // namespace

// The ranks are processes that start without CUDA.
int main() {
  setenv("NCCL_P2P_LEVEL", "SYS", 0);
  int ends[2];
  if (pipe(ends) != 0) return 9;
  const pid_t child = fork();
  ncclUniqueId id;
  if (child == 0) {
    if (read(ends[0], &id, sizeof id) != sizeof id) return 8;
    compute(1, id);
    return 0;
  }
  MUST(ncclGetUniqueId(&id));
  if (write(ends[1], &id, sizeof id) != sizeof id) return 7;
  compute(0, id);
  int status = -1;
  if (waitpid(child, &status, 0) != child || status != 0) return 6;
  std::printf("PASSED\n");
  return 0;
}
