// Digits: reads the two files, checks their headers, and splits the digits.
#include "digits.h"

#include <dirent.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>

namespace sample {
namespace {

constexpr std::uint32_t kImagesMagic = 0x803;
constexpr std::uint32_t kLabelsMagic = 0x801;
constexpr const char* kImagesSuffix = "-images-idx3-ubyte";
constexpr const char* kLabelsSuffix = "-labels-idx1-ubyte";

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

bool read_u32(std::FILE* file, std::uint32_t* value) {
  std::uint8_t raw[4];
  if (std::fread(raw, 1, 4, file) != 4) return false;
  *value = std::uint32_t{raw[0]} << 24 | std::uint32_t{raw[1]} << 16 | std::uint32_t{raw[2]} << 8 |
           raw[3];
  return true;
}

bool load_pair(const std::string& stem, Digits* digits, std::string* error) {
  const std::string images_path = stem + kImagesSuffix;
  const std::string labels_path = stem + kLabelsSuffix;
  const File images(std::fopen(images_path.c_str(), "rb"), std::fclose);
  const File labels(std::fopen(labels_path.c_str(), "rb"), std::fclose);
  if (!images || !labels) {
    *error = "cannot open " + (images ? labels_path : images_path);
    return false;
  }
  std::uint32_t magic = 0, count = 0, height = 0, width = 0, label_count = 0;
  if (!read_u32(images.get(), &magic) || magic != kImagesMagic || !read_u32(images.get(), &count) ||
      !read_u32(images.get(), &height) || !read_u32(images.get(), &width) || count == 0 ||
      count > 1'000'000 || height < 4 || height > 64 || width < 4 || width > 64 ||
      height % 2 != 0 || width % 2 != 0) {
    *error = images_path + ": not an IDX file of images with even sides from 4 to 64 pixels";
    return false;
  }
  if (!read_u32(labels.get(), &magic) || magic != kLabelsMagic ||
      !read_u32(labels.get(), &label_count) || label_count != count) {
    *error = labels_path + ": not an IDX file with one label for each image";
    return false;
  }
  digits->height = static_cast<int>(height);
  digits->width = static_cast<int>(width);
  digits->pixels.resize(std::size_t{count} * height * width);
  digits->labels.resize(count);
  if (std::fread(digits->pixels.data(), 1, digits->pixels.size(), images.get()) !=
          digits->pixels.size() ||
      std::fread(digits->labels.data(), 1, count, labels.get()) != count) {
    *error = stem + ": the files end too early";
    return false;
  }
  if (std::any_of(digits->labels.begin(), digits->labels.end(), [](int l) { return l > 9; })) {
    *error = labels_path + ": a label is above 9";
    return false;
  }
  return true;
}

Digits subset(const Digits& all, const std::int32_t* order, int count) {
  Digits part{all.height, all.width, {}, {}};
  for (int index = 0; index < count; ++index) {
    const auto first = all.pixels.begin() + std::ptrdiff_t{order[index]} * all.image_pixels();
    part.pixels.insert(part.pixels.end(), first, first + all.image_pixels());
    part.labels.push_back(all.labels[static_cast<std::size_t>(order[index])]);
  }
  return part;
}

// The stems ("DIR/train") of all image files in `directory`, sorted.
std::vector<std::string> find_stems(const std::string& directory) {
  std::vector<std::string> stems;
  const std::string suffix = kImagesSuffix;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(directory.c_str()), closedir);
  if (!listing) return stems;
  while (const dirent* entry = readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name.size() <= suffix.size()) continue;
    const std::size_t stem_bytes = name.size() - suffix.size();
    if (name.compare(stem_bytes, std::string::npos, suffix) == 0) {
      stems.push_back(directory + "/" + name.substr(0, stem_bytes));
    }
  }
  std::sort(stems.begin(), stems.end());
  return stems;
}

}  // namespace

std::uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 31);
}

std::uint64_t digest(const Digits& digits) {
  std::uint64_t sum = 0;
  const auto pixels = static_cast<std::size_t>(digits.image_pixels());
  for (std::size_t image = 0; image < digits.labels.size(); ++image) {
    std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a.
    for (std::size_t i = 0; i < pixels; ++i) {
      hash = (hash ^ digits.pixels[image * pixels + i]) * 0x100000001b3u;
    }
    sum += (hash ^ digits.labels[image]) * 0x100000001b3u;
  }
  return sum;
}

float Random::symmetric() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f; }

std::vector<std::int32_t> shuffled(int count, Random& random) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (int index = count - 1; index > 0; --index) {
    std::swap(order[static_cast<std::size_t>(index)],
              order[static_cast<std::size_t>(random.below(index + 1))]);
  }
  return order;
}

bool load_digits(const std::string& directory, std::uint64_t seed, Split* split,
                 std::string* error) {
  const std::vector<std::string> stems = find_stems(directory);
  if (stems.empty()) {
    *error = directory + " holds no file named *" + kImagesSuffix;
    return false;
  }
  if (stems.size() == 2) {  // MNIST: t10k and train, in this order.
    return load_pair(stems[0], &split->held_out, error) &&
           load_pair(stems[1], &split->training, error);
  }
  Digits all;
  if (!load_pair(stems[0], &all, error)) return false;
  Random random(seed);
  const std::vector<std::int32_t> order = shuffled(all.count(), random);
  const int held_out = all.count() / 5;
  split->held_out = subset(all, order.data(), held_out);
  split->training = subset(all, order.data() + held_out, all.count() - held_out);
  return true;
}

}  // namespace sample
