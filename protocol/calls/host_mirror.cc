// Host mirror: comparison and merge of lines. The program, or the device, writes to a copy while
// this code reads it. So each byte is read once into a private line, and written only if it
// changes.
#include "protocol/calls/host_mirror.h"

#include <array>
#include <cstring>
#include <map>
#include <vector>

// These reads and writes race with those of the program by design, as those of a device would.
// tests/model has rules of its own for them.
#if defined(GPURUN_RACES)
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GPURUN_RACES __attribute__((disable_sanitizer_instrumentation))
#endif
#elif defined(__SANITIZE_THREAD__)
#define GPURUN_RACES __attribute__((no_sanitize("thread")))
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

// Takes the bytes of `theirs` where `difference` is not 0. Others may write to the other bytes of
// the word at the same time. Readers see all of the change or nothing of it.
GPURUN_RACES void write_word(std::byte* copy, std::uint64_t theirs, std::uint64_t difference) {
  auto* const word = reinterpret_cast<std::uint64_t*>(copy);
  if (!has_zero_byte(difference)) {
    __atomic_store_n(word, theirs, __ATOMIC_RELAXED);
    return;
  }
  std::array<std::uint8_t, sizeof theirs> differing{};
  std::memcpy(differing.data(), &difference, sizeof difference);
  for (std::uint8_t& each : differing) each = each == 0 ? 0 : 0xff;
  std::uint64_t mask = 0;
  std::memcpy(&mask, differing.data(), sizeof mask);
  std::uint64_t now = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &now, (now & ~mask) | (theirs & mask), true,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

}  // namespace

bool MirrorWriter::add(std::uint64_t address, const std::byte* line, bool in_turn) {
  const bool follows =
      size_ != 0 && last_.address + last_.bytes == address && (last_.in_turn != 0) == in_turn;
  const std::size_t needed = kMirrorLineBytes + (follows ? 0 : sizeof(HostMirrorPiece));
  if (memory_.size() - size_ < needed) return false;
  if (!follows) {
    last_ = {address, 0, in_turn ? 1u : 0u};
    piece_ = size_;
    size_ += sizeof last_;
  }
  std::memcpy(memory_.data() + size_, line, kMirrorLineBytes);
  size_ += kMirrorLineBytes;
  last_.bytes += kMirrorLineBytes;
  std::memcpy(memory_.data() + piece_, &last_, sizeof last_);
  return true;
}

GPURUN_RACES std::size_t take_changes(const std::byte* copy, std::byte* twin, std::uint64_t address,
                                      std::size_t bytes, MirrorWriter* changes, bool in_turn) {
  for (std::size_t at = 0; at < bytes; at += kMirrorLineBytes) {
    if (!differs(copy + at, twin + at)) continue;
    const Line line = read_line(copy + at);
    if (!changes->add(address + at, reinterpret_cast<const std::byte*>(line.data()), in_turn)) {
      return at;
    }
    std::memcpy(twin + at, line.data(), sizeof line);
  }
  return bytes;
}

GPURUN_RACES bool take_settled_changes(std::span<const MirrorSpan> spans, bool anyway,
                                       MirrorWriter* changes) {
  struct Found {
    const MirrorSpan* span;
    std::size_t offset;
    Line before;  // In the twin.
  };
  std::vector<Found> found;                   // In the order of time.
  std::map<std::uint64_t, std::size_t> last;  // Index in `found` of each line's last change.
  bool changing = true;
  for (int pass = 0; changing && pass < kMirrorPassesMax; ++pass) {
    changing = false;
    for (const MirrorSpan& span : spans) {
      for (std::size_t at = 0; at < span.bytes; at += kMirrorLineBytes) {
        if (!differs(span.copy + at, span.twin + at)) continue;
        const Line line = read_line(span.copy + at);
        last[span.address + at] = found.size();
        found.push_back({&span, at, read_line(span.twin + at)});
        std::memcpy(span.twin + at, line.data(), sizeof line);
        changing = true;
      }
    }
  }
  if (changing && !anyway) {
    for (auto each = found.rbegin(); each != found.rend(); ++each) {
      std::memcpy(each->span->twin + each->offset, each->before.data(), kMirrorLineBytes);
    }
    return false;
  }
  for (std::size_t i = found.size(); i-- > 0;) {
    const std::uint64_t address = found[i].span->address + found[i].offset;
    if (last[address] == i) (void)changes->add(address, found[i].span->twin + found[i].offset);
  }
  return !changing;
}

GPURUN_RACES void merge_lines(const MirrorSpan& into, const std::byte* lines, MergeRound round) {
  // Words of the first round are visible before those of the second.
  if (round == MergeRound::kOneWord) __atomic_thread_fence(__ATOMIC_RELEASE);
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

GPURUN_RACES void take_lines(const MirrorSpan& into, const std::byte* lines) {
  for (std::size_t at = 0; at < into.bytes; at += kMirrorLineBytes) {
    if (differs(into.copy + at, into.twin + at)) {
      const MirrorSpan line = {into.copy + at, into.twin + at, into.address + at, kMirrorLineBytes};
      merge_lines(line, lines + at, MergeRound::kSeveralWords);
      merge_lines(line, lines + at, MergeRound::kOneWord);
      continue;
    }
    std::memcpy(into.copy + at, lines + at, kMirrorLineBytes);
    std::memcpy(into.twin + at, lines + at, kMirrorLineBytes);
  }
}

bool next_piece(ByteView* pieces, HostMirrorPiece* piece, ByteView* lines) {
  if (pieces->size() < sizeof *piece) return false;
  std::memcpy(piece, pieces->data(), sizeof *piece);
  *pieces = pieces->subspan(sizeof *piece);
  if (piece->in_turn > 1 || piece->bytes == 0 || piece->bytes > pieces->size() ||
      piece->bytes % kMirrorLineBytes != 0 || piece->address % kMirrorLineBytes != 0 ||
      piece->address + piece->bytes < piece->address) {
    return false;
  }
  *lines = pieces->first(piece->bytes);
  *pieces = pieces->subspan(piece->bytes);
  return true;
}

}  // namespace gpurun::protocol
