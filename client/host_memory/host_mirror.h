// HostMirror: this process's copies of host memory of which the worker has one, too, and their
// twins (docs/adr/0042, protocol/calls/host_mirror.h). The copies are the memory that the program
// uses.
//
// The kernel notes which pages the program writes. So a look at memory that was not written costs
// little. Bytes that come from the worker are written to the copy like those of the program, and
// are then found equal to the twin.
//
// One thread at a time. The program may write to the copies at any time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "client/host_memory/write_watch.h"
#include "protocol/calls/host_mirror.h"

namespace gpurun::client {

class HostMirror {
 public:
  HostMirror() = default;
  ~HostMirror();
  HostMirror(const HostMirror&) = delete;
  HostMirror& operator=(const HostMirror&) = delete;

  // Of the pages of copies. Open it before the first add(). Without it all of a copy is compared.
  WriteWatch& watch() { return watch_; }

  // The worker's copy at [address, address + bytes) holds zeros. It mirrors as many bytes of this
  // process from `memory` on. All are whole pages. `noted`: this memory is private and anonymous.
  // False: there is no memory for the twin.
  bool add(std::uint64_t address, std::uint64_t bytes, std::byte* memory, bool noted);
  // Call it before the memory is unmapped. False: there is no such block.
  bool remove(std::uint64_t address);

  // The device reaches, or no longer reaches, an allocation in a block. `bytes` are whole lines, as
  // is its place in the block. Changes of both sides are exchanged only there.
  // `in_turn`: host and device use it in turn (HostMirrorPiece).
  // `first` and `last`: bytes at its ends that are not of the allocation, less than a line each.
  // They are never written.
  void add_allocation(std::uint64_t address, std::uint64_t bytes, bool in_turn,
                      std::size_t first = 0, std::size_t last = 0);
  void remove_allocation(std::uint64_t address) { allocations_.erase(address); }
  // The allocations from `address` on, at most kMirrorRangesMax.
  std::vector<protocol::HostMirrorRange> allocations_from(std::uint64_t address) const;

  // Calls `send` with payloads of HostMirrorStep::kWrite for what the program has written since the
  // last call. `idle`: no work is under way. False: `send` has returned false, and what was not
  // sent is lost.
  bool send_written(bool idle, const std::function<bool(ByteView)>& send);
  // Of the allocations that the device reaches, those that may hold flags: small ones, at most
  // kMirrorPolledBytesMax together.
  static constexpr std::uint64_t kPolledAllocationMax = std::uint64_t{64} << 10;
  std::vector<protocol::HostMirrorRange> polled() const;
  // Whether one of these, which are in ascending order, begins at `address`.
  static bool is_among(std::span<const protocol::HostMirrorRange> ranges, std::uint64_t address);
  // As send_written(), for ranges of polled(), in one payload, as take_settled_changes() finds it.
  // What the program has written elsewhere before is sent first.
  bool send_polled(std::span<const protocol::HostMirrorRange> ranges,
                   const std::function<bool(ByteView)>& send);

  // Takes pieces of the worker. False: they are malformed. Bytes outside all allocations that the
  // device reaches are ignored.
  bool take(ByteView pieces);

 private:
  struct Block {
    std::uint64_t bytes = 0;
    std::byte* memory = nullptr;
    std::byte* twin = nullptr;
    bool noted = false;
  };
  struct Allocation {
    std::uint64_t bytes = 0;
    bool fresh = true;  // Nothing of it was compared yet.
    bool in_turn = false;
    std::size_t first = 0, last = 0;
  };
  // The part of a block that begins at `address`, at most `bytes`. Empty: no block holds it.
  protocol::MirrorSpan span_at(std::uint64_t address, std::uint64_t bytes);
  // The part of an allocation that begins at `address`, at most `bytes`. Empty: it is in none.
  protocol::MirrorSpan reached_at(std::uint64_t address, std::uint64_t bytes);
  // Adds the lines for `into`, a part of an allocation, to reached_.
  void add_reached(const protocol::MirrorSpan& into, const std::byte* lines, bool in_turn);
  bool send_written_except(std::span<const protocol::HostMirrorRange> left_out, bool idle,
                           const std::function<bool(ByteView)>& send);
  // Adds the lines of [address, address + bytes) that differ from `twin` to `changes`, and sends
  // when there is no room. False: `send` has returned false.
  bool compare(protocol::MirrorSpan span, bool in_turn, protocol::MirrorWriter* changes,
               const std::function<bool(ByteView)>& send);
  // Adds the parts of the allocation that may have been written to written_.
  void find_written(const protocol::MirrorSpan& span, bool noted);
  // The block that holds the address.
  const Block& block_of(std::uint64_t address) const;

  std::map<std::uint64_t, Block> blocks_;            // By address.
  std::map<std::uint64_t, Allocation> allocations_;  // By address.
  WriteWatch watch_;
  std::vector<WriteWatch::Pages> written_;  // Kept for its memory.
  int unsettled_ = 0;                       // Calls of send_polled() in a row without success.
  Bytes flags_;                             // Kept for its memory.
  Bytes reached_;                           // Kept for its memory.
  Bytes payload_;                           // Kept for its memory.
};

}  // namespace gpurun::client
