// Local address: the one place that makes and checks the name's form.
#include "protocol/control/local_address.h"

#include <algorithm>

#include "base/hex.h"

namespace gpurun::protocol {
namespace {

constexpr std::string_view kSocketPrefix = "unix:gpurun-";

bool is_digit(char character) noexcept {
  return (character >= '0' && character <= '9') || (character >= 'a' && character <= 'f');
}

}  // namespace

std::string local_address(const Id& name) {
  return std::string(kSocketPrefix) + hex_of(bytes_of(name));
}

bool is_local_address(std::string_view text) noexcept {
  if (!text.starts_with(kSocketPrefix)) return false;
  text.remove_prefix(kSocketPrefix.size());
  return text.size() == 2 * sizeof(Id) && std::all_of(text.begin(), text.end(), is_digit);
}

}  // namespace gpurun::protocol
