// Image length: finds the form and length of code images that arrive as a bare pointer.
#include "driver_abi/image_length.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "driver_abi/fatbin.h"
#include "driver_abi/little_endian.h"
#include "driver_abi/tile_ir_layout.h"

namespace gpurun::driver_abi {
namespace {

constexpr int kInvalidValue = 1;    // CUDA_ERROR_INVALID_VALUE
constexpr int kInvalidImage = 200;  // CUDA_ERROR_INVALID_IMAGE
constexpr std::uint64_t kWrapperBytes = 24;
constexpr std::uint64_t kElfHeaderBytes = 64;
constexpr std::uint64_t kSectionHeaderBytes = 64;
constexpr std::uint64_t kProgramHeaderBytes = 56;
constexpr std::uint32_t kSectionWithoutBytes = 8;  // SHT_NOBITS
constexpr std::uint32_t kElfMagic = 0x464c457f;

Status invalid(std::string message) {
  return Status::cuda(kInvalidImage, "code image: " + std::move(message));
}

// Extends the end by a table or section. Fails when it lies outside.
Status extend(std::uint64_t offset, std::uint64_t length, std::uint64_t limit, std::uint64_t* end) {
  if (offset > limit || length > limit - offset)
    return invalid("an ELF table or section lies outside the image");
  *end = std::max(*end, offset + length);
  return {};
}

Status extend_by_table(std::uint64_t offset, std::uint64_t count, std::uint64_t entry_bytes,
                       std::uint64_t limit, std::uint64_t* end) {
  if (count == 0) return {};
  if (entry_bytes == 0 || count > limit / entry_bytes)
    return invalid("an ELF header table is longer than the image");
  return extend(offset, count * entry_bytes, limit, end);
}

Status extend_by_sections(ByteView bytes, std::uint64_t* end) {
  const std::uint64_t offset = load_u64(bytes, 40);
  const std::uint64_t entry_bytes = load_u16(bytes, 58);
  std::uint64_t count = load_u16(bytes, 60);
  if (offset == 0) return {};
  if (entry_bytes < kSectionHeaderBytes) return invalid("ELF section headers are too short");
  GPURUN_RETURN_IF_ERROR(extend_by_table(offset, 1, entry_bytes, bytes.size(), end));
  // With too many sections for 16 bits, section 0 holds their count (ELF specification, e_shnum).
  if (count == 0) count = load_u64(bytes, offset + 32);
  GPURUN_RETURN_IF_ERROR(extend_by_table(offset, count, entry_bytes, bytes.size(), end));
  for (std::uint64_t i = 0; i < count; ++i) {
    const ByteView header = bytes.subspan(offset + i * entry_bytes, kSectionHeaderBytes);
    if (load_u32(header, 4) == kSectionWithoutBytes || load_u32(header, 4) == 0) continue;
    GPURUN_RETURN_IF_ERROR(extend(load_u64(header, 24), load_u64(header, 32), bytes.size(), end));
  }
  return {};
}

// PTX begins with white space, a comment or a directive. Other printable content counts as text
// too, and the assembler refuses it with its own code.
bool looks_like_text(ByteView bytes) {
  const std::size_t looked_at = std::min<std::size_t>(bytes.size(), 16);
  for (std::size_t i = 0; i < looked_at; ++i) {
    const auto c = static_cast<unsigned char>(bytes[i]);
    if (c == 0) return i > 0;
    if (c < 0x20 && c != '\t' && c != '\n' && c != '\r' && c != '\f' && c != '\v') return false;
    if (c == 0x7f) return false;
    if (i == 0 && c >= 0x80 && c != 0xef) return false;  // 0xef: a byte order mark.
  }
  return looked_at > 0;
}

Result<Image> text_image(ByteView bytes, bool needs_nul) {
  if (!looks_like_text(bytes)) return invalid("neither fat binary, ELF, Tile IR nor PTX text");
  const void* nul = std::memchr(bytes.data(), 0, bytes.size());
  if (nul == nullptr && needs_nul) return invalid("PTX text does not end");
  const std::size_t length =
      nul == nullptr ? bytes.size()
                     : static_cast<std::size_t>(static_cast<const std::byte*>(nul) - bytes.data());
  return Image{ImageForm::kPtx, 0, {bytes.first(length)}};
}

Result<ByteView> container_in(ByteView bytes) {
  const Result<std::uint64_t> length =
      fatbin_container_bytes(bytes.first(std::min<std::size_t>(bytes.size(), 16)));
  if (!length.ok()) return length.status();
  if (*length > bytes.size()) return invalid("the fat binary is cut or too long");
  return bytes.first(*length);
}

// `bytes` may claim more than is mapped. Only bytes that the image itself declares are read, front
// to back. So the magic is read byte by byte before anything longer.
bool begins_with(ByteView bytes, std::uint32_t magic) {
  for (std::size_t i = 0; i < 4; ++i) {
    if (i >= bytes.size()) return false;
    if (static_cast<std::uint32_t>(bytes[i]) != ((magic >> (8 * i)) & 0xff)) return false;
  }
  return true;
}

Result<Image> plain_image(ByteView bytes, bool needs_nul) {
  if (begins_with(bytes, kFatbinContainerMagic)) {
    const Result<ByteView> container = container_in(bytes);
    if (!container.ok()) return container.status();
    return Image{ImageForm::kContainer, 0, {*container}};
  }
  if (begins_with(bytes, kElfMagic)) {
    const Result<std::uint64_t> length = elf_image_bytes(bytes);
    if (!length.ok()) return length.status();
    return Image{ImageForm::kElf, 0, {bytes.first(*length)}};
  }
  if (is_tile_ir(bytes)) {
    const Result<TileIrLayout> layout = tile_ir_layout(bytes);
    if (!layout.ok()) return layout.status();
    return Image{ImageForm::kTileIr, 0, {bytes.first(layout->bytes)}};
  }
  return text_image(bytes, needs_nul);
}

Result<ByteView> container_at(const void* start, std::uint64_t bytes_max) {
  if (start == nullptr) return invalid("a fat binary wrapper names no container");
  return container_in(byte_view(start, bytes_max));
}

Result<Image> wrapper_image(ByteView wrapper, std::uint64_t bytes_max) {
  if (wrapper.size() < kWrapperBytes) return invalid("the fat binary wrapper is cut");
  Image image{ImageForm::kWrapper, load_u32(wrapper, 4), {}};
  if (image.wrapper_version != 1 && image.wrapper_version != 2)
    return invalid("the fat binary wrapper's version is neither 1 nor 2");
  const auto* data = load_unaligned<const void*>(wrapper, 8);
  const auto* aux = load_unaligned<const std::byte*>(wrapper, 16);
  const Result<ByteView> first = container_at(data, bytes_max);
  if (!first.ok()) return first.status();
  image.pieces.push_back(*first);
  if (image.wrapper_version == 1 || aux == nullptr) return image;

  for (std::size_t i = 0;; ++i) {
    if (i == kWrapperContainersMax) return invalid("the wrapper's list of containers is endless");
    const void* object = nullptr;
    std::memcpy(&object, aux + i * sizeof object, sizeof object);
    if (object == nullptr) return image;
    const Result<ByteView> container = container_at(object, bytes_max);
    if (!container.ok()) return container.status();
    image.pieces.push_back(*container);
  }
}

}  // namespace

Result<std::uint64_t> elf_image_bytes(ByteView bytes) {
  if (bytes.size() < kElfHeaderBytes || !begins_with(bytes, kElfMagic))
    return invalid("the ELF header is cut or missing");
  // 64-bit, little-endian. CUDA has made no other since version 11.
  if (bytes[4] != std::byte{2} || bytes[5] != std::byte{1})
    return invalid("an ELF image that is not 64-bit little-endian");
  std::uint64_t end = kElfHeaderBytes;
  const std::uint64_t program_count = load_u16(bytes, 56);
  const std::uint64_t program_bytes = load_u16(bytes, 54);
  if (program_count > 0 && program_bytes < kProgramHeaderBytes)
    return invalid("ELF program headers are too short");
  GPURUN_RETURN_IF_ERROR(
      extend_by_table(load_u64(bytes, 32), program_count, program_bytes, bytes.size(), &end));
  GPURUN_RETURN_IF_ERROR(extend_by_sections(bytes, &end));
  return end;
}

Result<Image> image_at(const void* image, std::uint64_t bytes_max) {
  if (image == nullptr) return Status::cuda(kInvalidValue, "code image: NULL");
  bytes_max = std::min(bytes_max, kImagePieceBytesMax);
  const ByteView bytes = byte_view(image, bytes_max);
  if (begins_with(bytes, kFatbinWrapperMagic)) return wrapper_image(bytes, bytes_max);
  return plain_image(bytes, true);
}

Result<Image> image_in(ByteView bytes) {
  if (bytes.size() > kImagePieceBytesMax)
    return Status(Code::kTooLarge, "code image: longer than 2 GiB");
  if (begins_with(bytes, kFatbinWrapperMagic))
    return invalid("a fat binary wrapper outside the process that made it");
  return plain_image(bytes, false);
}

}  // namespace gpurun::driver_abi
