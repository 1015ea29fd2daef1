// Texture reference: fetches by the formulas of the CUDA C++ Programming Guide.
#include "texture_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace gpurun::emulated::test {
namespace {

using Color = std::array<double, 4>;

int bytes_of(const std::string& format) { return std::stoi(format.substr(1)) / 8; }

// A random component: its bytes in memory, and its value.
double random_component(const ReferenceTexture& texture, std::mt19937& random,
                        std::uint8_t* bytes) {
  const std::string& format = texture.format;
  if (format == "f32" || format == "f16") {
    const float value =
        static_cast<float>(std::uniform_int_distribution<int>(-800, 800)(random)) / 16.0f;
    if (format == "f32") {
      std::memcpy(bytes, &value, 4);
    } else {
      const auto half = static_cast<_Float16>(value);
      std::memcpy(bytes, &half, 2);
    }
    return value;
  }
  const int bits = 8 * bytes_of(format);
  const auto raw = static_cast<std::uint32_t>(random()) >> (32 - bits);
  std::memcpy(bytes, &raw, static_cast<std::size_t>(bits / 8));
  double value = raw;
  double most = std::ldexp(1.0, bits) - 1;
  if (format[0] == 's') {
    if (value >= std::ldexp(1.0, bits - 1)) value -= std::ldexp(1.0, bits);
    most = std::ldexp(1.0, bits - 1) - 1;
  }
  return texture.integer ? value : std::max(value / most, -1.0);
}

// An index where the texture has elements. -1: outside, where the border is.
int inside(int index, int count, char address) {
  if (index >= 0 && index < count) return index;
  if (address == 'b') return -1;
  if (address == 'w') return ((index % count) + count) % count;
  return std::clamp(index, 0, count - 1);
}

Color element(const ReferenceTexture& texture, const ReferenceLevel& level, int x, int y, int z) {
  if (x < 0 || y < 0 || z < 0) return texture.border;
  return level.elements[static_cast<std::size_t>((z * level.height + y) * level.width + x)];
}

struct Side {
  int index[2];
  double weight[2];
};

// The guide's x (in elements) after the addressing modes, with its i and alpha.
Side side_of(const ReferenceTexture& texture, double x, int count, bool normalized, bool linear) {
  if (normalized) {
    if (texture.address == 'w') x = x - std::floor(x);
    if (texture.address == 'm') {
      const double floor = std::floor(x);
      x = std::fmod(std::fabs(floor), 2.0) == 1.0 ? 1 - (x - floor) : x - floor;
    }
    x *= count;
  }
  Side out{};
  if (!linear) {
    out.index[0] = inside(static_cast<int>(std::floor(x)), count, texture.address);
    out.weight[0] = 1;
    return out;
  }
  const double below = x - 0.5;
  const int i = static_cast<int>(std::floor(below));
  const double alpha = std::floor((below - i) * 256 + 0.5) / 256;
  out.index[0] = inside(i, count, texture.address);
  out.index[1] = inside(i + 1, count, texture.address);
  out.weight[0] = 1 - alpha;
  out.weight[1] = alpha;
  return out;
}

struct Sides {
  Side side[3];
};

Sides sides_of(const ReferenceTexture& texture, const ReferenceLevel& level,
               const ReferencePlace& place, bool linear) {
  Sides out{};
  const int counts[3] = {level.width, level.height, level.depth};
  const bool normalized = texture.normalized || place.cube;
  for (int i = 0; i < 3; ++i) {
    out.side[i].weight[0] = 1;
    if (i < place.dimensions) {
      out.side[i] =
          side_of(texture, place.at[static_cast<std::size_t>(i)], counts[i], normalized, linear);
    }
  }
  if (place.dimensions < 3) out.side[2].index[0] = std::clamp(place.layer, 0, level.depth - 1);
  return out;
}

Color fetch_level(const ReferenceTexture& texture, const ReferenceLevel& level,
                  const ReferencePlace& place) {
  const bool linear = texture.linear && !texture.integer;
  const Sides sides = sides_of(texture, level, place, linear);
  Color sum{};
  for (int corner = 0; corner < 8; ++corner) {
    const int pick[3] = {corner & 1, corner >> 1 & 1, corner >> 2};
    double weight = 1;
    for (int i = 0; i < 3; ++i) weight *= sides.side[i].weight[pick[i]];
    if (weight == 0) continue;
    const Color color = element(texture, level, sides.side[0].index[pick[0]],
                                sides.side[1].index[pick[1]], sides.side[2].index[pick[2]]);
    for (std::size_t i = 0; i < 4; ++i) sum[i] += weight * color[i];
  }
  return sum;
}

TexelFormat format_of(const std::string& name) {
  static const std::string kNames[] = {"u8", "s8", "u16", "s16", "u32", "s32", "f16", "f32"};
  return static_cast<TexelFormat>(std::find(std::begin(kNames), std::end(kNames), name) -
                                  std::begin(kNames));
}

}  // namespace

void ReferenceTexture::fill(int width, int height, int depth, bool volume, int level_count,
                            unsigned seed) {
  std::mt19937 random(seed);
  const int component = bytes_of(format);
  levels.clear();
  for (int i = 0; i < level_count; ++i) {
    ReferenceLevel level;
    level.width = std::max(1, width >> i);
    level.height = std::max(1, height >> i);
    level.depth = volume ? std::max(1, depth >> i) : depth;
    level.elements.resize(static_cast<std::size_t>(level.width * level.height * level.depth));
    level.bytes.resize(level.elements.size() * static_cast<std::size_t>(channels * component));
    std::uint8_t* at = level.bytes.data();
    for (Color& color : level.elements) {
      for (int c = 0; c < channels; ++c, at += component) {
        color[static_cast<std::size_t>(c)] = random_component(*this, random, at);
      }
    }
    levels.push_back(std::move(level));
  }
}

Texture ReferenceTexture::describe() const {
  Texture out;
  out.format = format_of(format);
  out.channels = static_cast<std::uint8_t>(channels);
  out.read = integer            ? TexelRead::kInteger
             : format[0] == 'f' ? TexelRead::kFloat
                                : TexelRead::kNormalized;
  out.normalized = normalized;
  out.filter_linear = linear;
  out.mipmap_linear = mipmap_linear;
  for (AddressMode& mode : out.address_mode) {
    mode = address == 'w'   ? AddressMode::kWrap
           : address == 'm' ? AddressMode::kMirror
           : address == 'b' ? AddressMode::kBorder
                            : AddressMode::kClamp;
  }
  for (std::size_t i = 0; i < 4; ++i) {
    out.border[i] = static_cast<float>(border[i]);
  }
  out.level_bias = static_cast<float>(bias);
  out.level_min = static_cast<float>(level_min);
  out.level_max = static_cast<float>(level_max);
  out.level_count = static_cast<std::uint32_t>(levels.size());
  for (std::size_t i = 0; i < levels.size(); ++i) {
    TexelImage& image = out.levels[i];
    image.address = reinterpret_cast<std::uint64_t>(levels[i].bytes.data());
    image.width = static_cast<std::uint32_t>(levels[i].width);
    image.height = static_cast<std::uint32_t>(levels[i].height);
    image.depth = static_cast<std::uint32_t>(levels[i].depth);
    image.row_pitch = image.width * static_cast<std::uint64_t>(channels * bytes_of(format));
    image.slice_pitch = image.row_pitch * image.height;
  }
  return out;
}

// The guide's table: face, m, s, t.
ReferencePlace on_cube(const ReferencePlace& direction) {
  const auto [x, y, z] = direction.at;
  const double ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  double m, s, t;
  int face;
  if (ax > ay && ax > az) {
    face = x >= 0 ? 0 : 1;
    m = ax;
    s = x >= 0 ? -z : z;
    t = -y;
  } else if (ay > ax && ay > az) {
    face = y >= 0 ? 2 : 3;
    m = ay;
    s = x;
    t = y >= 0 ? z : -z;
  } else {
    face = z >= 0 ? 4 : 5;
    m = az;
    s = z >= 0 ? x : -x;
    t = -y;
  }
  ReferencePlace out = direction;
  out.dimensions = 2;
  out.at = {(s / m + 1) / 2, (t / m + 1) / 2, 0};
  out.layer = 6 * std::max(0, direction.layer) + face;
  return out;
}

Color fetch(const ReferenceTexture& texture, const ReferencePlace& place, double level) {
  level = std::clamp(level + texture.bias, texture.level_min, texture.level_max);
  level = std::clamp(level, 0.0, static_cast<double>(texture.levels.size()) - 1);
  if (!texture.mipmap_linear || texture.integer) {
    return fetch_level(texture, texture.levels[static_cast<std::size_t>(std::lround(level))],
                       place);
  }
  const auto below = static_cast<std::size_t>(level);
  const double weight = std::floor((level - static_cast<double>(below)) * 256 + 0.5) / 256;
  Color out = fetch_level(texture, texture.levels[below], place);
  if (weight == 0) return out;
  const Color above = fetch_level(texture, texture.levels[below + 1], place);
  for (std::size_t i = 0; i < 4; ++i) out[i] = (1 - weight) * out[i] + weight * above[i];
  return out;
}

Color fetch_element(const ReferenceTexture& texture, const ReferencePlace& place, int level) {
  const ReferenceLevel& from = texture.levels[static_cast<std::size_t>(
      std::clamp(level, 0, static_cast<int>(texture.levels.size()) - 1))];
  const int counts[3] = {from.width, from.height, from.depth};
  int index[3] = {0, 0, std::clamp(place.layer, 0, from.depth - 1)};
  const char address = texture.address == 'b' ? 'b' : 'c';
  for (int i = 0; i < place.dimensions; ++i) {
    index[i] = inside(static_cast<int>(place.at[static_cast<std::size_t>(i)]), counts[i], address);
  }
  return element(texture, from, index[0], index[1], index[2]);
}

Color gather(const ReferenceTexture& texture, const ReferencePlace& place, int component) {
  const ReferenceLevel& level = texture.levels.front();
  const Sides sides = sides_of(texture, level, place, true);
  const int corners[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
  Color out{};
  for (std::size_t i = 0; i < 4; ++i) {
    const Color color = element(texture, level, sides.side[0].index[corners[i][0]],
                                sides.side[1].index[corners[i][1]], sides.side[2].index[0]);
    out[i] = color[static_cast<std::size_t>(component)];
  }
  return out;
}

}  // namespace gpurun::emulated::test
