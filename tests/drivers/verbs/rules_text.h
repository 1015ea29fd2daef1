// Rules text: `WORD KEY=VALUE ...; WORD ...`, the grammar of the settings of the verbs double.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gpurun::verbs_double {

// The text of a setting is wrong. what() names the rule and the reason.
struct WrongSetting : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class TextRule {
 public:
  TextRule(std::string word, std::map<std::string, std::string> values)
      : word_(std::move(word)), values_(std::move(values)) {}
  const std::string& word() const noexcept { return word_; }
  bool has(const std::string& key) const { return values_.count(key) != 0; }
  std::string text(const std::string& key, const std::string& fallback) const;
  // Throws WrongSetting unless the value is a decimal number from `least` to `most`.
  std::uint64_t number(const std::string& key, std::uint64_t fallback, std::uint64_t least,
                       std::uint64_t most) const;
  // Throws WrongSetting if the rule has a key that is not in `known`.
  void only(std::initializer_list<std::string_view> known) const;
  [[noreturn]] void wrong(const std::string& reason) const;

 private:
  std::string word_;
  std::map<std::string, std::string> values_;
};

// Throws WrongSetting for a value without a key, and for a repeated key.
std::vector<TextRule> parse_rules(std::string_view text);
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace gpurun::verbs_double
