// Facts of our generated header.
#include <cstddef>
#include <type_traits>

#include "driver_abi/cuda_abi.h"
#include "tests/apigen/facts.h"

template <typename Value>
static std::uint64_t as_number(Value value) {
  return (std::uint64_t)value;  // NOLINT: pointers and integers alike.
}

Facts facts_of_our_header() {
  return {
#define FACT(name, value) {name, static_cast<std::uint64_t>(value)},
#define OURS(name, value) {name, static_cast<std::uint64_t>(value)},
#include "tests/apigen/facts.inc"
  };
}

int version_of_our_header() { return CUDA_VERSION; }
