// Tile IR layout: walks the section headers of Tile IR. Reads no byte of a section.
#include "driver_abi/tile_ir_layout.h"

#include <string>

namespace gpurun::driver_abi {
namespace {

constexpr int kInvalidImage = 200;  // CUDA_ERROR_INVALID_IMAGE
constexpr std::array<unsigned char, 8> kMagic = {0x7f, 'T', 'i', 'l', 'e', 'I', 'R', 0};
constexpr std::uint64_t kHeaderBytes = kMagic.size() + 4;
constexpr std::uint8_t kMajorMin = 13;  // The first version.
constexpr unsigned char kAligned = 0x80;

Status invalid(const std::string& what, std::uint64_t at) {
  return Status::cuda(kInvalidImage, "Tile IR image: " + what + " at byte " + std::to_string(at));
}

struct Walk {
  ByteView bytes;
  std::uint64_t at = 0;

  std::uint64_t left() const { return bytes.size() - at; }

  // Reads a number of at most `max`, seven bits a byte, the lowest first.
  Status number(const std::string& what, std::uint64_t max, std::uint64_t* value) {
    const std::uint64_t start = at;
    *value = 0;
    for (unsigned shift = 0;; shift += 7) {
      if (left() == 0) return invalid(what + " is cut", at);
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      // The callers' bounds fit into 35 bits.
      if (shift > 28) return invalid(what + " has too many bytes", start);
      *value |= std::uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) break;
    }
    if (*value > max) {
      return invalid(what + " is " + std::to_string(*value) + ", over " + std::to_string(max),
                     start);
    }
    return {};
  }

  Status align(const std::string& section) {
    std::uint64_t alignment = 0;
    const std::uint64_t start = at;
    GPURUN_RETURN_IF_ERROR(number("the alignment of " + section, kTileIrAlignmentMax, &alignment));
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
      return invalid("the alignment of " + section + " is no power of two", start);
    }
    const std::uint64_t padding = (alignment - at % alignment) % alignment;
    if (padding > left()) return invalid("the padding of " + section + " is cut", at);
    at += padding;
    return {};
  }
};

}  // namespace

bool is_tile_ir(ByteView bytes) noexcept {
  for (std::size_t i = 0; i < kMagic.size(); ++i) {
    if (i == bytes.size() || bytes[i] != std::byte{kMagic[i]}) return false;
  }
  return true;
}

Result<TileIrLayout> tile_ir_layout(ByteView bytes) {
  if (!is_tile_ir(bytes)) return invalid("no Tile IR", 0);
  if (bytes.size() < kHeaderBytes) return invalid("the version is cut", bytes.size());
  TileIrLayout layout{};
  layout.major = static_cast<std::uint8_t>(bytes[kMagic.size()]);
  layout.minor = static_cast<std::uint8_t>(bytes[kMagic.size() + 1]);
  if (layout.major < kMajorMin) return invalid("a version that there is not", kMagic.size());
  std::array<bool, kTileIrSections> seen{};
  for (Walk walk{bytes, kHeaderBytes};;) {
    const std::uint64_t start = walk.at;
    if (walk.left() == 0) return invalid("the sections do not end", start);
    const auto head = static_cast<unsigned char>(bytes[walk.at++]);
    const std::size_t number = head & 0x7fu;
    const std::string section = "section " + std::to_string(number);
    if (number == 0) {
      if ((head & kAligned) != 0) return invalid("an end that is aligned", start);
      layout.bytes = walk.at;
      return layout;
    }
    if (number >= kTileIrSections) return invalid("unknown " + section, start);
    if (seen[number]) return invalid("a second " + section, start);
    seen[number] = true;
    std::uint64_t length = 0;
    GPURUN_RETURN_IF_ERROR(
        walk.number("the length of " + section, kTileIrSectionBytesMax, &length));
    if ((head & kAligned) != 0) GPURUN_RETURN_IF_ERROR(walk.align(section));
    if (length > walk.left()) return invalid(section + " is cut", start);
    layout.sections[number] = bytes.subspan(walk.at, length);
    walk.at += length;
  }
}

}  // namespace gpurun::driver_abi
