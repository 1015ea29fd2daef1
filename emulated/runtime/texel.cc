// Conversion of texels, by format.
#include "emulated/runtime/texel.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace gpurun::emulated {
namespace {

template <typename T>
T component(std::uint64_t address, unsigned index) {
  T value;
  std::memcpy(&value, reinterpret_cast<const std::uint8_t*>(address) + index * sizeof(T),
              sizeof value);
  return value;
}

template <typename T>
Texel integers(std::uint64_t address, unsigned channels) {
  Texel out;
  for (unsigned i = 0; i < channels; ++i) {
    out.word[i] = static_cast<std::uint32_t>(component<T>(address, i));
  }
  return out;
}

// The lowest signed number is -1, as the next higher one is.
template <typename T, int kMax>
FloatTexel normalized(std::uint64_t address, unsigned channels) {
  FloatTexel out;
  for (unsigned i = 0; i < channels; ++i) {
    const float value = static_cast<float>(component<T>(address, i)) / static_cast<float>(kMax);
    out.value[i] = value < -1.0f ? -1.0f : value;
  }
  return out;
}

// IEC 61966-2-1.
float from_srgb(float value) {
  return value <= 0.04045f ? value / 12.92f : std::pow((value + 0.055f) / 1.055f, 2.4f);
}

}  // namespace

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = half >> 10 & 0x1f;
  const std::uint32_t mantissa = half & 0x3ff;
  if (exponent == 0) {  // Zero or subnormal: mantissa * 2^-24, exact in a float.
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const float size = std::fabs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7fff);
  if (size >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (size < 0x1p-14f) {  // Subnormal: a multiple of 2^-24.
    return static_cast<std::uint16_t>(sign |
                                      static_cast<std::uint16_t>(std::nearbyint(size * 0x1p24f)));
  }
  std::uint32_t rounded = bits & 0x7fffffff;
  rounded += 0xfff + (rounded >> 13 & 1);
  return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

Texel load_integers(const Texture& texture, std::uint64_t address) {
  switch (texture.format) {
    case TexelFormat::kU8:
      return integers<std::uint8_t>(address, texture.channels);
    case TexelFormat::kS8:
      return integers<std::int8_t>(address, texture.channels);
    case TexelFormat::kU16:
      return integers<std::uint16_t>(address, texture.channels);
    case TexelFormat::kS16:
      return integers<std::int16_t>(address, texture.channels);
    default:
      return integers<std::uint32_t>(address, texture.channels);
  }
}

FloatTexel load_floats(const Texture& texture, std::uint64_t address) {
  FloatTexel out;
  switch (texture.format) {
    case TexelFormat::kU8:
      out = normalized<std::uint8_t, 255>(address, texture.channels);
      if (texture.read == TexelRead::kSrgb) {
        for (unsigned i = 0; i < 3; ++i) out.value[i] = from_srgb(out.value[i]);
      }
      return out;
    case TexelFormat::kS8:
      return normalized<std::int8_t, 127>(address, texture.channels);
    case TexelFormat::kU16:
      return normalized<std::uint16_t, 65535>(address, texture.channels);
    case TexelFormat::kS16:
      return normalized<std::int16_t, 32767>(address, texture.channels);
    case TexelFormat::kF16:
      for (unsigned i = 0; i < texture.channels; ++i) {
        out.value[i] = half_to_float(component<std::uint16_t>(address, i));
      }
      return out;
    default:
      std::memcpy(out.value, reinterpret_cast<const void*>(address),
                  sizeof(float) * texture.channels);
      return out;
  }
}

}  // namespace gpurun::emulated
