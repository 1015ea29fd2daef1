// Copies: calls with bytes of the program's memory. Small copies travel in their records, others as
// transfers of Bulk. See Session for what each function promises.
//
// Transfers to the worker are numbered in the order of their records, as Bulk needs it. A lock of
// this class is therefore held from the opening of a transfer to the append of its record. The
// append may wait for room under it. Bulk's and the log's locks are taken under it, never the other
// way round. A launch does not take it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "client/bulk/bulk.h"
#include "client/bulk/host_box.h"
#include "client/bulk/lent_memory.h"
#include "client/log/command_log.h"
#include "client/log/lane.h"
#include "client/session/call_path.h"
#include "client/session/fences.h"
#include "client/session/session_shutdown.h"
#include "client/session/session_types.h"
#include "client/stats/stats.h"

namespace gpurun::client {

class Copies {
 public:
  using Reading = CopyReading;
  using Arrival = CopyArrival;
  struct Uses {
    CallPath& calls;
    Fences& fences;
    CommandLog& log;
    Bulk& bulk;
    LentMemory& lent;
    LentMemory& lent_to_write;
    SessionShutdown& shutdown;
    Stats& stats;
    const SessionOptions& options;
  };
  explicit Copies(const Uses& uses) noexcept : uses_(uses) {}
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  int copy_in(Lane& lane, CallSite site, std::uint64_t device_destination, ByteView source,
              Reading reading);
  int copy_in(Lane& lane, CallSite site, const protocol::BoxCopyPayload& box, ByteView source,
              Reading reading);
  int copy_out(Lane& lane, CallSite site, MutableBytes destination, std::uint64_t device_source,
               bool wait, Arrival arrival);
  int copy_out(Lane& lane, CallSite site, const HostBox& destination,
               const protocol::BoxCopyPayload& box, bool wait, Arrival arrival);

  // Appends a call and sends `source` (not empty) as its bulk. With `reply` the call is a fence.
  int send_with_bulk(Lane& lane, CallSite site, std::span<const ByteView> parts, ByteView source,
                     Reading reading, Reply* reply);
  int post_with_offer(Lane& lane, CallSite site, ByteView payload,
                      std::shared_ptr<const Bytes> offer, bool* offered);

 private:
  // Returns whether a copy in of these bytes goes without a transfer.
  bool travels_in_record(ByteView source) const noexcept;
  int pull(Lane& lane, CallSite site, ByteView head, ByteView source, bool in_turn, Reply* reply);
  // `head`: CopyPayload, or BoxCopyPayload with its flag.
  int copy_in_with(Lane& lane, CallSite site, ByteView head, ByteView source, Reading reading);
  int copy_out_with(Lane& lane, CallSite site, const HostBox& destination, ByteView head, bool wait,
                    Arrival arrival);
  // The key for a destination that the worker's device writes. Empty: the bytes are sent.
  std::optional<std::uint32_t> expect_written(std::uint64_t transfer, const HostBox& destination,
                                              bool unattended);

  const Uses uses_;
  std::mutex order_;  // Held while a record that names our bulk is appended.
};

}  // namespace gpurun::client
