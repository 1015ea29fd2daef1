// Table [emulated]: each key becomes one word of GPURUN_EMULATED.
#include "server/daemon/config/config_emulated.h"

#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "emulated/setting_words.h"
#include "server/daemon/config/config_values.h"

namespace gpurun::server {
namespace {

struct EmulatedKey {
  const char* name;
  const char* word;    // In GPURUN_EMULATED.
  const char* may_be;  // For messages.
};

constexpr EmulatedKey kKeys[] = {
    {"devices", "devices", "a number from 1 to 16"},
    {"memory", "memory", "a size from 1 to 16TiB, such as \"4GiB\""},
    {"capability", "capability", "a compute capability from 5.0 to 99.9"},
    {"library-capability", "library_capability", "a compute capability from 5.0 to 99.9, or 0"},
    {"multiprocessors", "multiprocessors", "a number from 1 to 1024"},
    {"threads", "threads", "a number from 0 to 1024"},
    {"driver-version", "driver_version", "a number from 12000 to 99990"},
    {"watchdog", "watchdog", "a number of seconds"},
    {"watchdog-kills", "watchdog_kills", "true or false"},
    {"tier", "tier", "\"auto\", \"fibers\" or \"regions\""},
    {"log", "log", "an absolute path without a comma or semicolon"},
    {"cache", "cache", "\"on\", \"off\", or a path without a comma or semicolon"},
};

// Formats a number with one decimal, as capabilities have. Empty: not such a number.
std::string tenths(double value) {
  char text[32];
  const double ten_times = value * 10;
  if (!(ten_times >= 0 && ten_times < 10'000)) return {};
  if (std::abs(ten_times - std::round(ten_times)) > 1e-6) return {};
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

// The value in the form of GPURUN_EMULATED. Empty: of a kind that no key takes.
std::string word_of(std::string_view word, const toml::node& node) {
  if (const auto* flag = node.as_boolean()) {
    return word == "watchdog_kills" ? (flag->get() ? "1" : "0") : "";
  }
  if (word == "watchdog_kills") return {};
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) {
    return word.ends_with("capability") ? tenths(number->get()) : "";
  }
  const auto* text = node.as_string();
  if (text == nullptr) return {};
  if (word == "memory") {
    const Result<std::uint64_t> bytes = parse_size(text->get());
    return bytes.ok() ? std::to_string(*bytes) : "";
  }
  // The list's own separators, and characters that would be cut off or break a line.
  constexpr std::string_view kNotInside = ",;\t\r\n";
  const std::string& value = text->get();
  if (value.empty() || value.find_first_of(kNotInside) != std::string::npos ||
      value.find('\0') != std::string::npos || value.front() == ' ' || value.back() == ' ') {
    return {};
  }
  return value;
}

Status take_word(const ConfigPlace& place, const EmulatedKey& key, const toml::node& node,
                 std::string* words) {
  emulated::Settings tried;
  const std::string value = word_of(key.word, node);
  // The emulated driver allows a machine without devices, but such a server would have nothing to
  // lend.
  if (value.empty() || !emulated::apply_setting(key.word, value, &tried) || tried.devices == 0) {
    return place.wrong(std::string("must be ") + key.may_be);
  }
  *words += (words->empty() ? "" : ";") + std::string(key.word) + "=" + value;
  return {};
}

}  // namespace

Status read_emulated(const ConfigPlace& place, const toml::node& node,
                     const std::vector<std::string_view>& top_level, std::string* words) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return place.wrong("must be a table");
  words->clear();
  for (const auto& [name, value] : *table) {
    const ConfigPlace inner = place.within(name.str(), name.source().begin.line);
    const EmulatedKey* found = nullptr;
    std::vector<std::string_view> names;
    for (const EmulatedKey& key : kKeys) {
      if (name.str() == key.name) found = &key;
      names.emplace_back(key.name);
    }
    if (found == nullptr) return inner.wrong(unknown_in_table(name.str(), names, top_level));
    GPURUN_RETURN_IF_ERROR(take_word(inner, *found, value, words));
  }
  return {};
}

}  // namespace gpurun::server
