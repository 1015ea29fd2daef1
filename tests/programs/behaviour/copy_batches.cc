// Driver API: copies in batches. A source that is read during the call belongs to the program again
// on return. A source that is read in the stream's order has the results of earlier work. An error
// names the copy that it is in, or none.
#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <future>
#include <vector>

#include "tests/support/cuda.h"

namespace {

// Few enough that no copy waits for earlier work, which would hide a late read of another.
constexpr std::size_t kBytes = 60'000, kCopies = 4;

// cuMemcpyBatchAsync of CUDA 12.8, which names the copy that failed.
using NamingBatch = CUresult (*)(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*,
                                 size_t*, size_t, size_t*, CUstream);

CUdeviceptr address_of(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

struct Batch {
  CUdeviceptr to[kCopies], from[kCopies];
  size_t bytes[kCopies] = {kBytes, kBytes, kBytes, kBytes};
  CUmemcpyAttributes attributes[2] = {};
  size_t firsts[2] = {0, 2};
  size_t count = kCopies, sets = 2;

  CUresult run(CUstream stream) {
    return cuMemcpyBatchAsync(to, from, bytes, count, attributes, firsts, sets, stream);
  }
};

void expect_all(CUdeviceptr memory, unsigned char value) {
  std::vector<unsigned char> host(kBytes);
  MUST(cuMemcpyDtoH(host.data(), memory, kBytes));
  for (const unsigned char byte : host) EXPECT(byte == value);
}

}  // namespace

int main() {
  MUST(cuInit(0));
  CUdevice device;
  MUST(cuDeviceGet(&device, 0));
  CUcontext context;
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  CUstream stream;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr memory[kCopies], other;
  for (CUdeviceptr& each : memory) MUST(cuMemAlloc(&each, kBytes));
  MUST(cuMemAlloc(&other, kBytes));
  MUST(cuMemsetD8(other, 4, kBytes));
  unsigned char *now, *late, *out;
  for (unsigned char** each : {&now, &late, &out}) {
    MUST(cuMemHostAlloc(reinterpret_cast<void**>(each), kBytes, 0));
  }
  std::vector<unsigned char> pageable(kBytes, 2);
  std::memset(now, 1, kBytes);
  std::memset(late, 0xee, kBytes);
  MUST(cuStreamSynchronize(nullptr));

  Batch batch;
  batch.to[0] = memory[0];
  batch.from[0] = address_of(now);
  batch.to[1] = memory[1];
  batch.from[1] = address_of(pageable.data());
  batch.attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  batch.to[2] = memory[2];
  batch.from[2] = address_of(late);
  batch.to[3] = address_of(out);
  batch.from[3] = other;
  batch.attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  // Blocks until the batch has returned, which shows that the batch does not wait for earlier work.
  struct Writing {
    void* place;
    std::promise<void> returned;
  } writing{late, {}};
  const auto write_late = [](void* of) {
    auto* own = static_cast<Writing*>(of);
    own->returned.get_future().wait();
    std::memset(own->place, 3, kBytes);
  };
  MUST(cuLaunchHostFunc(stream, write_late, &writing));
  MUST(batch.run(stream));
  writing.returned.set_value();
  std::memset(pageable.data(), 0xee, kBytes);
  std::memset(now, 0xee, kBytes);
  MUST(cuStreamSynchronize(stream));
  for (unsigned i = 0; i < 3; ++i) expect_all(memory[i], static_cast<unsigned char>(i + 1));
  for (std::size_t i = 0; i < kBytes; ++i) EXPECT(out[i] == 4);

  // A batch with invalid arguments copies nothing.
  const auto refused = [&](auto change) {
    Batch wrong = batch;
    change(wrong);
    EXPECT(wrong.run(stream) == CUDA_ERROR_INVALID_VALUE);
  };
  refused([](Batch& b) { b.attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID; });
  refused([](Batch& b) { b.firsts[0] = 1; });
  refused([](Batch& b) { b.firsts[1] = 0; });
  refused([](Batch& b) { b.firsts[1] = kCopies; });
  refused([](Batch& b) { b.sets = 0; });
  refused([](Batch& b) { b.count = 1; });
  refused([](Batch& b) { b.count = b.sets = 0; });
  EXPECT(batch.run(nullptr) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(batch.run(CU_STREAM_LEGACY) == CUDA_ERROR_INVALID_VALUE);
  MUST(cuStreamSynchronize(stream));
  expect_all(memory[0], 1);
  MUST(batch.run(CU_STREAM_PER_THREAD));
  MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  expect_all(memory[0], 0xee);

  void* found = nullptr;
  CUdriverProcAddressQueryResult how;
  MUST(cuGetProcAddress("cuMemcpyBatchAsync", &found, 12080, CU_GET_PROC_ADDRESS_DEFAULT, &how));
  const auto naming = reinterpret_cast<NamingBatch>(found);
  const auto named = [&](Batch wrong, CUresult result, std::size_t copy) {
    std::size_t failed = 7;
    EXPECT(naming(wrong.to, wrong.from, wrong.bytes, wrong.count, wrong.attributes, wrong.firsts,
                  wrong.sets, &failed, stream) == result);
    EXPECT(failed == copy);
  };
  named(batch, CUDA_SUCCESS, SIZE_MAX);
  Batch nowhere = batch;
  nowhere.to[2] = 0;
  named(nowhere, CUDA_ERROR_INVALID_VALUE, 2);
  Batch unordered = batch;
  unordered.firsts[1] = 0;
  named(unordered, CUDA_ERROR_INVALID_VALUE, SIZE_MAX);
  MUST(cuStreamSynchronize(stream));
  std::printf("PASSED\n");
  return 0;
}
