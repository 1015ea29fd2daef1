// Fat binary builder: builds containers for tests, from the documented layout and not from the
// reader's code.
#pragma once

#include <lz4.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace gpurun::test {

enum class Packing { kPlain, kLz4, kZstd };

struct EntrySpec {
  std::uint16_t kind = 1;
  std::uint32_t arch = 80;
  std::uint64_t flags = 0x11;
  std::string content = {};
  Packing packing = Packing::kPlain;
  std::string name = {};
  std::string options = {};
};

inline void put(std::string* out, std::size_t offset, std::uint64_t value, std::size_t bytes) {
  std::memcpy(out->data() + offset, &value, bytes);
}

inline std::string pack(const EntrySpec& spec) {
  if (spec.packing == Packing::kPlain) return spec.content;
  const auto size = static_cast<int>(spec.content.size());
  if (spec.packing == Packing::kLz4) {
    std::string out(static_cast<std::size_t>(LZ4_compressBound(size)), '\0');
    out.resize(static_cast<std::size_t>(
        LZ4_compress_default(spec.content.data(), out.data(), size, static_cast<int>(out.size()))));
    return out;
  }
  std::string out(ZSTD_compressBound(spec.content.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), spec.content.data(), spec.content.size(), 3));
  return out;
}

inline std::string build_entry(const EntrySpec& spec) {
  const std::size_t name_at = spec.options.empty() ? 64 : 72 + spec.options.size();
  std::size_t header_bytes = name_at + spec.name.size();
  header_bytes = (header_bytes + 15) / 16 * 16;
  std::string payload = pack(spec);
  const std::size_t packed_bytes = payload.size();
  payload.resize((payload.size() + 7) / 8 * 8, '\0');

  std::string header(header_bytes, '\0');
  put(&header, 0, spec.kind, 2);
  put(&header, 2, 0x0101, 2);
  put(&header, 4, header_bytes, 4);
  put(&header, 8, payload.size(), 8);
  std::uint64_t flags = spec.flags;
  if (spec.packing != Packing::kPlain) {
    put(&header, 16, packed_bytes, 4);
    put(&header, 56, spec.content.size(), 8);
    flags |= spec.packing == Packing::kLz4 ? 0x2000 : 0x8000;
  }
  if (!spec.options.empty()) {
    put(&header, 20, 64, 4);
    put(&header, 64, 72, 4);
    put(&header, 68, spec.options.size(), 4);
    header.replace(72, spec.options.size(), spec.options);
  }
  put(&header, 24, 0, 2);
  put(&header, 26, 9, 2);
  put(&header, 28, spec.arch, 4);
  if (!spec.name.empty()) {
    put(&header, 32, name_at, 4);
    put(&header, 36, spec.name.size(), 4);
    header.replace(name_at, spec.name.size(), spec.name);
  }
  put(&header, 40, flags, 8);
  return header + payload;
}

inline std::string build_container(const std::vector<EntrySpec>& specs) {
  std::string entries;
  for (const EntrySpec& spec : specs) entries += build_entry(spec);
  std::string out(16, '\0');
  put(&out, 0, 0xba55ed50, 4);
  put(&out, 4, 1, 2);
  put(&out, 6, 16, 2);
  put(&out, 8, entries.size(), 8);
  return out + entries;
}

// A heap copy of exactly `text.size()` bytes, so that AddressSanitizer detects a read beyond it.
class Exact {
 public:
  explicit Exact(const std::string& text) : bytes_(new char[text.size()]), size_(text.size()) {
    std::memcpy(bytes_, text.data(), text.size());
  }
  ~Exact() { delete[] bytes_; }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;
  ByteView view() const { return byte_view(bytes_, size_); }

 private:
  char* bytes_;
  std::size_t size_;
};

}  // namespace gpurun::test
