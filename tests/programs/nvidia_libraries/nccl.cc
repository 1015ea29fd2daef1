// nccl: one rank on one device: its communicator, and collectives in place and out of place.
#include <nccl.h>

#include "check.h"

int main() {
  constexpr int kCount = 3000;
  ncclComm_t communicator = nullptr;
  const int device = 0;
  MUST(ncclCommInitAll(&communicator, 1, &device));
  int ranks = 0, rank = -1;
  MUST(ncclCommCount(communicator, &ranks));
  MUST(ncclCommUserRank(communicator, &rank));
  std::printf("rank %d of %d\n", rank, ranks);
  const std::vector<float> in = some_values(kCount, 4);
  const DeviceArray<float> from(in), to(kCount);
  cudaStream_t stream = nullptr;
  MUST(cudaStreamCreate(&stream));
  MUST(ncclAllReduce(from.get(), to.get(), kCount, ncclFloat, ncclSum, communicator, stream));
  MUST(cudaStreamSynchronize(stream));
  expect_close("all-reduce", to.read(), in, 0);
  MUST(ncclBroadcast(to.get(), to.get(), kCount, ncclFloat, 0, communicator, stream));
  MUST(ncclAllGather(to.get(), from.get(), kCount, ncclFloat, communicator, stream));
  MUST(cudaStreamSynchronize(stream));
  expect_close("broadcast, all-gather", from.read(), in, 0);
  // The mean over one rank runs a kernel of NCCL's.
  ncclRedOp_t half = ncclSum;
  float factor = 0.5f;
  MUST(ncclRedOpCreatePreMulSum(&half, &factor, ncclFloat, ncclScalarHostImmediate, communicator));
  MUST(ncclAllReduce(from.get(), to.get(), kCount, ncclFloat, half, communicator, stream));
  MUST(cudaStreamSynchronize(stream));
  std::vector<double> right(in.begin(), in.end());
  for (double& value : right) value *= factor;
  expect_close("all-reduce of halves", to.read(), right, 1e-6);
  MUST(ncclCommDestroy(communicator));
  std::printf("PASSED\n");
  return 0;
}
