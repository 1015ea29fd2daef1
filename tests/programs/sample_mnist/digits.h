// Digits: handwritten digits from IDX files (the format of MNIST), split into a training and a
// held-out set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sample {

struct Digits {
  int height = 0;
  int width = 0;
  std::vector<std::uint8_t> pixels;  // count x height x width, 0 to 255.
  std::vector<std::uint8_t> labels;  // count, 0 to 9.

  int count() const { return static_cast<int>(labels.size()); }
  int image_pixels() const { return height * width; }
};

struct Split {
  Digits training;
  Digits held_out;
};

// Reads `directory`. With MNIST's four files the t10k files are the held-out set. With one pair of
// files (any *-images-idx3-ubyte) a fifth is held out, chosen by `seed`. Gzipped files are not
// read. Returns false with the reason in `*error` on failure.
bool load_digits(const std::string& directory, std::uint64_t seed, Split* split,
                 std::string* error);

// A number for the set of images (with their labels), independent of their order.
std::uint64_t digest(const Digits& digits);

// A small generator with the same numbers everywhere (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  // Uniform in [0, bound).
  int below(int bound) { return static_cast<int>(next() % static_cast<std::uint64_t>(bound)); }
  // Uniform in [-1, 1).
  float symmetric();

 private:
  std::uint64_t state_;
};

std::vector<std::int32_t> shuffled(int count, Random& random);

}  // namespace sample
