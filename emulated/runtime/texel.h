// Texels: conversion from memory to the four 32-bit results of a fetch (CUDA C++ Programming Guide,
// "Texture Memory", and Driver API, cuTexObjectCreate).
#pragma once

#include <cstdint>

#include "emulated/runtime/texture.h"

namespace gpurun::emulated {

// Four results: the bits of floats, or integers extended to 32 bits by sign or zero. Components
// that the texel lacks are zero.
struct Texel {
  std::uint32_t word[4] = {0, 0, 0, 0};
};

struct FloatTexel {
  float value[4] = {0, 0, 0, 0};
};

// The texel at `address` as integers. Only for TexelRead::kInteger.
Texel load_integers(const Texture& texture, std::uint64_t address);
// The texel at `address` as floats. For every other TexelRead.
FloatTexel load_floats(const Texture& texture, std::uint64_t address);

float half_to_float(std::uint16_t half);
std::uint16_t float_to_half(float value);  // To nearest even.

}  // namespace gpurun::emulated
