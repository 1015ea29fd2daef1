// Runs a fuzz target over a folder of inputs, in builds that have no libFuzzer: what crashed it
// once must not do so again. With a number of seconds, then over mutations of these inputs for so
// long: blind ones, for nothing here says how far they reach (tools/fuzz does that), but of what
// reaches far. The asan suite does so with those targets that tools/check has libFuzzer not run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace {

using Input = std::vector<std::uint8_t>;

constexpr std::size_t kBytesMax = 4096;  // Of a mutation; libFuzzer's own bound.

void run(const Input& input) { LLVMFuzzerTestOneInput(input.data(), input.size()); }

class Mutator {
 public:
  Mutator(std::vector<Input> inputs, std::uint64_t seed)
      : inputs_(std::move(inputs)), random_(seed) {}

  Input next() {
    Input input = inputs_[below(inputs_.size())];
    for (std::size_t left = 1 + below(6); left > 0; --left) change(input);
    if (input.size() > kBytesMax) input.resize(kBytesMax);
    return input;
  }

 private:
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }

  void change(Input& input) {
    const std::size_t at = below(input.size() + 1);
    const std::size_t count = std::min(1 + below(16), input.size() - at);
    const auto place = input.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(7)) {
      case 0:
        if (at < input.size()) input[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 1:
        if (at < input.size()) input[at] = static_cast<std::uint8_t>(random_());
        break;
      case 2:
        input.erase(place, place + static_cast<std::ptrdiff_t>(count));
        break;
      case 3:
        input.insert(place, 1 + below(16), static_cast<std::uint8_t>(random_()));
        break;
      case 4: {  // A number, of one of its sizes.
        constexpr std::uint64_t kNumbers[] = {
            0, 1, 7, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, ~std::uint64_t{0}};
        const std::uint64_t number = kNumbers[below(std::size(kNumbers))];
        const std::size_t bytes = std::size_t{1} << below(4);
        for (std::size_t i = 0; i < bytes && at + i < input.size(); ++i) {
          input[at + i] = static_cast<std::uint8_t>(number >> (8 * i));
        }
        break;
      }
      case 5: {  // A piece of its own, once more.
        const Input piece(place, place + static_cast<std::ptrdiff_t>(count));
        const auto to = static_cast<std::ptrdiff_t>(below(input.size() + 1));
        input.insert(input.begin() + to, piece.begin(), piece.end());
        break;
      }
      default: {  // Another's end.
        const Input& other = inputs_[below(inputs_.size())];
        input.resize(at);
        input.insert(input.end(),
                     other.begin() + static_cast<std::ptrdiff_t>(below(other.size() + 1)),
                     other.end());
      }
    }
  }

  const std::vector<Input> inputs_;
  std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::fprintf(stderr, "usage: %s FOLDER [SECONDS [SEED]]\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());  // A seed gives the same mutations everywhere.
  std::vector<Input> inputs;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    std::printf("%s\n", path.filename().c_str());
    std::fflush(stdout);  // The last name is the guilty one.
    run(inputs.back());
  }
  std::printf("%zu inputs\n", inputs.size());
  if (inputs.empty() || argc < 3) return inputs.empty() ? 1 : 0;
  const std::uint64_t seed =
      argc > 3 ? std::strtoull(argv[3], nullptr, 10) : std::random_device()();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);  // Leads to the guilty one again.
  Mutator mutator(std::move(inputs), seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[2]));
  unsigned long mutations = 0;
  for (; std::chrono::steady_clock::now() < end; ++mutations) run(mutator.next());
  std::printf("%lu mutations\n", mutations);
  return 0;
}
