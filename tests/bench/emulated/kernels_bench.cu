// Measures the emulated device's code against plain C++: the kernels that decide what a program
// feels, each beside the same work as a loop nest (loop_nests.h) in interleaved rounds of one run.
// Prints a table, or JSON with --json. Results are compared; a wrong one ends the program with 1.
// Run it on the device itself:
//   LD_LIBRARY_PATH=lib/gpurun/emulated programs/emulated_kernels_bench [--json]
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "loop_nests.h"
#include "tests/support/cuda.h"

namespace {

constexpr int kRounds = 5;
constexpr int kElements = 4 << 20;
constexpr int kMatrix = 512;
constexpr int kBlock = 256;

__global__ void empty_kernel() {}

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

__global__ void saxpy(float alpha, const float* x, float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    y[i] = alpha * x[i] + y[i];
  }
}

__global__ void multiply_naive(const float* a, const float* b, float* c, int n) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}

template <int kTile>
__global__ void multiply_tiled(const float* a, const float* b, float* c, int n) {
  __shared__ float a_tile[kTile][kTile];
  __shared__ float b_tile[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int column = blockIdx.x * kTile + x, row = blockIdx.y * kTile + y;
  float sum = 0;
  for (int first = 0; first < n; first += kTile) {
    a_tile[y][x] = a[row * n + first + x];
    b_tile[y][x] = b[(first + y) * n + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += a_tile[y][k] * b_tile[k][x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

__global__ void sums(const float* in, float* out) {
  __shared__ float of_warp[kBlock / 32];
  float sum = in[blockIdx.x * kBlock + threadIdx.x];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = threadIdx.x < kBlock / 32 ? of_warp[threadIdx.x] : 0.0f;
  for (int step = kBlock / 64; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void scans(const int* in, int* out) {
  __shared__ int values[2][kBlock];
  const int x = threadIdx.x;
  values[0][x] = in[blockIdx.x * kBlock + x];
  int now = 0;
  for (int step = 1; step < kBlock; step *= 2) {
    __syncthreads();
    values[1 - now][x] = values[now][x] + (x >= step ? values[now][x - step] : 0);
    now = 1 - now;
  }
  out[blockIdx.x * kBlock + x] = values[now][x];
}

__global__ void histogram(const std::uint8_t* in, std::uint32_t* bins, int n) {
  __shared__ std::uint32_t own[256];
  own[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * kBlock + threadIdx.x; i < n; i += gridDim.x * kBlock) {
    atomicAdd(&own[in[i]], 1u);
  }
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}

template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count) : host(count) { MUST(cudaMalloc(&device, count * sizeof(T))); }
  void up() { MUST(cudaMemcpy(device, host.data(), bytes(), cudaMemcpyHostToDevice)); }
  void down() { MUST(cudaMemcpy(host.data(), device, bytes(), cudaMemcpyDeviceToHost)); }
  std::size_t bytes() const { return host.size() * sizeof(T); }
  std::vector<T> host;
  T* device = nullptr;
};

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool json = false;
bool first = true;

void line(const char* name, double device_s, double plain_s) {
  if (json) {
    std::printf("%s\n  \"%s\": {\"device_ms\": %.4f, \"plain_ms\": %.4f, \"ratio\": %.3f}",
                first ? "{" : ",", name, device_s * 1e3, plain_s * 1e3, device_s / plain_s);
  } else {
    std::printf("%-28s %10.3f ms %10.3f ms %8.2f\n", name, device_s * 1e3, plain_s * 1e3,
                device_s / plain_s);
  }
  first = false;
}

// The best of interleaved rounds, after enough rounds for code that is compiled when it is hot.
void compare(const char* name, const std::function<void()>& device,
             const std::function<void()>& plain) {
  const auto once = [&] {
    device();
    MUST(cudaDeviceSynchronize());
  };
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(600)) once();
  double device_s = 1e30, plain_s = 1e30;
  for (int i = 0; i < kRounds; ++i) {
    device_s = std::min(device_s, seconds(once));
    plain_s = std::min(plain_s, seconds(plain));
  }
  line(name, device_s, plain_s);
}

void check(const char* name, bool right) {
  if (right) return;
  std::fprintf(stderr, "%s: wrong result\n", name);
  std::exit(1);
}

bool close(const std::vector<float>& got, const std::vector<float>& want, float tolerance) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(std::fabs(got[i] - want[i]) <= tolerance * std::max(1.0f, std::fabs(want[i])))) {
      return false;
    }
  }
  return true;
}

void memory_bound() {
  Buffer<float> a(kElements), b(kElements), c(kElements);
  for (int i = 0; i < kElements; ++i) a.host[i] = i % 1000, b.host[i] = i % 7;
  a.up(), b.up();
  std::vector<float> plain(kElements);
  compare(
      "vectorAdd, 4 Mi",
      [&] { vector_add<<<kElements / kBlock, kBlock>>>(a.device, b.device, c.device, kElements); },
      [&] { nests::vector_add(a.host.data(), b.host.data(), plain.data(), kElements); });
  c.down();
  check("vectorAdd", c.host == plain);
  std::fill(c.host.begin(), c.host.end(), 0.0f);
  c.up();
  // The device and the nest go through different numbers of rounds: the result is compared once.
  saxpy<<<64, kBlock>>>(2.0f, a.device, c.device, kElements);
  std::vector<float> y(kElements);
  nests::saxpy(2.0f, a.host.data(), y.data(), kElements);
  c.down();
  check("saxpy", c.host == y);
  compare(
      "saxpy, grid stride, 4 Mi",
      [&] { saxpy<<<64, kBlock>>>(2.0f, a.device, c.device, kElements); },
      [&] { nests::saxpy(2.0f, a.host.data(), y.data(), kElements); });
}

void matrices() {
  const int n = kMatrix;
  Buffer<float> a(n * n), b(n * n), c(n * n);
  for (int i = 0; i < n * n; ++i) a.host[i] = i % 13 - 6, b.host[i] = i % 11 - 5;
  a.up(), b.up();
  std::vector<float> plain(n * n);
  const auto nest = [&] { nests::multiply(a.host.data(), b.host.data(), plain.data(), n); };
  const auto measure = [&](const char* name, const std::function<void()>& launch) {
    compare(name, launch, nest);
    c.down();
    check(name, close(c.host, plain, 1e-4f));
  };
  measure("matmul 512, naive", [&] {
    multiply_naive<<<dim3(n / 16, n / 16), dim3(16, 16)>>>(a.device, b.device, c.device, n);
  });
  measure("matmul 512, tiles of 16", [&] {
    multiply_tiled<16><<<dim3(n / 16, n / 16), dim3(16, 16)>>>(a.device, b.device, c.device, n);
  });
  measure("matmul 512, tiles of 32", [&] {
    multiply_tiled<32><<<dim3(n / 32, n / 32), dim3(32, 32)>>>(a.device, b.device, c.device, n);
  });
}

void cooperating_threads() {
  Buffer<float> in(kElements), out(kElements / kBlock);
  Buffer<int> integers(kElements), scanned(kElements);
  Buffer<std::uint8_t> bytes(kElements);
  Buffer<std::uint32_t> bins(256);
  for (int i = 0; i < kElements; ++i) {
    in.host[i] = i % 17;
    integers.host[i] = i % 5;
    bytes.host[i] = static_cast<std::uint8_t>((i * 2654435761u) >> 24);
  }
  in.up(), integers.up(), bytes.up();
  std::vector<float> plain(kElements / kBlock);
  compare(
      "sums by shuffles, 4 Mi",
      [&] { sums<<<kElements / kBlock, kBlock>>>(in.device, out.device); },
      [&] { nests::sums(in.host.data(), plain.data(), kElements, kBlock); });
  out.down();
  check("sums", close(out.host, plain, 1e-4f));
  std::vector<int> plain_scans(kElements);
  compare(
      "scans by barriers, 4 Mi",
      [&] { scans<<<kElements / kBlock, kBlock>>>(integers.device, scanned.device); },
      [&] { nests::scans(integers.host.data(), plain_scans.data(), kElements, kBlock); });
  scanned.down();
  check("scans", scanned.host == plain_scans);
  bins.up();
  histogram<<<64, kBlock>>>(bytes.device, bins.device, kElements);
  std::vector<std::uint32_t> plain_bins(256);
  nests::histogram(bytes.host.data(), plain_bins.data(), kElements);
  bins.down();
  check("histogram", bins.host == plain_bins);
  compare(
      "histogram, shared, 4 Mi",
      [&] { histogram<<<64, kBlock>>>(bytes.device, bins.device, kElements); },
      [&] { nests::histogram(bytes.host.data(), plain_bins.data(), kElements); });
}

void launches() {
  constexpr int kLaunches = 100000;
  double best_s = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    best_s = std::min(best_s, seconds([] {
                        for (int i = 0; i < kLaunches; ++i) empty_kernel<<<1, 1>>>();
                        MUST(cudaDeviceSynchronize());
                      }));
  }
  const double rate = kLaunches / best_s / 1e6;
  if (json) {
    std::printf("%s\n  \"empty launches\": {\"millions_per_s\": %.4f}", first ? "{" : ",", rate);
  } else {
    std::printf("%-28s %10.3f million a second\n", "empty launches", rate);
  }
  first = false;
}

}  // namespace

int main(int argc, char** argv) {
  json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
  if (!json) std::printf("%-28s %13s %13s %8s\n", "", "device", "plain C++", "ratio");
  memory_bound();
  matrices();
  cooperating_threads();
  launches();
  if (json) std::printf("\n}\n");
  return 0;
}
