// Hexadecimal digits, by arithmetic on characters: no locale decides.
#include "base/hex.h"

namespace gpurun {
namespace {

int digit_of(char character) {
  if (character >= '0' && character <= '9') return character - '0';
  if (character >= 'a' && character <= 'f') return character - 'a' + 10;
  return -1;
}

}  // namespace

std::string hex_of(ByteView bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

bool parse_hex(std::string_view text, MutableBytes into) {
  if (text.size() != 2 * into.size()) return false;
  for (std::size_t i = 0; i < into.size(); ++i) {
    const int high = digit_of(text[2 * i]);
    const int low = digit_of(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    into[i] = static_cast<std::byte>(high << 4 | low);
  }
  return true;
}

}  // namespace gpurun
