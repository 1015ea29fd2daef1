// BulkWrites: the bytes of copies from the device that this end's device writes into the client's
// memory (docs/adr/0054).
//
// The chunks of such a copy stand in the queue of the first connection, in their order. Its sender
// writes them from their staging slots in place of sending them. Before it tells the client that a
// copy has arrived, it waits for the reports of all writes. So nothing overtakes the bytes, and no
// write is under way when the copy counts as done.
//
// A write that fails, or that has no report in time, costs the carrier. The slots keep the bytes of
// every write without a good report. The sender then sends these as chunks. The client ends the
// worker's right to write before it takes them, because a write without an end may come late.
//
// The sender of the first connection, except for the functions that a comment gives to others. The
// client's values are never used as an address of this process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/deadline.h"
#include "protocol/log/frame.h"
#include "protocol/log/record.h"
#include "server/bulk/staging.h"
#include "transport/remote_memory.h"

namespace gpurun::server {

class BulkWrites {
 public:
  // A device reports each write within the time of its retries (transport/rdma/transitions.h).
  static constexpr std::chrono::milliseconds kWriteDeadline{3000};
  // For the ends of writes after that.
  static constexpr std::chrono::milliseconds kEndDeadline{1000};

  // A chunk in its slot of the staging memory.
  struct Chunk {
    protocol::BulkHeader header;
    ByteView bytes;
  };
  using Chunks = std::vector<Chunk>;

  // Borrows both. `remote` ends later. nullptr: nothing can be written.
  BulkWrites(transport::RemoteMemory* remote, Staging& staging)
      : remote_(remote != nullptr && remote->writes() ? remote : nullptr), staging_(staging) {}
  ~BulkWrites();
  BulkWrites(const BulkWrites&) = delete;
  BulkWrites& operator=(const BulkWrites&) = delete;
  // The sender's waits end soon. Any thread.
  void stop();

  // `transfer` goes to `destination`. False: it must be sent, or the number is in use. Any thread.
  bool open(std::uint64_t transfer, const protocol::WrittenDestination& destination);
  // Nothing more of it comes. Any thread.
  void forget(std::uint64_t transfer);

  // True: every chunk must be sent from now on.
  bool has_failed() const noexcept { return failed_; }
  bool under_way() const noexcept { return !writing_.empty(); }
  // Begins to write a chunk of an open transfer. May wait for the ends of others, of which those
  // that were written are appended to `written`. Their slots are free.
  void write(const Chunk& chunk, Chunks* written);
  // Waits until some writes have ended, for `at_most` and a little more.
  void await_some(std::chrono::milliseconds at_most, Chunks* written);
  // Waits until no write is under way.
  void await_all(Chunks* written);
  // Behind a failure, once: the chunks that were not written, in their order.
  Chunks take_failed();
  // Behind a failure, before the chunk is sent: what the client must learn first, if some bytes of
  // the transfer were written.
  std::optional<protocol::BulkHeader> written_before(const protocol::BulkHeader& chunk);

  // Why the memory could not be enrolled, for people. Empty: it was, or no copy has asked for it.
  // Any thread.
  std::string why_refused() const;

  // The number of remembered transfers, for tests.
  std::size_t remembered() const;

 private:
  struct Transfer {
    protocol::WrittenDestination destination;
    std::uint64_t written = 0;  // Bytes, from the first one on.
    bool told = false;          // The client knows that number.
  };
  struct Writing {
    std::uint64_t id = 0;
    Chunk chunk;
    std::size_t parts = 0;  // Under way.
    bool whole = false;     // All of its parts have begun.
    bool right = true;
    Deadline deadline;
  };

  bool start();
  bool begin_parts(const protocol::WrittenDestination& destination, Chunks* written);
  void take_ends(std::chrono::milliseconds at_most, Chunks* written);
  void look(std::chrono::milliseconds at_most, Chunks* written);
  void fail(Chunks* written);

  transport::RemoteMemory* const remote_;
  Staging& staging_;
  std::atomic<bool> stopping_{false};

  mutable std::mutex mutex_;  // Guards the next four. A leaf.
  std::map<std::uint64_t, Transfer> transfers_;
  bool started_ = false;
  bool unable_ = false;  // The memory could not be enrolled.
  std::string why_unable_;

  std::atomic<bool> failed_{false};
  std::deque<Writing> writing_;  // Under way, in their order.
  std::uint64_t last_id_ = 0;
};

}  // namespace gpurun::server
