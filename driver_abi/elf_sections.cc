// ELF sections: walks the section headers, which elf_image_bytes() has checked.
#include "driver_abi/elf_sections.h"

#include "driver_abi/image_length.h"
#include "driver_abi/little_endian.h"

namespace gpurun::driver_abi {
namespace {

constexpr std::size_t kSectionHeaderBytes = 64;
constexpr std::uint32_t kSectionWithoutBytes = 8;  // SHT_NOBITS
constexpr std::string_view kElfMagic =
    "\x7f"
    "ELF";

std::string_view as_text(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ByteView section_bytes(ByteView object, ByteView header) {
  const std::uint32_t type = load_u32(header, 4);
  if (type == 0 || type == kSectionWithoutBytes) return {};
  return object.subspan(load_u64(header, 24), load_u64(header, 32));
}

}  // namespace

bool is_elf(ByteView bytes) { return as_text(bytes).substr(0, kElfMagic.size()) == kElfMagic; }

Result<std::vector<ElfSection>> elf_sections(ByteView object) {
  const Result<std::uint64_t> bytes = elf_image_bytes(object);
  if (!bytes.ok()) return bytes.status();
  std::vector<ElfSection> sections;
  const std::uint64_t table = load_u64(object, 40);
  if (table == 0) return sections;
  const std::uint64_t stride = load_u16(object, 58);
  const auto header = [&](std::uint64_t index) {
    return object.subspan(table + index * stride, kSectionHeaderBytes);
  };
  // Section 0 holds what does not fit into 16 bits (ELF specification, e_shnum and e_shstrndx).
  std::uint64_t count = load_u16(object, 60);
  if (count == 0) count = load_u64(header(0), 32);
  std::uint64_t names_index = load_u16(object, 62);
  if (names_index == 0xffff) names_index = load_u32(header(0), 40);
  if (names_index >= count) return sections;
  const std::string_view names = as_text(section_bytes(object, header(names_index)));
  for (std::uint64_t index = 0; index < count; ++index) {
    const std::uint32_t name_at = load_u32(header(index), 0);
    if (name_at >= names.size()) continue;
    const std::string_view rest = names.substr(name_at);
    sections.push_back({rest.substr(0, rest.find('\0')), section_bytes(object, header(index))});
  }
  return sections;
}

}  // namespace gpurun::driver_abi
