// Host mirror: how client and worker keep two copies of host memory alike (docs/adr/0042). The
// copies are the blocks of HostBlockKind::kMirror (host_arena.h), and managed variables
// (managed_variable.h).
//
// Each end also keeps a twin of each block: what both copies held when the ends last exchanged
// changes. An end sends the lines in which its copy differs from its twin. The other end takes the
// bytes in which a line differs from its own twin, and no others, because its own program or device
// may write the others meanwhile. Then the twins are alike again. The client keeps at most one
// exchange under way, so that no change of one end meets an older one of the other.
//
// The messages are payloads of form kRaw of cuMemHostGetDevicePointer_v2, with Order::kImmediate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "protocol/log/record.h"

namespace gpurun::protocol {

// Changes travel in whole lines.
inline constexpr std::size_t kMirrorLineBytes = 64;

enum class HostMirrorStep : std::uint32_t {
  // HostMirrorHead and pieces: what the client's program has written. Posted. The worker has taken
  // it before it looks at the next record. INVALID_VALUE: a piece is malformed, or lies outside the
  // place of all blocks and managed variables. A piece in the place that meets no block is ignored,
  // because a context can end, and its blocks with it, at any time.
  kWrite = 1,
  // HostMirrorHead and 1 to kMirrorRangesMax times HostMirrorRange: asks what the device has
  // written
  // there. A fence. The reply is HostMirrorChanges and pieces. INVALID_VALUE: malformed. What meets
  // no block is ignored.
  kCollect = 2,
  // As kCollect, for at most kMirrorPolledBytesMax in all, while work on the device goes on. The
  // lines are those of take_settled_changes(), and all come at once.
  kPoll = 3,
};

struct HostMirrorHead {
  HostMirrorStep step = HostMirrorStep::kWrite;
  std::uint32_t reserved = 0;
  std::uint64_t from = 0;  // kCollect: ignores what lies before this address. Otherwise 0.
};
static_assert(sizeof(HostMirrorHead) == 16);

// Memory that the program has now, in ascending order.
struct HostMirrorRange {
  std::uint64_t address = 0;  // A multiple of kMirrorLineBytes.
  std::uint64_t bytes = 0;    // A multiple of kMirrorLineBytes.
  std::uint64_t in_turn = 0;  // As in HostMirrorPiece, for the pieces of the reply.
};
static_assert(sizeof(HostMirrorRange) == 24);
inline constexpr std::size_t kMirrorRangesMax = 4'096;

struct HostMirrorChanges {
  std::uint64_t next = 0;  // `from` of the next kCollect of the same ranges. 0: that was all.
};

// Before the lines of one run.
struct HostMirrorPiece {
  std::uint64_t address = 0;  // A multiple of kMirrorLineBytes.
  std::uint32_t bytes = 0;    // Of the lines that follow. Not 0. A multiple of kMirrorLineBytes.
  std::uint32_t in_turn = 0;  // 1: managed memory, and no work is under way. Otherwise 0.
};
static_assert(sizeof(HostMirrorPiece) == 16);

// The longest payloads, in which pieces may be.
inline constexpr std::size_t kMirrorWriteBytesMax = kRecordPayloadBytesMax;
inline constexpr std::size_t kMirrorReplyBytesMax = kReplyPayloadBytesMax;

// Collects pieces in memory of the caller. One thread.
class MirrorWriter {
 public:
  explicit MirrorWriter(MutableBytes memory) : memory_(memory) {}
  // Appends a line of memory that is used `in_turn`, or not. False, without an effect: there is no
  // room.
  bool add(std::uint64_t address, const std::byte* line, bool in_turn = false);
  std::size_t size() const { return size_; }

 private:
  MutableBytes memory_;
  std::size_t size_ = 0;
  std::size_t piece_ = 0;  // Where the head of the last piece is, if size_ is not 0.
  HostMirrorPiece last_;
};

// Compares `bytes` of a copy with its twin, from `address` on. Adds the lines that differ to
// `changes` and to the twin. All are whole lines. Returns how many bytes were compared: all of
// them, or up to the first line without room. Others may write to the copy meanwhile. Each of their
// writes is then found now or the next time.
std::size_t take_changes(const std::byte* copy, std::byte* twin, std::uint64_t address,
                         std::size_t bytes, MirrorWriter* changes, bool in_turn = false);

// Memory that host and device may use at the same time, as flags. So little is compared again until
// nothing changes.
inline constexpr std::size_t kMirrorPolledBytesMax = std::size_t{192} << 10;
// A copy and its twin.
struct MirrorSpan {
  std::byte* copy = nullptr;
  std::byte* twin = nullptr;
  std::uint64_t address = 0;  // Of the copy's first byte, in both ends. A multiple of the line.
  std::size_t bytes = 0;      // In whole lines.
};
// As take_changes(), for all spans, with at most kMirrorPolledBytesMax. They are compared until one
// comparison finds no change, at most kMirrorPassesMax times. So a writer that sets a flag after
// its data never has the flag arrive without the data. False: they changed in each comparison.
// Nothing was taken then, unless `anyway`. Lines that were found later come first.
inline constexpr int kMirrorPassesMax = 16;
bool take_settled_changes(std::span<const MirrorSpan> spans, bool anyway, MirrorWriter* changes);
// After so many times without success, an end takes the changes anyway. Memory that is written
// without a pause has no order then.
inline constexpr int kMirrorUnsettledMax = 32;

// Takes pieces of the other end: writes the bytes that differ from the twins, to the copies and to
// the twins. Others may write other bytes of the copies meanwhile. Lines of which at most one word
// changes come last, because a flag has one word. `locate(address, bytes)` returns the part of a
// copy that holds the first of these bytes, and is called again for the others. An empty one: all
// of these bytes are ignored. False: the pieces are malformed. Some of them were taken then. Lines
// that are used in turn, and that only the sender has changed, are taken as a whole, because nobody
// writes to them now.
template <typename Locate>
bool merge_pieces(ByteView pieces, Locate locate);

// The first piece of `pieces`, and what follows. False: it is malformed.
bool next_piece(ByteView* pieces, HostMirrorPiece* piece, ByteView* lines);

enum class MergeRound : std::uint8_t { kSeveralWords, kOneWord };
void merge_lines(const MirrorSpan& into, const std::byte* lines, MergeRound round);
void take_lines(const MirrorSpan& into, const std::byte* lines);

template <typename Locate>
bool merge_pieces(ByteView pieces, Locate locate) {
  for (const MergeRound round : {MergeRound::kSeveralWords, MergeRound::kOneWord}) {
    ByteView rest = pieces, lines;
    HostMirrorPiece piece;
    while (!rest.empty()) {
      if (!next_piece(&rest, &piece, &lines)) return false;
      if (piece.in_turn != 0 && round == MergeRound::kOneWord) continue;
      std::uint64_t address = piece.address;
      while (!lines.empty()) {
        const MirrorSpan into = locate(address, lines.size());
        if (into.bytes == 0) break;
        if (piece.in_turn != 0) {
          take_lines(into, lines.data());
        } else {
          merge_lines(into, lines.data(), round);
        }
        lines = lines.subspan(into.bytes);
        address += into.bytes;
      }
    }
  }
  return true;
}

}  // namespace gpurun::protocol
