// Facts of NVIDIA's header. Every name is the symbol that the driver exports, because the internal
// switch turns off the renaming of cuMemAlloc to cuMemAlloc_v2 and the like.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>

#include <cstddef>
#include <type_traits>

#include "tests/apigen/facts.h"

template <typename Value>
static std::uint64_t as_number(Value value) {
  return (std::uint64_t)value;  // NOLINT: pointers and integers alike.
}

Facts facts_of_cuda_h() {
  return {
#define FACT(name, value) {name, static_cast<std::uint64_t>(value)},
#define OURS(name, value)
#include "tests/apigen/facts.inc"
  };
}

int version_of_cuda_h() { return CUDA_VERSION; }
