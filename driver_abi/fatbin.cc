// Fat binaries: the reader checks every length against the remaining bytes before using it.
#include "driver_abi/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <limits>

#include "driver_abi/little_endian.h"

namespace gpurun::driver_abi {
namespace {

constexpr int kInvalidImage = 200;  // CUDA_ERROR_INVALID_IMAGE

Status invalid(std::string message) {
  return Status::cuda(kInvalidImage, "fat binary: " + std::move(message));
}

// A text inside the entry's header. Text out of bounds reads as empty. Only messages use it, and an
// image that runs elsewhere must not fail here for its comment.
std::string_view header_text(ByteView header, std::uint64_t offset, std::uint64_t length) {
  if (offset == 0 || offset > header.size() || length > header.size() - offset) return {};
  const auto* text = reinterpret_cast<const char*>(header.data() + offset);
  std::string_view view(text, length);
  return view.substr(0, view.find('\0'));
}

FatbinCompression compression_of(std::uint64_t flags) {
  if ((flags & kFatbinFlagZstd) != 0) return FatbinCompression::kZstd;
  if ((flags & kFatbinFlagLz4) != 0) return FatbinCompression::kLz4;
  return FatbinCompression::kNone;
}

// Reads the entry at the start of `rest` and returns its size with padding.
Result<std::uint64_t> read_entry(ByteView rest, FatbinEntry* entry) {
  if (rest.size() < kFatbinEntryHeaderBytes) return invalid("the last entry's header is cut");
  const std::uint32_t header_bytes = load_u32(rest, 4);
  if (header_bytes < kFatbinEntryHeaderBytes || header_bytes > rest.size())
    return invalid("an entry's header size is out of bounds");
  const std::uint64_t padded_bytes = load_u64(rest, 8);
  if (padded_bytes > rest.size() - header_bytes)
    return invalid("an entry's payload is longer than the container");

  const ByteView header = rest.first(header_bytes);
  entry->kind = static_cast<FatbinKind>(load_u16(rest, 0));
  entry->minor = load_u16(rest, 24);
  entry->major = load_u16(rest, 26);
  entry->arch = load_u32(rest, 28);
  entry->flags = load_u64(rest, 40);
  entry->name = header_text(header, load_u32(rest, 32), load_u32(rest, 36));
  entry->options = {};
  const std::uint32_t options_at = load_u32(rest, 20);
  if (options_at >= kFatbinEntryHeaderBytes && options_at + std::uint64_t{8} <= header.size()) {
    entry->options =
        header_text(header, load_u32(rest, options_at), load_u32(rest, options_at + 4));
  }

  const std::uint32_t compressed_bytes = load_u32(rest, 16);
  if (compressed_bytes > padded_bytes)
    return invalid("an entry's compressed size is larger than its payload");
  const ByteView payload = rest.subspan(header_bytes, padded_bytes);
  // A compressed size of 0 means "stored as it is", whatever the flags.
  entry->compression =
      compressed_bytes == 0 ? FatbinCompression::kNone : compression_of(entry->flags);
  if (compressed_bytes != 0 && entry->compression == FatbinCompression::kNone)
    return invalid("an entry is compressed in an unknown way");
  const bool plain = entry->compression == FatbinCompression::kNone;
  entry->stored = plain ? payload : payload.first(compressed_bytes);
  entry->content_bytes = plain ? padded_bytes : load_u64(rest, 56);
  return header_bytes + padded_bytes;
}

Result<Bytes> decompress_lz4(ByteView stored, std::uint64_t content_bytes) {
  constexpr auto kIntMax = static_cast<std::uint64_t>(std::numeric_limits<int>::max());
  // An LZ4 block cannot grow more than 255 times. Do not allocate for an impossible claim.
  if (stored.size() > kIntMax || content_bytes > kIntMax || content_bytes / 255 > stored.size())
    return invalid("an LZ4 entry claims an impossible size");
  Bytes content(content_bytes);
  const int written = LZ4_decompress_safe(
      reinterpret_cast<const char*>(stored.data()), reinterpret_cast<char*>(content.data()),
      static_cast<int>(stored.size()), static_cast<int>(content_bytes));
  if (written < 0 || static_cast<std::uint64_t>(written) != content_bytes)
    return invalid("an LZ4 entry does not decompress to its size");
  return content;
}

// Frees the context on every way out.
struct ZstdContext {
  ZSTD_DStream* stream = ZSTD_createDStream();
  ~ZstdContext() { ZSTD_freeDStream(stream); }
};

Result<Bytes> decompress_zstd(ByteView stored, std::uint64_t content_bytes) {
  constexpr std::size_t kFirstBytes = 64 << 10;
  const ZstdContext context;
  if (context.stream == nullptr) return Status(Code::kResourceExhausted, "fat binary: zstd");
  ZSTD_inBuffer input{stored.data(), stored.size(), 0};
  Bytes content;
  std::size_t filled = 0;
  // The output grows with the decompressed bytes, so that a false header costs no memory.
  for (;;) {
    if (filled == content.size())
      content.resize(std::min<std::uint64_t>(content_bytes, std::max(kFirstBytes, 2 * filled)));
    ZSTD_outBuffer output{content.data(), content.size(), filled};
    const std::size_t read_before = input.pos;
    const std::size_t left = ZSTD_decompressStream(context.stream, &output, &input);
    if (ZSTD_isError(left) != 0) return invalid("a zstd entry is damaged");
    const bool moved = output.pos != filled || input.pos != read_before;
    filled = output.pos;
    if (left == 0 && input.pos == input.size) break;  // The last frame is complete.
    if (!moved && (filled == content_bytes || input.pos == input.size)) break;
  }
  if (filled != content_bytes || input.pos != input.size)
    return invalid("a zstd entry does not decompress to its size");
  return content;
}

}  // namespace

Result<std::uint64_t> fatbin_container_bytes(ByteView start) {
  if (start.size() < kFatbinContainerHeaderBytes) return invalid("the container's header is cut");
  if (load_u32(start, 0) != kFatbinContainerMagic) return invalid("no container magic");
  if (load_u16(start, 4) != 1) return invalid("the container's version is not 1");
  if (load_u16(start, 6) != kFatbinContainerHeaderBytes)
    return invalid("the container's header size is not 16");
  const std::uint64_t entries_bytes = load_u64(start, 8);
  if (entries_bytes > std::numeric_limits<std::uint64_t>::max() - kFatbinContainerHeaderBytes)
    return invalid("the container's size is out of bounds");
  return kFatbinContainerHeaderBytes + entries_bytes;
}

Result<std::vector<FatbinEntry>> read_fatbin(ByteView container) {
  const Result<std::uint64_t> total = fatbin_container_bytes(container);
  if (!total.ok()) return total.status();
  if (*total > container.size()) return invalid("the container is cut");
  ByteView rest = container.first(*total).subspan(kFatbinContainerHeaderBytes);

  std::vector<FatbinEntry> entries;
  while (!rest.empty()) {
    if (entries.size() == kFatbinEntriesMax)
      return Status(Code::kTooLarge, "fat binary: more than 65536 entries");
    FatbinEntry entry{};
    const Result<std::uint64_t> taken = read_entry(rest, &entry);
    if (!taken.ok()) return taken.status();
    entries.push_back(entry);
    rest = rest.subspan(*taken);
  }
  return entries;
}

Result<Bytes> fatbin_content(const FatbinEntry& entry, std::size_t bytes_max) {
  if (entry.content_bytes > bytes_max)
    return Status(Code::kTooLarge, "fat binary: an entry's content is over the limit");
  switch (entry.compression) {
    case FatbinCompression::kNone:
      return Bytes(entry.stored.begin(), entry.stored.end());
    case FatbinCompression::kLz4:
      return decompress_lz4(entry.stored, entry.content_bytes);
    case FatbinCompression::kZstd:
      return decompress_zstd(entry.stored, entry.content_bytes);
  }
  return Status(Code::kInternal, "fat binary: unknown compression");
}

std::string describe_entries(const std::vector<FatbinEntry>& entries) {
  std::string text;
  for (const FatbinEntry& entry : entries) {
    std::string item;
    switch (entry.kind) {
      case FatbinKind::kPtx:
        item = "ptx ";
        break;
      case FatbinKind::kElf:
        item = "elf ";
        break;
      case FatbinKind::kNvvm:
        item = "nvvm ";
        break;
      default:
        item = "kind " + std::to_string(static_cast<unsigned>(entry.kind)) + " ";
    }
    item += std::to_string(entry.arch);
    if (entry.arch_specific()) item += 'a';
    if (entry.family_specific()) item += 'f';
    // One mention is enough, and a hostile container must not make an endless line.
    item += ", ";
    const std::size_t seen = text.find(item);
    const bool again = seen == 0 || (seen != std::string::npos && text[seen - 1] == ' ');
    if (!again && text.size() < 512) text += item;
  }
  if (text.empty()) return "nothing";
  text.resize(text.size() - 2);
  return text;
}

}  // namespace gpurun::driver_abi
