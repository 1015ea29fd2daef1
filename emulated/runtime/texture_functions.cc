// Addressing and filtering of texture fetches.
#include "emulated/runtime/texture_functions.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "emulated/runtime/device_abi.h"
#include "emulated/runtime/texel.h"
#include "emulated/runtime/texture.h"

namespace gpurun::emulated {
namespace {

constexpr std::uint32_t kOutside = ~std::uint32_t{0};

// The one or two texels of a dimension that a coordinate takes, and the weight of the second.
struct Footprint {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  float weight = 0;
};

inline std::uint32_t texel_index(std::int64_t index, std::uint32_t count, AddressMode mode) {
  const auto limit = static_cast<std::int64_t>(count);
  if (index >= 0 && index < limit) return static_cast<std::uint32_t>(index);
  switch (mode) {
    case AddressMode::kWrap:
      return static_cast<std::uint32_t>((index % limit + limit) % limit);
    case AddressMode::kBorder:
      return kOutside;
    // Mirrored coordinates are inside already, except the neighbours of the edge.
    default:
      return index < 0 ? 0 : count - 1;
  }
}

// std::floor is a call where the processor may lack the instruction. `x` is in the range of int.
std::int32_t whole_part(float x) {
  const auto whole = static_cast<std::int32_t>(x);
  return whole - (static_cast<float>(whole) > x ? 1 : 0);
}

// 1.8 fixed point. `fraction` is not negative.
float eight_bits(float fraction) {
  return static_cast<float>(static_cast<std::int32_t>(fraction * 256.0f + 0.5f)) * 0x1p-8f;
}

// `x`: in texels. `linear`: filtered.
Footprint place(float x, std::uint32_t count, AddressMode mode, bool linear) {
  const auto limit = static_cast<float>(count);
  if (!(x > -2.0f)) x = std::isnan(x) ? 0.0f : -2.0f;  // Farther away is the same.
  x = std::min(x, limit + 2.0f);
  Footprint out;
  if (!linear) {
    out.first = texel_index(whole_part(x), count, mode);
    return out;
  }
  x -= 0.5f;
  const std::int32_t index = whole_part(x);
  out.first = texel_index(index, count, mode);
  out.second = texel_index(index + 1, count, mode);
  out.weight = eight_bits(x - static_cast<float>(index));
  return out;
}

// A coordinate as the program gave it.
Footprint locate(bool normalized, float x, std::uint32_t count, AddressMode mode, bool linear) {
  if (!normalized) return place(x, count, mode, linear);
  if (x >= 0.0f && x < 1.0f) return place(x * static_cast<float>(count), count, mode, linear);
  if (mode == AddressMode::kWrap) {
    x -= std::floor(x);
  } else if (mode == AddressMode::kMirror) {
    const float floor = std::floor(x);
    const bool odd = std::fmod(floor, 2.0f) != 0.0f;
    x -= floor;
    if (odd) x = 1.0f - x;
  }
  return place(x * static_cast<float>(count), count, mode, linear);
}

std::uint64_t address_of(const Texture& texture, const TexelImage& image, std::uint32_t x,
                         std::uint32_t y, std::uint32_t z) {
  return image.address + z * image.slice_pitch + y * image.row_pitch +
         std::uint64_t{x} * (component_bytes(texture.format) * texture.channels);
}

FloatTexel float_at(const Texture& texture, const TexelImage& image, std::uint32_t x,
                    std::uint32_t y, std::uint32_t z) {
  if (x != kOutside && y != kOutside && z != kOutside) {
    return load_floats(texture, address_of(texture, image, x, y, z));
  }
  FloatTexel border;
  std::copy(std::begin(texture.border), std::end(texture.border), border.value);
  return border;
}

Texel integer_at(const Texture& texture, const TexelImage& image, std::uint32_t x, std::uint32_t y,
                 std::uint32_t z) {
  if (x != kOutside && y != kOutside && z != kOutside) {
    return load_integers(texture, address_of(texture, image, x, y, z));
  }
  Texel border;
  for (int i = 0; i < 4; ++i) border.word[i] = std::bit_cast<std::uint32_t>(texture.border[i]);
  return border;
}

Texel as_words(const FloatTexel& texel) {
  Texel out;
  for (int i = 0; i < 4; ++i) out.word[i] = std::bit_cast<std::uint32_t>(texel.value[i]);
  return out;
}

FloatTexel mixed(const FloatTexel& a, const FloatTexel& b, float weight) {
  FloatTexel out;
  for (int i = 0; i < 4; ++i) {
    // Exact at both ends, whatever the other texel holds.
    out.value[i] = weight == 0.0f   ? a.value[i]
                   : weight == 1.0f ? b.value[i]
                                    : (1.0f - weight) * a.value[i] + weight * b.value[i];
  }
  return out;
}

// The place of a fetch after layer and face are known.
struct Position {
  float x[3] = {0, 0, 0};
  std::uint32_t layer = 0;  // 1D and 2D: the slice.
  unsigned dimensions = 2;
  bool normalized = false;  // A cube's coordinates always are.
};

struct Footprints {
  Footprint x, y, z;
};

Footprints footprints(const Texture& texture, const TexelImage& image, const Position& at,
                      bool linear) {
  Footprints out;
  out.x = locate(at.normalized, at.x[0], image.width, texture.address_mode[0], linear);
  if (at.dimensions > 1) {
    out.y = locate(at.normalized, at.x[1], image.height, texture.address_mode[1], linear);
  }
  if (at.dimensions > 2) {
    out.z = locate(at.normalized, at.x[2], image.depth, texture.address_mode[2], linear);
  } else {
    out.z.first = out.z.second = std::min(at.layer, image.depth - 1);
  }
  return out;
}

FloatTexel filtered_row(const Texture& texture, const TexelImage& image, const Footprint& x,
                        std::uint32_t y, std::uint32_t z) {
  const FloatTexel first = float_at(texture, image, x.first, y, z);
  if (x.weight == 0.0f) return first;
  return mixed(first, float_at(texture, image, x.second, y, z), x.weight);
}

FloatTexel filtered_slice(const Texture& texture, const TexelImage& image, const Footprints& at,
                          std::uint32_t z) {
  const FloatTexel first = filtered_row(texture, image, at.x, at.y.first, z);
  if (at.y.weight == 0.0f) return first;
  return mixed(first, filtered_row(texture, image, at.x, at.y.second, z), at.y.weight);
}

FloatTexel sample(const Texture& texture, const TexelImage& image, const Position& position) {
  const Footprints at = footprints(texture, image, position, texture.filter_linear);
  const FloatTexel first = filtered_slice(texture, image, at, at.z.first);
  if (at.z.weight == 0.0f) return first;
  return mixed(first, filtered_slice(texture, image, at, at.z.second), at.z.weight);
}

// Indexed fetches ------------------------------------------------------------------------------

Texel fetch_indexed(const Texture& texture, const TextureOperation& operation,
                    const std::uint32_t* in) {
  std::uint32_t level = 0;
  if (operation.level == LevelMode::kLevel) {
    const auto wanted = static_cast<std::int32_t>(in[kTextureLevel]);
    level = wanted < 0 ? 0
                       : std::min<std::uint32_t>(static_cast<std::uint32_t>(wanted),
                                                 texture.level_count - 1);
  }
  const TexelImage& image = texture.levels[level];
  const std::uint32_t counts[3] = {image.width, image.height, image.depth};
  std::uint32_t index[3] = {0, 0, std::min(in[kTextureLayer], image.depth - 1)};
  for (unsigned i = 0; i < operation.dimensions; ++i) {
    const auto wanted = static_cast<std::int32_t>(in[kTextureCoordinates + i]);
    AddressMode mode = texture.address_mode[i];
    // Integer coordinates address texels, and neither repeat nor mirror.
    if (mode != AddressMode::kBorder) mode = AddressMode::kClamp;
    if (texture.is_linear) mode = AddressMode::kBorder;
    index[i] = texel_index(wanted, counts[i], mode);
  }
  return texture.read == TexelRead::kInteger
             ? integer_at(texture, image, index[0], index[1], index[2])
             : as_words(float_at(texture, image, index[0], index[1], index[2]));
}

// Levels ---------------------------------------------------------------------------------------

// The distance between neighbours in texels of the most detailed level, as a level.
float level_of_gradients(const Texture& texture, unsigned dimensions, const std::uint32_t* in) {
  const TexelImage& image = texture.levels[0];
  const std::uint32_t counts[3] = {image.width, image.height, image.depth};
  float longest = 0;
  for (int side = 0; side < 2; ++side) {
    float sum = 0;
    for (unsigned i = 0; i < dimensions; ++i) {
      float step = std::bit_cast<float>(in[kTextureLevel + 3 * side + i]);
      if (texture.normalized) step *= static_cast<float>(counts[i]);
      sum += step * step;
    }
    longest = std::max(longest, sum);
  }
  return 0.5f * std::log2(longest);  // Minus infinity for no distance.
}

float wanted_level(const Texture& texture, const TextureOperation& operation,
                   const std::uint32_t* in) {
  float level = 0;
  if (operation.level == LevelMode::kLevel) level = std::bit_cast<float>(in[kTextureLevel]);
  if (operation.level == LevelMode::kGradient) {
    level = level_of_gradients(texture, operation.dimensions, in);
  }
  level += texture.level_bias;
  level = std::max(texture.level_min, std::min(level, texture.level_max));
  const auto last = static_cast<float>(texture.level_count - 1);
  return std::max(0.0f, std::min(level, last));  // Not a number is 0.
}

FloatTexel sample_levels(const Texture& texture, float level, const Position& at) {
  if (texture.level_count == 1) return sample(texture, texture.levels[0], at);
  if (!texture.mipmap_linear) {
    return sample(texture, texture.levels[static_cast<std::size_t>(level + 0.5f)], at);
  }
  const auto first = static_cast<std::size_t>(level);
  const float weight = eight_bits(level - std::floor(level));
  const FloatTexel finer = sample(texture, texture.levels[first], at);
  if (weight == 0.0f) return finer;
  return mixed(finer, sample(texture, texture.levels[first + 1], at), weight);
}

// Positions ------------------------------------------------------------------------------------

// Programming Guide, "Cubemap Textures": face, and s and t over the largest coordinate m.
void place_on_cube(float x, float y, float z, Position* out, std::uint32_t* face) {
  const float size[3] = {std::fabs(x), std::fabs(y), std::fabs(z)};
  float m = 0, s = 0, t = 0;
  if (size[0] >= size[1] && size[0] >= size[2]) {
    *face = std::signbit(x) ? 1 : 0;
    m = size[0];
    s = *face == 0 ? -z : z;
    t = -y;
  } else if (size[1] >= size[2]) {
    *face = std::signbit(y) ? 3 : 2;
    m = size[1];
    s = x;
    t = *face == 2 ? z : -z;
  } else {
    *face = std::signbit(z) ? 5 : 4;
    m = size[2];
    s = *face == 4 ? x : -x;
    t = -y;
  }
  out->x[0] = (s / m + 1.0f) / 2.0f;
  out->x[1] = (t / m + 1.0f) / 2.0f;
}

Position position_of(const Texture& texture, const TextureOperation& operation,
                     const std::uint32_t* in) {
  Position out;
  const std::uint32_t layer = operation.layered ? in[kTextureLayer] : 0;
  if (operation.cube) {
    std::uint32_t face = 0;
    place_on_cube(std::bit_cast<float>(in[kTextureCoordinates]),
                  std::bit_cast<float>(in[kTextureCoordinates + 1]),
                  std::bit_cast<float>(in[kTextureCoordinates + 2]), &out, &face);
    const std::uint32_t cubes = std::max<std::uint32_t>(1, texture.levels[0].depth / 6);
    out.layer = std::min(layer, cubes - 1) * 6 + face;
    out.normalized = true;
    return out;
  }
  out.dimensions = operation.dimensions;
  for (unsigned i = 0; i < operation.dimensions; ++i) {
    out.x[i] = std::bit_cast<float>(in[kTextureCoordinates + i]);
  }
  out.layer = layer;
  out.normalized = texture.normalized;
  return out;
}

Texel fetch_at(const Texture& texture, const TextureOperation& operation, const std::uint32_t* in) {
  const Position at = position_of(texture, operation, in);
  const float level = wanted_level(texture, operation, in);
  if (texture.read != TexelRead::kInteger) return as_words(sample_levels(texture, level, at));
  const TexelImage& image = texture.levels[static_cast<std::size_t>(level + 0.5f)];
  const Footprints near = footprints(texture, image, at, false);
  return integer_at(texture, image, near.x.first, near.y.first, near.z.first);
}

// A fast path for what most programs fetch: lines and planes of 32-bit floats without levels and
// borders. Its results equal those of sample() to the bit.
template <unsigned kChannels>
void fetch_plane(const Texture& texture, const TextureOperation& operation, const std::uint32_t* in,
                 std::uint32_t* out) {
  const TexelImage& image = texture.levels[0];
  const bool linear = texture.filter_linear;
  const auto coordinate = [in](unsigned i) {
    return std::bit_cast<float>(in[kTextureCoordinates + i]);
  };
  const Footprint x =
      locate(texture.normalized, coordinate(0), image.width, texture.address_mode[0], linear);
  Footprint y;
  if (operation.dimensions > 1) {
    y = locate(texture.normalized, coordinate(1), image.height, texture.address_mode[1], linear);
  }
  const std::uint32_t layer = operation.layered ? std::min(in[kTextureLayer], image.depth - 1) : 0;
  const std::uint64_t slice = image.address + layer * image.slice_pitch;
  const auto texel = [&](std::uint32_t column, std::uint32_t row) {
    return reinterpret_cast<const float*>(slice + row * image.row_pitch +
                                          std::uint64_t{column} * (kChannels * sizeof(float)));
  };
  const auto mix = [](float a, float b, float weight) {
    return weight == 0.0f ? a : weight == 1.0f ? b : (1.0f - weight) * a + weight * b;
  };
  float result[4] = {0, 0, 0, 0};
  const float* const upper_left = texel(x.first, y.first);
  const float* const upper_right = x.weight == 0.0f ? upper_left : texel(x.second, y.first);
  for (unsigned i = 0; i < kChannels; ++i) result[i] = mix(upper_left[i], upper_right[i], x.weight);
  if (y.weight != 0.0f) {
    const float* const left = texel(x.first, y.second);
    const float* const right = x.weight == 0.0f ? left : texel(x.second, y.second);
    for (unsigned i = 0; i < kChannels; ++i) {
      result[i] = mix(result[i], mix(left[i], right[i], x.weight), y.weight);
    }
  }
  for (unsigned i = 0; i < 4; ++i) out[i] = std::bit_cast<std::uint32_t>(result[i]);
}

bool is_plane(const Texture& texture, const TextureOperation& operation) {
  const auto has_border = [&](int i) { return texture.address_mode[i] == AddressMode::kBorder; };
  return texture.format == TexelFormat::kF32 && texture.level_count == 1 && !texture.is_linear &&
         !has_border(0) && !has_border(1) && operation.dimensions < 3 && !operation.cube &&
         !operation.indexed && !operation.half;
}

std::uint32_t fetch(std::uint64_t handle, std::uint32_t word, const std::uint32_t* in,
                    std::uint32_t* out) {
  const Texture* const texture = texture_slots().find(handle);
  if (texture == nullptr) return static_cast<std::uint32_t>(DeviceFault::kNoTexture);
  const TextureOperation operation = TextureOperation::unpacked(word);
  if (is_plane(*texture, operation)) {
    const auto plane = texture->channels == 1   ? fetch_plane<1>
                       : texture->channels == 2 ? fetch_plane<2>
                                                : fetch_plane<4>;
    plane(*texture, operation, in, out);
    return 0;
  }
  Texel texel;
  if (operation.indexed) {
    texel = fetch_indexed(*texture, operation, in);
  } else if (texture->is_linear) {
    return static_cast<std::uint32_t>(DeviceFault::kLinearTexture);
  } else {
    texel = fetch_at(*texture, operation, in);
  }
  if (operation.half) {
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t low = float_to_half(std::bit_cast<float>(texel.word[2 * i]));
      const std::uint32_t high = float_to_half(std::bit_cast<float>(texel.word[2 * i + 1]));
      out[i] = low | high << 16;
    }
    return 0;
  }
  std::copy(std::begin(texel.word), std::end(texel.word), out);
  return 0;
}

// One component of the four texels that a filtered fetch of the base level would take:
// (0,1), (1,1), (1,0), (0,0).
std::uint32_t gather(std::uint64_t handle, std::uint32_t word, const std::uint32_t* in,
                     std::uint32_t* out) {
  const Texture* const found = texture_slots().find(handle);
  if (found == nullptr) return static_cast<std::uint32_t>(DeviceFault::kNoTexture);
  if (found->is_linear) return static_cast<std::uint32_t>(DeviceFault::kLinearTexture);
  const TextureOperation operation = TextureOperation::unpacked(word);
  const Texture& texture = *found;
  const TexelImage& image = texture.levels[0];
  const Footprints at = footprints(texture, image, position_of(texture, operation, in), true);
  const std::uint32_t corners[4][2] = {{at.x.first, at.y.second},
                                       {at.x.second, at.y.second},
                                       {at.x.second, at.y.first},
                                       {at.x.first, at.y.first}};
  for (int i = 0; i < 4; ++i) {
    const Texel texel =
        texture.read == TexelRead::kInteger
            ? integer_at(texture, image, corners[i][0], corners[i][1], at.z.first)
            : as_words(float_at(texture, image, corners[i][0], corners[i][1], at.z.first));
    out[i] = texel.word[operation.component & 3];
  }
  return 0;
}

std::uint32_t query(std::uint64_t handle, std::uint32_t what, std::uint32_t level,
                    std::uint32_t* out) {
  const Texture* const texture = texture_slots().find(handle);
  if (texture == nullptr) return static_cast<std::uint32_t>(DeviceFault::kNoTexture);
  const TexelImage& image = texture->levels[std::min(level, texture->level_count - 1)];
  switch (static_cast<TextureQuery>(what)) {
    case TextureQuery::kWidth:
      *out = image.width;
      return 0;
    case TextureQuery::kHeight:
      *out = image.height;
      return 0;
    case TextureQuery::kDepth:
    case TextureQuery::kLayers:
      *out = image.depth;
      return 0;
    case TextureQuery::kLevels:
      *out = texture->level_count;
      return 0;
    case TextureQuery::kNormalized:
      *out = texture->normalized ? 1 : 0;
      return 0;
  }
  return 0;
}

template <class F>
void* address_of(F* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

TextureSlots& texture_slots() {
  static auto* const slots = new TextureSlots;
  return *slots;
}

std::span<const NativeFunction> texture_functions() {
  static const NativeFunction kFunctions[] = {
      {"gpurun_texture_fetch", address_of(&fetch)},
      {"gpurun_texture_gather", address_of(&gather)},
      {"gpurun_texture_query", address_of(&query)},
  };
  return kFunctions;
}

}  // namespace gpurun::emulated
