// curand [all]: each generator's numbers on the device equal those of its host generator. They are
// equal bit by bit for uniform numbers and integers, also of 64 bits, and for quasi-random ones in
// several dimensions. Normal numbers are equal within rounding. MT19937 runs only with `all`,
// because it keeps the emulated device busy for a minute.
#include <curand.h>

#include <cstring>

#include "check.h"

namespace {

constexpr std::size_t kCount = 4096;

struct Kind {
  const char* name;
  curandRngType_t type;
  unsigned dimensions;  // 0: pseudo-random.

  bool of_64_bits() const {
    return type == CURAND_RNG_QUASI_SOBOL64 || type == CURAND_RNG_QUASI_SCRAMBLED_SOBOL64;
  }
  bool is_twister() const {
    return type == CURAND_RNG_PSEUDO_MT19937 || type == CURAND_RNG_PSEUDO_MTGP32;
  }
};

curandGenerator_t make(const Kind& kind, bool on_host) {
  curandGenerator_t generator = nullptr;
  MUST(on_host ? curandCreateGeneratorHost(&generator, kind.type)
               : curandCreateGenerator(&generator, kind.type));
  if (kind.dimensions == 0) MUST(curandSetPseudoRandomGeneratorSeed(generator, 20251122));
  if (kind.dimensions != 0) {
    MUST(curandSetQuasiRandomGeneratorDimensions(generator, kind.dimensions));
  }
  if (!kind.is_twister()) {  // Twisters have no offset.
    MUST(curandSetGeneratorOffset(generator, 12));
  }
  return generator;
}

template <typename T>
void expect_equal(const char* name, const char* what, const std::vector<T>& device,
                  const std::vector<T>& host) {
  if (std::memcmp(device.data(), host.data(), host.size() * sizeof(T)) != 0) {
    std::printf("FAILED: %s: %s differ\n", name, what);
    std::exit(1);
  }
}

// `generate` is called for the device and for the host. Values must be exactly equal unless a
// tolerance is given.
template <typename T, typename Generate>
void compare_numbers(const Kind& kind, const char* what, curandGenerator_t device,
                     curandGenerator_t host, Generate generate, double tolerance = 0) {
  DeviceArray<T> on_device(kCount);
  std::vector<T> on_host(kCount);
  MUST(generate(device, on_device.get()));
  MUST(generate(host, on_host.data()));
  if (tolerance == 0) expect_equal(kind.name, what, on_device.read(), on_host);
  if (tolerance != 0) expect_close(kind.name, on_device.read(), on_host, tolerance);
}

// The value below which the share `part` of the normal distribution lies.
double normal_value(double part) {
  const double root = std::sqrt(2.0);
  double value = 0;
  for (int round = 0; round < 100; ++round) {
    const double density = std::exp(-value * value / 2) / std::sqrt(2 * std::acos(-1.0));
    const double step = (std::erfc(-value / root) / 2 - part) / density;
    value -= std::fmax(-1, std::fmin(1, step));
    if (std::fabs(step) < 1e-15) break;
  }
  return value;
}

// MTGP32's host generator makes normal doubles with only float's precision, and its device
// generator makes better ones. They are compared with the values of the integers at their
// positions.
void compare_with_integers(const Kind& kind) {
  const curandGenerator_t device = make(kind, false), host = make(kind, true);
  DeviceArray<double> on_device(kCount);
  std::vector<unsigned> integers(kCount);
  std::vector<double> right;
  MUST(curandGenerateNormalDouble(device, on_device.get(), kCount, 1, 2));
  MUST(curandGenerate(host, integers.data(), kCount));
  for (const unsigned each : integers) {
    right.push_back(1 + 2 * normal_value((each + 0.5) / 4294967296.0));
  }
  expect_close(kind.name, on_device.read(), right, 1e-12);
  MUST(curandDestroyGenerator(device));
  MUST(curandDestroyGenerator(host));
}

void compare(const Kind& kind) {
  const curandGenerator_t device = make(kind, false), host = make(kind, true);
  using Generator = curandGenerator_t;
  if (kind.of_64_bits()) {
    compare_numbers<unsigned long long>(kind, "integers of 64 bits", device, host,
                                        [](Generator of, unsigned long long* to) {
                                          return curandGenerateLongLong(of, to, kCount);
                                        });
  } else {
    compare_numbers<unsigned>(kind, "integers", device, host, [](Generator of, unsigned* to) {
      return curandGenerate(of, to, kCount);
    });
  }
  compare_numbers<float>(kind, "uniform numbers", device, host, [](Generator of, float* to) {
    return curandGenerateUniform(of, to, kCount);
  });
  compare_numbers<double>(kind, "uniform doubles", device, host, [](Generator of, double* to) {
    return curandGenerateUniformDouble(of, to, kCount);
  });
  compare_numbers<float>(
      kind, "normal numbers", device, host,
      [](Generator of, float* to) { return curandGenerateNormal(of, to, kCount, 1, 2); }, 1e-5);
  const bool rough = kind.type == CURAND_RNG_PSEUDO_MTGP32;
  if (rough) compare_with_integers(kind);
  compare_numbers<double>(
      kind, "normal doubles", device, host,
      [](Generator of, double* to) { return curandGenerateNormalDouble(of, to, kCount, 1, 2); },
      rough ? 1e-6 : 1e-13);
  MUST(curandDestroyGenerator(device));
  MUST(curandDestroyGenerator(host));
}

// The library's view of the device differs from the program's: in the structure that the runtime
// filled at the library's start, and now.
void expect_own_view() {
  cudaDeviceProp properties = {};
  int major = 0;
  MUST(cudaGetDeviceProperties(&properties, 0));
  MUST(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  if (properties.major != major) {
    std::printf("FAILED: compute capability %d.x, and %d.x\n", properties.major, major);
    std::exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool all = argc > 1 && std::strcmp(argv[1], "all") == 0;
  for (const Kind& kind :
       {Kind{"XORWOW", CURAND_RNG_PSEUDO_XORWOW, 0},
        Kind{"MRG32k3a", CURAND_RNG_PSEUDO_MRG32K3A, 0},
        Kind{"Philox", CURAND_RNG_PSEUDO_PHILOX4_32_10, 0},
        Kind{"MT19937", CURAND_RNG_PSEUDO_MT19937, 0}, Kind{"MTGP32", CURAND_RNG_PSEUDO_MTGP32, 0},
        Kind{"Sobol", CURAND_RNG_QUASI_SOBOL32, 4},
        Kind{"scrambled Sobol", CURAND_RNG_QUASI_SCRAMBLED_SOBOL32, 4},
        Kind{"Sobol of 64 bits", CURAND_RNG_QUASI_SOBOL64, 4},
        Kind{"scrambled Sobol of 64 bits", CURAND_RNG_QUASI_SCRAMBLED_SOBOL64, 4}}) {
    if (all || kind.type != CURAND_RNG_PSEUDO_MT19937) compare(kind);
  }
  expect_own_view();
  std::printf("PASSED\n");
  return 0;
}
