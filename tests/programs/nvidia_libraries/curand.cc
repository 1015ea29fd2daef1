// curand [all]: each generator's numbers on the device are, bit by bit, those of its host generator
// (the quasi-random ones in several dimensions), uniform and as integers; normal ones within
// rounding. MT19937 only with `all`: it keeps the emulated device busy for a minute.
#include <curand.h>

#include <cstring>

#include "check.h"

namespace {

constexpr std::size_t kCount = 4096;

struct Kind {
  const char* name;
  curandRngType_t type;
  unsigned dimensions;  // 0: pseudo-random.
};

curandGenerator_t make(const Kind& kind, bool on_host) {
  curandGenerator_t generator = nullptr;
  MUST(on_host ? curandCreateGeneratorHost(&generator, kind.type)
               : curandCreateGenerator(&generator, kind.type));
  if (kind.dimensions == 0) MUST(curandSetPseudoRandomGeneratorSeed(generator, 20251122));
  if (kind.dimensions != 0) {
    MUST(curandSetQuasiRandomGeneratorDimensions(generator, kind.dimensions));
  }
  if (kind.type != CURAND_RNG_PSEUDO_MT19937) {  // Which has none.
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

void compare(const Kind& kind) {
  curandGenerator_t device = make(kind, false), host = make(kind, true);
  DeviceArray<unsigned> device_integers(kCount);
  DeviceArray<float> device_floats(kCount);
  std::vector<unsigned> integers(kCount);
  std::vector<float> floats(kCount);
  MUST(curandGenerate(device, device_integers.get(), kCount));
  MUST(curandGenerate(host, integers.data(), kCount));
  expect_equal(kind.name, "integers", device_integers.read(), integers);
  MUST(curandGenerateUniform(device, device_floats.get(), kCount));
  MUST(curandGenerateUniform(host, floats.data(), kCount));
  expect_equal(kind.name, "uniform numbers", device_floats.read(), floats);
  MUST(curandGenerateNormal(device, device_floats.get(), kCount, 1, 2));
  MUST(curandGenerateNormal(host, floats.data(), kCount, 1, 2));
  expect_close(kind.name, device_floats.read(), floats, 1e-5);
  MUST(curandDestroyGenerator(device));
  MUST(curandDestroyGenerator(host));
}

// What the library is told of the device is not what the program is told, in the structure that the
// runtime filled when the library started it, nor now.
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
        Kind{"MT19937", CURAND_RNG_PSEUDO_MT19937, 0}, Kind{"Sobol", CURAND_RNG_QUASI_SOBOL32, 4},
        Kind{"scrambled Sobol", CURAND_RNG_QUASI_SCRAMBLED_SOBOL32, 4}}) {
    if (all || kind.type != CURAND_RNG_PSEUDO_MT19937) compare(kind);
  }
  expect_own_view();
  std::printf("PASSED\n");
  return 0;
}
