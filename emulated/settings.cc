// Reader of GPURUN_EMULATED and CUDA_VISIBLE_DEVICES.
#include "emulated/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/published_once.h"
#include "driver_abi/semantics/visible_devices.h"
#include "emulated/device_identity.h"
#include "emulated/setting_words.h"

namespace gpurun::emulated {
namespace {

constexpr std::string_view kSpace = " \t\n";

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Whole text as a number in [lowest, highest].
bool parse_number(std::string_view text, std::int64_t lowest, std::int64_t highest,
                  std::int64_t* out) {
  std::int64_t value = 0;
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < lowest || value > highest) {
    return false;
  }
  *out = value;
  return true;
}

bool parse_bytes(std::string_view text, std::uint64_t* out) {
  int shift = 0;
  for (const auto& [suffix, bits] :
       {std::pair{std::string_view("KiB"), 10}, {"MiB", 20}, {"GiB", 30}}) {
    if (text.size() > suffix.size() && text.substr(text.size() - suffix.size()) == suffix) {
      text.remove_suffix(suffix.size());
      shift = bits;
    }
  }
  std::int64_t value = 0;
  if (!parse_number(trim(text), 1, std::int64_t{1} << (44 - shift), &value)) return false;
  *out = static_cast<std::uint64_t>(value) << shift;
  return true;
}

// "12.1" or "121".
bool parse_capability(std::string_view text, int* out) {
  const auto dot = text.find('.');
  std::int64_t major = 0, minor = 0;
  if (dot == std::string_view::npos) {
    if (!parse_number(text, 0, 999, &major)) return false;
    if (major != 0 && major < 50) return false;
    *out = static_cast<int>(major);
    return true;
  }
  if (!parse_number(text.substr(0, dot), 5, 99, &major)) return false;
  if (!parse_number(text.substr(dot + 1), 0, 9, &minor)) return false;
  *out = static_cast<int>(major * 10 + minor);
  return true;
}

bool parse_int(std::string_view text, int lowest, int highest, int* out) {
  std::int64_t value = 0;
  if (!parse_number(text, lowest, highest, &value)) return false;
  *out = static_cast<int>(value);
  return true;
}

// "4+5": a descriptor for each device. No descriptor may occur twice, because two devices would
// share one memory.
bool parse_descriptors(std::string_view text, std::vector<int>* out) {
  std::vector<int> found;
  while (true) {
    const auto plus = text.find('+');
    int descriptor = -1;
    if (!parse_int(trim(text.substr(0, plus)), 3, 1 << 20, &descriptor) ||
        std::find(found.begin(), found.end(), descriptor) != found.end()) {
      return false;
    }
    found.push_back(descriptor);
    if (plus == std::string_view::npos) break;
    text.remove_prefix(plus + 1);
  }
  *out = std::move(found);
  return true;
}

}  // namespace

bool apply_setting(std::string_view key, std::string_view value, Settings* s) {
  int flag = 0;
  if (key == "devices") return parse_int(value, 0, 16, &s->devices);
  if (key == "memory") return parse_bytes(value, &s->memory_bytes);
  if (key == "capability") return parse_capability(value, &s->capability) && s->capability > 0;
  if (key == "library_capability") return parse_capability(value, &s->library_capability);
  if (key == "multiprocessors") return parse_int(value, 1, 1024, &s->multiprocessors);
  if (key == "threads") return parse_int(value, 0, 1024, &s->threads);
  if (key == "driver_version") return parse_int(value, 12000, 99990, &s->driver_version);
  if (key == "ledger") return parse_descriptors(value, &s->ledger);
  if (key == "watchdog") return parse_int(value, 0, 1 << 30, &s->watchdog_s);
  if (key == "watchdog_kills") {
    if (!parse_int(value, 0, 1, &flag)) return false;
    s->watchdog_kills = flag != 0;
    return true;
  }
  if (key == "tier") {
    if (value != "fibers" && value != "regions" && value != "auto") return false;
    s->tier = value;
    return true;
  }
  if (key == "log") {
    if (value.empty() || value.front() != '/') return false;
    s->log = value;
    return true;
  }
  if (key == "cache") {
    if (value.empty()) return false;
    s->cache = value;
    return true;
  }
  return false;
}

Settings parse_settings(const char* text) {
  Settings result;
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const auto end = std::min(rest.find_first_of(",;"), rest.size());
    const auto item = trim(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (item.empty()) continue;
    const auto equals = std::min(item.find('='), item.size());
    const auto value = equals < item.size() ? trim(item.substr(equals + 1)) : std::string_view();
    if (!apply_setting(trim(item.substr(0, equals)), value, &result)) {
      GPURUN_LOG(kWarning, "GPURUN_EMULATED: '%.*s' is ignored: no such key, or out of range",
                 static_cast<int>(item.size()), item.data());
    }
  }
  return result;
}

const Settings& settings() {
  // Libraries call us after our finalisers, and a process may fork while this reads.
  static constinit PublishedOnce<Settings> read;
  return read.get([] { return parse_settings(std::getenv("GPURUN_EMULATED")); });
}

std::vector<int> visible_physical_devices() {
  std::vector<driver_abi::DeviceUuid> uuids;
  for (int i = 0; i < settings().devices; ++i) uuids.push_back(device_uuid(i));
  return driver_abi::visible_devices(std::getenv("CUDA_VISIBLE_DEVICES"), uuids);
}

}  // namespace gpurun::emulated
