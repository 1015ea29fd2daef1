// Tile IR builder: builds images from the layout in driver_abi/tile_ir_layout.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace gpurun::test {

// Seven bits a byte, the lowest first. Bit 7: more bytes follow.
inline void put_varint(std::string* out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>((value & 0x7f) | 0x80));
  out->push_back(static_cast<char>(value));
}

inline void pad_to(std::string* out, std::size_t alignment) {
  while (out->size() % alignment != 0) out->push_back('\xcb');
}

inline std::string tile_ir_header(int minor = 1) {
  std::string out("\x7fTileIR\0\x0d\x01\0\0", 12);
  out[9] = static_cast<char>(minor);
  return out;
}

// `alignment` 0: the section has no alignment.
inline void put_section(std::string* out, unsigned number, std::string_view content,
                        std::size_t alignment = 0) {
  out->push_back(static_cast<char>(number | (alignment != 0 ? 0x80u : 0u)));
  put_varint(out, content.size());
  if (alignment != 0) {
    put_varint(out, alignment);
    pad_to(out, alignment);
  }
  out->append(content);
}

inline std::string build_tile_ir(
    std::initializer_list<std::pair<unsigned, std::string_view>> sections,
    std::size_t alignment = 8) {
  std::string out = tile_ir_header();
  for (const auto& [number, content] : sections) put_section(&out, number, content, alignment);
  out.push_back('\0');
  return out;
}

}  // namespace gpurun::test
