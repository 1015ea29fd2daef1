// Texture reference: fetches on the host, written from the CUDA C++ Programming Guide ("Texture
// Fetching", "Cubemap Textures") in double precision over plain vectors. It shares nothing with the
// runtime.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "emulated/runtime/texture.h"

namespace gpurun::emulated::test {

// The elements of one level. `value` is what an unfiltered fetch returns.
struct ReferenceLevel {
  int width = 1, height = 1, depth = 1;
  std::vector<std::array<double, 4>> elements;
  std::vector<std::uint8_t> bytes;  // In the device's layout.
};

struct ReferenceTexture {
  std::string format;  // "u8", "s16", "f16", "f32", ...
  int channels = 4;
  bool integer = false;     // Read as integers.
  bool normalized = false;  // Coordinates.
  bool linear = false;
  bool mipmap_linear = false;
  char address = 'c';  // 'w'rap, 'c'lamp, 'm'irror, 'b'order
  std::array<double, 4> border{};
  double bias = 0, level_min = 0, level_max = 0;
  std::vector<ReferenceLevel> levels;

  // Random elements for levels of these extents. Each level has half the extents of the one before.
  // Layers stay.
  void fill(int width, int height, int depth, bool volume, int level_count, unsigned seed);
  // The same texture in the form that kernels use. This object must not move meanwhile.
  Texture describe() const;
};

struct ReferencePlace {
  int dimensions = 2;
  std::array<double, 3> at{};  // For a cube: the direction.
  int layer = -1;
  bool cube = false;
};

// The place of a cube's direction on its faces: a layer, and two normalized coordinates.
ReferencePlace on_cube(const ReferencePlace& direction);
// A filtered or unfiltered fetch at a level of detail.
std::array<double, 4> fetch(const ReferenceTexture& texture, const ReferencePlace& place,
                            double level);
// A fetch by integer coordinates.
std::array<double, 4> fetch_element(const ReferenceTexture& texture, const ReferencePlace& place,
                                    int level);
// A component of the four elements around a place: lower left, lower right, upper right, upper left
// in a picture with rows that go down.
std::array<double, 4> gather(const ReferenceTexture& texture, const ReferencePlace& place,
                             int component);

}  // namespace gpurun::emulated::test
