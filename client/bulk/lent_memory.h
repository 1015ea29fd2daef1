// LentMemory: the pinned memory of the program that the worker's device may read (docs/adr/0048),
// or write (docs/adr/0054). Each right has an object of its own.
//
// An allocation is lent as a whole at the first copy that the device is to move, and stays lent
// until the program frees or unregisters it. All of it is taken back once the carrier has failed,
// at this end or at the worker's. The worker then reaches it no more. Only memory that CUDA calls
// have made pinned is lent, because this process knows when it ends.
//
// Bounded: at most kRangesMax allocations and kBytesMax bytes. What a limit of locked memory or the
// device refuses is not asked for again until that memory ends.
//
// Any thread. The lock is held over a registration, so that two copies of one allocation register
// it once. It is a leaf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "transport/remote_memory.h"

namespace gpurun::client {

class LentMemory {
 public:
  static constexpr std::size_t kRangesMax = 1024;
  static constexpr std::uint64_t kBytesMax = std::uint64_t{64} << 30;

  enum class Right : std::uint8_t { kRead, kWrite };

  // Borrows `remote`. nullptr: the worker reaches nothing.
  explicit LentMemory(transport::RemoteMemory* remote, Right right = Right::kRead) noexcept
      : remote_(remote), right_(right) {}
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;
  // The end of the connection takes back the rest.
  ~LentMemory() = default;

  // Whether the worker has the right to all of `allocation` from now on. May block while the kernel
  // locks its pages. A refusal is counted.
  bool lend(ByteView allocation);
  // The key for `memory`, if all of it is lent in one piece. Empty: it is not, or not any more.
  std::optional<std::uint32_t> key_of(ByteView memory);
  // From now on nothing of `memory` is lent, until take_back(). `keys_too`: also takes back what is
  // lent there. Otherwise a caller that has a key may still use it.
  void bar(ByteView memory, bool keys_too);
  // The memory ends. Call it once no copy reads any of it (Bulk::await_read()), or writes there.
  void take_back(ByteView memory);

  // The worker could not use memory that was lent. Takes all of it back, and lends no more. With
  // Right::kWrite the device writes nothing there afterwards.
  void stop();

  // For statistics.
  struct Refused {
    std::uint64_t copies = 0;  // That go another way, because lend() refused.
    std::string reason = {};   // Of the last one.
  };
  Refused refused() const;

 private:
  struct Range {
    std::uint64_t bytes = 0;
    std::optional<std::uint32_t> key;  // Empty: the device has refused it.
    std::string why = {};
    bool barred = false;
  };
  using Ranges = std::map<std::uint64_t, Range>;

  // With the lock held.
  bool works();
  bool refuse(std::string reason);
  Ranges::iterator range_at(std::uint64_t address);
  Ranges::iterator first_at(ByteView memory);
  void drop_key(Range& range);
  void erase(Ranges::iterator at);
  void take_back_all();

  transport::RemoteMemory* const remote_;
  const Right right_;
  mutable std::mutex mutex_;  // Guards all below.
  Ranges ranges_;             // By their addresses. None overlaps another.
  std::uint64_t bytes_ = 0;   // Of those with a key.
  Refused refused_;
  bool stopped_ = false;
};

}  // namespace gpurun::client
