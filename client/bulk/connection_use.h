// ConnectionUse: how many bulk connections there are, how many share the bytes, and how many Bulk
// wants. Two counts, one for each direction, measure what helps (ConnectionCount). Without them all
// connections are used.
//
// One thread at a time, and Bulk locks. lacks() needs no lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "client/bulk/connection_count.h"
#include "client/bulk/incoming_transfers.h"
#include "client/bulk/outgoing_transfers.h"

namespace gpurun::client {

class ConnectionUse {
 public:
  using Span = ConnectionCount::Span;

  // `spread_copies`: the worker can spread the bytes of one copy from the device.
  ConnectionUse(unsigned open, bool spread_copies, std::optional<ConnectionCount::Bounds> bounds);

  // The number of connections that share the bytes of one direction: now, and at most so far.
  struct Used {
    unsigned now = 0;
    unsigned most = 0;
  };
  Used to_device() const noexcept;
  Used from_device() const noexcept;
  // Returns whether the connection with that number, from 0 on, carries bytes to the device.
  bool in_use(std::size_t index) const noexcept { return index < used_; }
  unsigned open() const noexcept { return open_; }
  // As many as are wanted, also if more cannot be opened now.
  unsigned wanted() const noexcept;

  // A chunk of `out` goes to a connection.
  void sent(const OutgoingTransfer& out, std::uint64_t bytes);
  // The worker is done with bytes of `out`. Returns whether in_use() has changed.
  [[nodiscard]] bool retired(const OutgoingTransfer& out, std::uint64_t bytes);
  // Returns the number of connections that may carry the bytes of `in`. 0: only the first one.
  unsigned expect(IncomingTransfer& in);
  void received(const IncomingTransfer& in, std::uint64_t bytes);
  void dropped(const IncomingTransfer& in);

  // Every so many chunks a thread measures the processor time of one. Returns whether it is this.
  bool measures_next_send() noexcept;
  bool measures_next_receive(const IncomingTransfer& in) noexcept;
  void send_took(Span core_time);
  void receive_took(Span core_time);

  // Returns whether more connections may be wanted than were asked for.
  bool lacks() const noexcept { return lacks_.load(std::memory_order_relaxed); }
  // Returns whether more should be opened now, and notes that they were asked for.
  bool ask_for_more();
  // A connection has joined. Returns whether in_use() has changed.
  [[nodiscard]] bool opened(unsigned their_cores);
  // A wanted connection cannot be used. Its place is used up, so no other may join.
  void cannot_start();
  // No further connection can be opened now.
  void cannot_open();

 private:
  unsigned most_wanted() const noexcept;
  bool follow_count();
  void note_lack();
  void not_opened(ConnectionCount::Time now);

  const bool spread_copies_;
  std::optional<ConnectionCount> count_;      // To the device. Empty: all are in use.
  std::optional<ConnectionCount> count_out_;  // From the device. Empty: all are in use.
  unsigned open_ = 0;
  unsigned used_ = 0;  // The first so many connections are in use.
  unsigned asked_for_ = 0;
  std::atomic<bool> lacks_{false};
  bool may_join_ = false;  // More connections may join.
  unsigned sends_ = 0;
  unsigned receives_ = 0;
};

}  // namespace gpurun::client
