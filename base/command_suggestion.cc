// nearest_word(): the distance is that of optimal string alignment.
#include "base/command_suggestion.h"

#include <algorithm>

namespace gpurun {
namespace {

constexpr std::size_t kLettersMin = 3;
constexpr std::size_t kWordBytesMax = 64;  // The distance takes their product.

std::size_t distance(std::string_view one, std::string_view other) {
  std::vector<std::vector<std::size_t>> cost(one.size() + 1,
                                             std::vector<std::size_t>(other.size() + 1));
  for (std::size_t i = 0; i <= one.size(); ++i) {
    for (std::size_t j = 0; j <= other.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const std::size_t replaced = cost[i - 1][j - 1] + (one[i - 1] == other[j - 1] ? 0 : 1);
      cost[i][j] = std::min({replaced, cost[i - 1][j] + 1, cost[i][j - 1] + 1});
      const bool swapped =
          i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[one.size()][other.size()];
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  const std::size_t first = std::min(word.find_first_not_of('-'), word.size());
  if (word.size() - first < kLettersMin || word.size() > kWordBytesMax) return "";
  std::vector<std::string> begun;
  std::string nearest;
  std::size_t smallest = (word.size() - first) / 3 + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.compare(0, word.size(), word) == 0) begun.push_back(candidate);
    const std::size_t apart = distance(word, candidate);
    if (apart >= smallest) continue;
    smallest = apart;
    nearest = candidate;
  }
  return begun.size() == 1 ? begun[0] : nearest;
}

std::string suggestion(const std::string& word) {
  return word.empty() ? "" : "; did you mean " + word + "?";
}

}  // namespace gpurun
