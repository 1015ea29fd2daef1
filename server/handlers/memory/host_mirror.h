// HostMirror: the worker's copies of host memory of which the client has one, too, and their twins
// (docs/adr/0042, protocol/calls/host_mirror.h). HostArena maps and registers the copies. Managed
// variables are the driver's memory (managed_variables.h).
//
// The client is untrusted. It names addresses and sends lines. Only bytes of blocks that it was
// given are read or written. The device may write to them at the same time.
//
// Any thread. One exchange at a time: a client that makes several waits for itself.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>

#include "base/bytes.h"
#include "protocol/calls/host_mirror.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

class HostMirror {
 public:
  HostMirror() = default;
  ~HostMirror();
  HostMirror(const HostMirror&) = delete;
  HostMirror& operator=(const HostMirror&) = delete;

  // The block is mapped. The client's copy of it holds zeros. It is whole lines, and meets no other
  // block. False: there is no memory for its twin.
  bool add(std::uint64_t address, std::uint64_t bytes);
  // Call it before the block is unmapped. Nothing looks at it any more when this returns. A block
  // that was never added is ignored.
  void remove(std::uint64_t address);

  // Takes the pieces that the client has written. INVALID_VALUE: they are malformed, or outside all
  // blocks and [place, place + span). The earlier pieces are then taken.
  int write(ByteView pieces, std::uint64_t place, std::uint64_t span);
  // Puts changes of `ranges`, from `from` on, into `reply`, which has room for a line at least.
  // Returns the number of bytes there. `*next`: where to go on. 0: that was all.
  std::size_t collect(std::span<const protocol::HostMirrorRange> ranges, std::uint64_t from,
                      MutableBytes reply, std::uint64_t* next);
  // As collect(), for HostMirrorStep::kPoll. `reply` has room for all. Leaves out what exceeds
  // kMirrorPolledBytesMax.
  std::size_t poll(std::span<const protocol::HostMirrorRange> ranges, MutableBytes reply);

 private:
  // Compared by one collect(), so that no call takes long.
  static constexpr std::uint64_t kBytesAtOnce = std::uint64_t{256} << 20;

  struct Block {
    std::uint64_t bytes = 0;
    std::byte* twin = nullptr;
  };
  using Blocks = std::map<std::uint64_t, Block>;  // By address.

  // The block that holds `address`, or the next one, or blocks_.end(). Needs the mutex.
  Blocks::iterator block_from(std::uint64_t address);
  // The part of a block that begins at `address`, at most `bytes`. Empty: no block holds it. Needs
  // the mutex.
  protocol::MirrorSpan span_at(std::uint64_t address, std::uint64_t bytes);

  std::mutex mutex_;
  Blocks blocks_;      // Guarded by mutex_.
  int unsettled_ = 0;  // Calls of poll() in a row without success. Guarded by mutex_.
};

// cuMemHostGetDevicePointer_v2, form kRaw: the steps of HostMirrorStep.
CallOutcome run_host_mirror(Call& call);

}  // namespace gpurun::server
