// UTF-8 decoder (RFC 3629, section 4) that accepts no overlong form and no surrogate.
#include "base/printable.h"

#include <cstddef>
#include <cstdint>

namespace gpurun {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: the text does not begin with a character.
};

Character first_character(std::string_view text) {
  const auto byte = [&text](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code = first & (0x7fu >> bytes);
  for (std::size_t at = 1; at < bytes; ++at) {
    if ((byte(at) & 0xc0u) != 0x80u) return {};
    code = code << 6 | (byte(at) & 0x3fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[bytes] || code > 0x10ffff || surrogate) return {};
  return {code, bytes};
}

struct Range {
  std::uint32_t first, last;
};
// Characters that a terminal obeys, or that change how those beside them are shown.
constexpr Range kUnsafe[] = {
    {0x00, 0x1f},        // C0.
    {0x7f, 0x9f},        // DEL and C1.
    {0x061c, 0x061c},    // Arabic letter mark.
    {0x200e, 0x200f},    // Left-to-right and right-to-left mark.
    {0x2028, 0x202e},    // Line and paragraph separator; embeddings and overrides.
    {0x2066, 0x206f},    // Isolates, and deprecated format characters.
    {0xfeff, 0xfeff},    // Byte order mark.
    {0xfff9, 0xfffb},    // Interlinear annotation.
    {0xe0000, 0xe007f},  // Tags.
};

bool is_safe(const Character& character) {
  if (character.bytes == 0) return false;
  for (const Range& range : kUnsafe) {
    if (character.code >= range.first && character.code <= range.last) return false;
  }
  return true;
}

}  // namespace

std::string printable(std::string_view text, char substitute) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_character(text);
    const std::size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    if (is_safe(character)) {
      shown += text.substr(0, bytes);
    } else {
      shown += substitute;
    }
    text.remove_prefix(bytes);
  }
  return shown;
}

bool is_printable(std::string_view text) {
  while (!text.empty()) {
    const Character character = first_character(text);
    if (!is_safe(character)) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

}  // namespace gpurun
