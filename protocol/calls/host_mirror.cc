// Host mirror: comparison and merge of lines. The program, or the device, writes to a copy while
// this code reads it. So each byte is read once into a private line, and written only if it
// changes.
#include "protocol/calls/host_mirror.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <vector>

// These reads and writes race with those of the program by design, as those of a device would.
#if defined(__SANITIZE_THREAD__)
#define GPURUN_RACES __attribute__((no_sanitize("thread")))
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GPURUN_RACES __attribute__((no_sanitize("thread")))
#endif
#endif
#ifndef GPURUN_RACES
#define GPURUN_RACES
#endif

namespace gpurun::protocol {
namespace {

constexpr std::size_t kWords = kMirrorLineBytes / sizeof(std::uint64_t);
using Line = std::array<std::uint64_t, kWords>;

// Copies and twins begin at pages, so that their lines have whole words.
GPURUN_RACES std::uint64_t word_at(const std::byte* memory, std::size_t word) {
  return reinterpret_cast<const std::uint64_t*>(memory)[word];
}

GPURUN_RACES bool differs(const std::byte* copy, const std::byte* twin) {
  std::uint64_t difference = 0;
  for (std::size_t i = 0; i < kWords; ++i) difference |= word_at(copy, i) ^ word_at(twin, i);
  return difference != 0;
}

GPURUN_RACES Line read_line(const std::byte* copy) {
  Line line;
  for (std::size_t i = 0; i < kWords; ++i) line[i] = word_at(copy, i);
  return line;
}

constexpr std::uint64_t kLow = 0x0101010101010101u;
// Whether a byte of the word is 0.
constexpr bool has_zero_byte(std::uint64_t word) {
  return ((word - kLow) & ~word & (kLow << 7)) != 0;
}

GPURUN_RACES void write_word(std::byte* copy, std::uint64_t word, std::uint64_t difference) {
  if (!has_zero_byte(difference)) {
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(copy), word, __ATOMIC_RELAXED);
    return;
  }
  std::array<std::uint8_t, sizeof word> bytes{}, differing{};
  std::memcpy(bytes.data(), &word, sizeof word);
  std::memcpy(differing.data(), &difference, sizeof word);
  for (std::size_t i = 0; i < sizeof word; ++i) {
    if (differing[i] == 0) continue;
    __atomic_store_n(reinterpret_cast<std::uint8_t*>(copy) + i, bytes[i], __ATOMIC_RELAXED);
  }
}

}  // namespace

bool MirrorWriter::add(std::uint64_t address, const std::byte* line) {
  const bool follows = size_ != 0 && last_.address + last_.bytes == address;
  const std::size_t needed = kMirrorLineBytes + (follows ? 0 : sizeof(HostMirrorPiece));
  if (memory_.size() - size_ < needed) return false;
  if (!follows) {
    last_ = {address, 0, 0};
    piece_ = size_;
    size_ += sizeof last_;
  }
  std::memcpy(memory_.data() + size_, line, kMirrorLineBytes);
  size_ += kMirrorLineBytes;
  last_.bytes += kMirrorLineBytes;
  std::memcpy(memory_.data() + piece_, &last_, sizeof last_);
  return true;
}

std::size_t take_changes(const std::byte* copy, std::byte* twin, std::uint64_t address,
                         std::size_t bytes, MirrorWriter* changes) {
  for (std::size_t at = 0; at < bytes; at += kMirrorLineBytes) {
    if (!differs(copy + at, twin + at)) continue;
    const Line line = read_line(copy + at);
    if (!changes->add(address + at, reinterpret_cast<const std::byte*>(line.data()))) return at;
    std::memcpy(twin + at, line.data(), sizeof line);
  }
  return bytes;
}

void take_settled_changes(std::span<const MirrorSpan> spans, MirrorWriter* changes) {
  struct Found {
    const MirrorSpan* span;
    std::size_t offset;
    int pass;
  };
  std::vector<Found> found;
  std::map<std::uint64_t, std::size_t> last;  // Index in `found` of each line's last change.
  bool changing = true;
  for (int pass = 0; changing && pass < kMirrorPassesMax; ++pass) {
    changing = false;
    for (const MirrorSpan& span : spans) {
      for (std::size_t at = 0; at < span.bytes; at += kMirrorLineBytes) {
        if (!differs(span.copy + at, span.twin + at)) continue;
        const Line line = read_line(span.copy + at);
        std::memcpy(span.twin + at, line.data(), sizeof line);
        last[span.address + at] = found.size();
        found.push_back({&span, at, pass});
        changing = true;
      }
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& one, const Found& other) { return one.pass > other.pass; });
  // The first time is now the last change. The twin has what it was.
  for (const Found& each : found) {
    if (last.erase(each.span->address + each.offset) == 0) continue;
    (void)changes->add(each.span->address + each.offset, each.span->twin + each.offset);
  }
}

void merge_lines(const MirrorSpan& into, const std::byte* lines, MergeRound round) {
  for (std::size_t line = 0; line < into.bytes; line += kMirrorLineBytes) {
    std::size_t changed = 0;
    Line theirs, ours;
    std::memcpy(theirs.data(), lines + line, sizeof theirs);
    std::memcpy(ours.data(), into.twin + line, sizeof ours);
    for (std::size_t i = 0; i < kWords; ++i) changed += theirs[i] != ours[i] ? 1 : 0;
    if (changed == 0 || (changed == 1) != (round == MergeRound::kOneWord)) continue;
    for (std::size_t i = 0; i < kWords; ++i) {
      if (theirs[i] == ours[i]) continue;
      write_word(into.copy + line + i * sizeof(std::uint64_t), theirs[i], theirs[i] ^ ours[i]);
    }
    std::memcpy(into.twin + line, theirs.data(), sizeof theirs);
  }
}

bool next_piece(ByteView* pieces, HostMirrorPiece* piece, ByteView* lines) {
  if (pieces->size() < sizeof *piece) return false;
  std::memcpy(piece, pieces->data(), sizeof *piece);
  *pieces = pieces->subspan(sizeof *piece);
  if (piece->reserved != 0 || piece->bytes == 0 || piece->bytes > pieces->size() ||
      piece->bytes % kMirrorLineBytes != 0 || piece->address % kMirrorLineBytes != 0 ||
      piece->address + piece->bytes < piece->address) {
    return false;
  }
  *lines = pieces->first(piece->bytes);
  *pieces = pieces->subspan(piece->bytes);
  return true;
}

}  // namespace gpurun::protocol
