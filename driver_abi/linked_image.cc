// Linked image: lays out the container. See fatbin.h for its form.
#include "driver_abi/linked_image.h"

#include <cstdint>
#include <cstring>

namespace gpurun::driver_abi {

Bytes linked_image(const std::vector<std::string>& texts) {
  constexpr std::size_t kNameAt = kFatbinEntryHeaderBytes;
  constexpr std::size_t kEntryHeader = kNameAt + 16;
  static_assert(sizeof kLinkedEntryName <= 16);
  Bytes out(kFatbinContainerHeaderBytes);
  const auto put = [&out](std::size_t at, auto value) {
    std::memcpy(out.data() + at, &value, sizeof value);
  };
  for (const std::string& text : texts) {
    const std::size_t entry = out.size();
    const std::size_t padded = (text.size() + 1 + 7) / 8 * 8;
    out.resize(entry + kEntryHeader + padded);
    put(entry, static_cast<std::uint16_t>(FatbinKind::kPtx));
    put(entry + 2, std::uint16_t{0x0101});  // Version of the entry.
    put(entry + 4, static_cast<std::uint32_t>(kEntryHeader));
    put(entry + 8, static_cast<std::uint64_t>(padded));
    put(entry + 26, std::uint16_t{8});  // Major version of the language.
    put(entry + 28, std::uint32_t{75});
    put(entry + 32, static_cast<std::uint32_t>(kNameAt));
    put(entry + 36, static_cast<std::uint32_t>(sizeof kLinkedEntryName - 1));
    put(entry + 40, kFatbinFlag64Bit);
    std::memcpy(out.data() + entry + kNameAt, kLinkedEntryName, sizeof kLinkedEntryName - 1);
    std::memcpy(out.data() + entry + kEntryHeader, text.data(), text.size());
  }
  put(0, kFatbinContainerMagic);
  put(4, std::uint16_t{1});
  put(6, static_cast<std::uint16_t>(kFatbinContainerHeaderBytes));
  put(8, static_cast<std::uint64_t>(out.size() - kFatbinContainerHeaderBytes));
  return out;
}

bool is_linked_entry(const FatbinEntry& entry) {
  return entry.kind == FatbinKind::kPtx && entry.name == kLinkedEntryName;
}

Result<std::string> ptx_text(const FatbinEntry& entry) {
  const Result<Bytes> content = fatbin_content(entry);
  if (!content.ok()) return content.status();
  std::string text(reinterpret_cast<const char*>(content->data()), content->size());
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

}  // namespace gpurun::driver_abi
