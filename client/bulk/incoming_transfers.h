// IncomingTransfers: the places in the program's memory where the bytes of transfers from the
// worker land.
//
// Several connections may write to one transfer at once. A thread claims the bytes before it
// receives them, and writes without the lock. What is claimed whole takes no further bytes.
//
// One thread at a time, and Bulk locks. outstanding() and any_written() need no lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "base/bytes.h"
#include "client/bulk/host_box.h"

namespace gpurun::client {

struct IncomingTransfer {
  HostBox destination;
  std::uint64_t total = 0;
  bool unattended = false;    // No thread waits for the bytes.
  bool written = false;       // The worker's device writes them, unless it cannot.
  bool counted = false;       // Counted by ConnectionUse.
  std::uint64_t claimed = 0;  // Bytes that have come or are being received.
  std::uint64_t received = 0;
  std::uint64_t watermark = 0;  // Its completion, once that has come.
  int writers = 0;              // Threads that are receiving.

  bool has_room_for(std::size_t bytes) const noexcept { return claimed + bytes <= total; }
  // No further chunk gets in.
  void close() noexcept { claimed = total; }
};

class IncomingTransfers {
 public:
  void add(std::uint64_t transfer, const IncomingTransfer& in);
  // nullptr: it has arrived, or was cancelled.
  IncomingTransfer* find(std::uint64_t transfer);
  void remove(std::uint64_t transfer);

  // Returns whether an unattended transfer has not arrived yet. Any thread.
  bool outstanding() const noexcept { return unattended_.load(std::memory_order_acquire) != 0; }
  // Returns whether such a transfer goes to some of `memory`.
  bool outstanding(ByteView memory) const noexcept;
  // Returns whether the worker's device may write bytes now of which nothing is known yet. Any
  // thread.
  bool any_written() const noexcept { return written_.load(std::memory_order_acquire) != 0; }
  // Returns whether the worker's device may still write to some of `memory`.
  bool is_written(ByteView memory) const noexcept;
  // Returns whether this process writes bytes of a transfer to some of `memory`.
  bool receives(ByteView memory) const noexcept;

 private:
  std::map<std::uint64_t, IncomingTransfer> transfers_;
  std::atomic<std::size_t> unattended_{0};
  std::atomic<std::size_t> written_{0};
};

}  // namespace gpurun::client
