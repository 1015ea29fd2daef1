// Cubin with PTX: appends the section, the table of names and the section headers to an ELF image.
#include "driver_abi/cubin_with_ptx.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "driver_abi/elf_sections.h"
#include "driver_abi/fatbin.h"
#include "driver_abi/image_length.h"
#include "driver_abi/linked_image.h"
#include "driver_abi/little_endian.h"

namespace gpurun::driver_abi {
namespace {

constexpr int kInvalidImage = 200;  // CUDA_ERROR_INVALID_IMAGE
constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kAlignment = 8;
// Places in an ELF header, and in a section header.
constexpr std::size_t kTableAt = 40, kStrideAt = 58, kCountAt = 60, kNamesAt = 62;
constexpr std::size_t kTypeAt = 4, kOffsetAt = 24, kBytesAt = 32, kAlignmentAt = 48;
constexpr std::size_t kFatbinSizeAt = 8;
constexpr std::uint32_t kProgramBits = 1;    // SHT_PROGBITS
constexpr std::uint16_t kCountMax = 0xfeff;  // SHN_LORESERVE - 1

template <typename Value>
void put(Bytes* bytes, std::size_t at, Value value) {
  std::memcpy(bytes->data() + at, &value, sizeof value);
}

// Appends `bytes` at a multiple of 8. Returns where they are.
std::uint64_t append(Bytes* out, ByteView bytes) {
  out->resize((out->size() + kAlignment - 1) / kAlignment * kAlignment);
  const std::uint64_t at = out->size();
  out->insert(out->end(), bytes.begin(), bytes.end());
  return at;
}

// ptxas's own name, or that of nvlink with a number.
bool is_debug_section(std::string_view name) {
  constexpr std::string_view kName = kDebugPtxSection;
  return name.substr(0, kName.size()) == kName &&
         (name.size() == kName.size() || name[kName.size()] == '.');
}

std::string text_of_lines(ByteView lines) {
  std::string text(reinterpret_cast<const char*>(lines.data()), lines.size());
  std::replace(text.begin(), text.end(), '\0', '\n');
  return text;
}

// nvlink joins the sections of its inputs, so that several linked images follow each other.
Result<Bytes> one_image(ByteView images) {
  Bytes all;
  while (!images.empty()) {
    const Result<std::uint64_t> length = fatbin_container_bytes(images);
    if (!length.ok()) return length.status();
    if (*length > images.size()) return Status::cuda(kInvalidImage, "PTX that is cut off");
    const ByteView image = images.first(*length);
    const ByteView added = all.empty() ? image : image.subspan(kFatbinContainerHeaderBytes);
    all.insert(all.end(), added.begin(), added.end());
    images = images.subspan(*length);
  }
  if (!all.empty()) {
    put(&all, kFatbinSizeAt, static_cast<std::uint64_t>(all.size() - kFatbinContainerHeaderBytes));
  }
  return all;
}

}  // namespace

Result<Bytes> cubin_with_ptx(ByteView cubin, const std::vector<std::string>& texts) {
  const Result<std::uint64_t> length = elf_image_bytes(cubin);
  if (!length.ok()) return length.status();
  const std::uint64_t table = load_u64(cubin, kTableAt);
  const std::uint16_t stride = load_u16(cubin, kStrideAt);
  const std::uint16_t count = load_u16(cubin, kCountAt);
  const std::uint16_t names = load_u16(cubin, kNamesAt);
  if (table == 0 || stride != kHeaderBytes || count == 0 || count >= kCountMax || names >= count) {
    return Status::cuda(kInvalidImage, "machine code without a usual table of sections");
  }
  const ByteView old_names_header = cubin.subspan(table + names * kHeaderBytes, kHeaderBytes);
  const ByteView old_names =
      cubin.subspan(load_u64(old_names_header, kOffsetAt), load_u64(old_names_header, kBytesAt));
  Bytes out(cubin.begin(), cubin.begin() + static_cast<std::ptrdiff_t>(*length));
  const Bytes image = linked_image(texts);
  const std::uint64_t image_at = append(&out, ByteView(image.data(), image.size()));
  const std::uint64_t names_at = append(&out, old_names);
  const ByteView own = byte_view(kPtxSection, sizeof kPtxSection);
  out.insert(out.end(), own.begin(), own.end());

  Bytes headers(cubin.begin() + static_cast<std::ptrdiff_t>(table),
                cubin.begin() + static_cast<std::ptrdiff_t>(table + count * kHeaderBytes));
  put(&headers, names * kHeaderBytes + kOffsetAt, names_at);
  put(&headers, names * kHeaderBytes + kBytesAt,
      static_cast<std::uint64_t>(old_names.size() + own.size()));
  const std::size_t added = headers.size();
  headers.resize(added + kHeaderBytes);
  put(&headers, added, static_cast<std::uint32_t>(old_names.size()));
  put(&headers, added + kTypeAt, kProgramBits);
  put(&headers, added + kOffsetAt, image_at);
  put(&headers, added + kBytesAt, static_cast<std::uint64_t>(image.size()));
  put(&headers, added + kAlignmentAt, static_cast<std::uint64_t>(kAlignment));
  const std::uint64_t headers_at = append(&out, ByteView(headers.data(), headers.size()));
  put(&out, kTableAt, headers_at);
  put(&out, kCountAt, static_cast<std::uint16_t>(count + 1));
  return out;
}

Result<Bytes> carried_ptx(ByteView elf) {
  const Result<std::vector<ElfSection>> sections = elf_sections(elf);
  if (!sections.ok()) return sections.status();
  std::vector<std::string> debug;
  for (const ElfSection& section : *sections) {
    if (section.name == kPtxSection) return one_image(section.bytes);
    if (!is_debug_section(section.name)) continue;
    std::string text = text_of_lines(section.bytes);
    if (text.find(".version") != std::string::npos) debug.push_back(std::move(text));
  }
  if (debug.empty()) return Bytes();
  return linked_image(debug);
}

}  // namespace gpurun::driver_abi
