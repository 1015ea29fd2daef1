// unknown_key(): the nearest known key, by the number of characters to change.
#include "server/daemon/config/config_place.h"

#include <algorithm>
#include <cstddef>

namespace gpurun::server {
namespace {

// A longer key is not a typing error. Also bounds the time.
constexpr std::size_t kKeyBytesMax = 64;

std::string plain(std::string_view key) {
  std::string text(key);
  for (char& each : text) {
    if (each >= 'A' && each <= 'Z') each = static_cast<char>(each - 'A' + 'a');
    if (each == '_') each = '-';
  }
  return text;
}

// Number of characters to insert, remove, replace or swap with their neighbour.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> rows(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) rows[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      rows[i][j] = std::min({replaced, rows[i - 1][j] + 1, rows[i][j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows[a.size()][b.size()];
}

}  // namespace

std::string unknown_key(std::string_view key, const std::vector<std::string_view>& known) {
  constexpr std::size_t kPartBytesMin = 4;  // For a key that is a part of another.
  std::string_view nearest;
  if (key.size() <= kKeyBytesMax) {
    const std::string told = plain(key);
    std::size_t least = std::min<std::size_t>(3, 1 + told.size() / 4) + 1;
    for (const std::string_view name : known) {
      std::size_t apart = distance(told, std::string(name));
      const bool part = told.size() >= kPartBytesMin && name.find(told) != std::string_view::npos;
      if (part) apart = std::min<std::size_t>(apart, 2);
      if (apart >= least) continue;
      least = apart;
      nearest = name;
    }
  }
  if (nearest.empty()) return "is unknown";
  return "is unknown; did you mean '" + std::string(nearest) + "'?";
}

std::string unknown_in_table(std::string_view key, const std::vector<std::string_view>& known,
                             const std::vector<std::string_view>& top_level) {
  for (const std::string_view name : top_level) {
    if (key == name) return "is unknown there; it belongs above the file's first [table]";
  }
  return unknown_key(key, known);
}

}  // namespace gpurun::server
