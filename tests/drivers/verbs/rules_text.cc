// Parses the rules of the verbs double's settings.
#include "tests/drivers/verbs/rules_text.h"

#include <algorithm>
#include <charconv>
#include <sstream>

namespace gpurun::verbs_double {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string TextRule::text(const std::string& key, const std::string& fallback) const {
  const auto found = values_.find(key);
  return found == values_.end() ? fallback : found->second;
}

std::uint64_t TextRule::number(const std::string& key, std::uint64_t fallback, std::uint64_t least,
                               std::uint64_t most) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return fallback;
  const std::string& value = found->second;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < least ||
      number > most) {
    wrong(key + " must be a number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return number;
}

void TextRule::only(std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : values_) {
    if (std::find(known.begin(), known.end(), key) == known.end()) wrong("unknown key " + key);
  }
}

void TextRule::wrong(const std::string& reason) const {
  throw WrongSetting("`" + word_ + "`: " + reason);
}

std::vector<TextRule> parse_rules(std::string_view text) {
  std::vector<TextRule> rules;
  for (const std::string& part : split(text, ';')) {
    std::istringstream words(part);
    std::string word;
    if (!(words >> word)) continue;
    std::map<std::string, std::string> values;
    for (std::string pair; words >> pair;) {
      const auto equals = pair.find('=');
      if (equals == std::string::npos || equals == 0) {
        throw WrongSetting("`" + word + "`: " + pair + " is not KEY=VALUE");
      }
      if (!values.emplace(pair.substr(0, equals), pair.substr(equals + 1)).second) {
        throw WrongSetting("`" + word + "`: " + pair.substr(0, equals) + " appears twice");
      }
    }
    rules.emplace_back(word, std::move(values));
  }
  return rules;
}

}  // namespace gpurun::verbs_double
