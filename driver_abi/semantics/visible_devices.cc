// VisibleDevices: reads the list entry by entry.
#include "driver_abi/semantics/visible_devices.h"

#include <algorithm>

namespace gpurun::driver_abi {
namespace {

constexpr std::string_view kSpace = " \t\n\v\f\r";
constexpr std::string_view kUuidPrefix = "GPU-";
constexpr int kNoDevice = -1;
constexpr int kNumberMax = 1'000'000;

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Takes the first entry off `rest`, with the comma after it.
std::string_view take_entry(std::string_view& rest) {
  const std::size_t end = std::min(rest.find(','), rest.size());
  const std::string_view entry = trimmed(rest.substr(0, end));
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return entry;
}

// kNoDevice: the entry does not begin with a number.
int number_of(std::string_view entry) {
  if (entry.starts_with('+')) entry.remove_prefix(1);
  int number = kNoDevice;
  for (const char digit : entry) {
    if (digit < '0' || digit > '9') break;
    number = std::min(std::max(number, 0) * 10 + (digit - '0'), kNumberMax);
  }
  return number;
}

int device_of(std::string_view entry, std::span<const DeviceUuid> devices) {
  if (!entry.starts_with(kUuidPrefix)) {
    const int number = number_of(entry);
    return number < static_cast<int>(devices.size()) ? number : kNoDevice;
  }
  int found = kNoDevice;
  for (std::size_t i = 0; i < devices.size() && entry.size() > kUuidPrefix.size(); ++i) {
    if (!uuid_text(devices[i]).starts_with(entry)) continue;
    if (found != kNoDevice) return kNoDevice;  // The entry matches more than one device.
    found = static_cast<int>(i);
  }
  return found;
}

bool contains(const std::vector<int>& devices, int device) {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

}  // namespace

std::string uuid_text(const DeviceUuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(kUuidPrefix);
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 15];
  }
  return text;
}

std::vector<int> visible_devices(const char* value, std::span<const DeviceUuid> devices) {
  std::vector<int> visible;
  if (value == nullptr) {
    for (std::size_t i = 0; i < devices.size(); ++i) visible.push_back(static_cast<int>(i));
    return visible;
  }
  for (std::string_view rest(value); !rest.empty();) {
    const int device = device_of(take_entry(rest), devices);
    if (device == kNoDevice) break;
    if (contains(visible, device)) return {};
    visible.push_back(device);
  }
  return visible;
}

std::string first_visible(std::string_view value, std::size_t count) {
  std::vector<int> numbers;
  std::vector<std::string_view> uuids;
  std::size_t entries = 0;
  std::size_t end = value.size();
  for (std::string_view rest = value; !rest.empty();) {
    const std::string_view entry = take_entry(rest);
    if (entry.starts_with(kUuidPrefix)) {
      if (std::find(uuids.begin(), uuids.end(), entry) != uuids.end()) return std::string(value);
      uuids.push_back(entry);
    } else {
      const int number = number_of(entry);
      if (number == kNoDevice) break;
      if (contains(numbers, number)) return std::string(value);
      numbers.push_back(number);
    }
    if (++entries == count) end = value.size() - rest.size();
  }
  std::string first(value.substr(0, end));
  if (end < value.size()) first.pop_back();  // The comma.
  return first;
}

}  // namespace gpurun::driver_abi
