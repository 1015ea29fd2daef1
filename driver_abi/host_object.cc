// Host objects: walks archives, section headers, and the containers of a section.
#include "driver_abi/host_object.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "driver_abi/elf_sections.h"
#include "driver_abi/fatbin.h"
#include "driver_abi/little_endian.h"

namespace gpurun::driver_abi {
namespace {

constexpr int kInvalidImage = 200;  // CUDA_ERROR_INVALID_IMAGE
constexpr std::string_view kArchiveMagic = "!<arch>\n";
constexpr std::size_t kMemberHeaderBytes = 60;
constexpr std::size_t kMemberSizeAt = 48;  // Ten decimal digits, padded with spaces.

Status damaged(const std::string& what) {
  return Status::cuda(kInvalidImage, "object with device code: " + what);
}

std::string_view as_text(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Containers follow each other, each at a multiple of 8, with zeros between.
Status add_containers(ByteView section, std::vector<ByteView>* found) {
  std::size_t at = 0;
  while (section.size() - at >= kFatbinContainerHeaderBytes) {
    const ByteView rest = section.subspan(at);
    if (load_u32(rest, 0) != kFatbinContainerMagic) {
      if (load_u32(rest, 0) != 0) return damaged("a section of fat binaries has something else");
      at += 4;
      continue;
    }
    const Result<std::uint64_t> bytes =
        fatbin_container_bytes(rest.first(kFatbinContainerHeaderBytes));
    if (!bytes.ok()) return bytes.status();
    if (*bytes > rest.size() || *bytes == 0) return damaged("a fat binary is cut");
    if (found->size() == kObjectContainersMax) return damaged("too many fat binaries");
    found->push_back(rest.first(*bytes));
    at += *bytes;
  }
  return {};
}

Status add_object(ByteView object, std::vector<ByteView>* found) {
  const Result<std::vector<ElfSection>> sections = elf_sections(object);
  if (!sections.ok()) return sections.status();
  for (const ElfSection& section : *sections) {
    if (section.name != ".nv_fatbin" && section.name != "__nv_relfatbin") continue;
    GPURUN_RETURN_IF_ERROR(add_containers(section.bytes, found));
  }
  return {};
}

// Reads the decimal number in a member's header, or fails.
Result<std::uint64_t> member_bytes(std::string_view digits) {
  digits = digits.substr(0, digits.find(' '));
  std::uint64_t number = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return damaged("an archive's member has no length");
    number = number * 10 + static_cast<std::uint64_t>(c - '0');  // Ten digits: no overflow.
  }
  if (digits.empty()) return damaged("an archive's member has no length");
  return number;
}

Status add_archive(ByteView archive, std::vector<ByteView>* found) {
  std::size_t at = kArchiveMagic.size();
  while (archive.size() - at >= kMemberHeaderBytes) {
    const std::string_view header = as_text(archive.subspan(at, kMemberHeaderBytes));
    const Result<std::uint64_t> bytes = member_bytes(header.substr(kMemberSizeAt, 10));
    if (!bytes.ok()) return bytes.status();
    at += kMemberHeaderBytes;
    if (*bytes > archive.size() - at) return damaged("an archive is cut");
    const ByteView member = archive.subspan(at, *bytes);
    if (is_elf(member)) GPURUN_RETURN_IF_ERROR(add_object(member, found));
    at += std::min<std::size_t>(*bytes + *bytes % 2, archive.size() - at);
  }
  return {};
}

}  // namespace

bool is_archive(ByteView bytes) {
  return as_text(bytes).substr(0, kArchiveMagic.size()) == kArchiveMagic;
}

Result<std::vector<ByteView>> containers_in_object(ByteView bytes) {
  std::vector<ByteView> found;
  const Status status = is_archive(bytes) ? add_archive(bytes, &found)
                        : is_elf(bytes)   ? add_object(bytes, &found)
                                          : damaged("neither an ELF object nor an archive");
  if (!status.ok()) return status;
  return found;
}

}  // namespace gpurun::driver_abi
