// ClientStreams: the driver's stream for each stream value of the client, and the traits of a
// stream that the order of calls depends on.
//
// resolve() and context_ended(): any thread. traits(): one thread at a time, with the executor's
// role.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "protocol/log/record.h"
#include "server/driver/driver_functions.h"
#include "server/worker/execution/handles.h"
#include "server/worker/execution/issue_queue.h"

namespace gpurun::server {

class ClientStreams {
 public:
  // `owner` is that of enter_context(). Borrows both references.
  ClientStreams(const DriverFunctions& driver, HandleTable& handles, std::uint64_t owner)
      : driver_(driver), handles_(handles), owner_(owner) {}
  ClientStreams(const ClientStreams&) = delete;
  ClientStreams& operator=(const ClientStreams&) = delete;

  // The driver's stream for a handle, 0, 1 or 2. The first use of a lane's per-thread stream in a
  // context creates it. That context is current.
  HandleTable::Found resolve(std::uint64_t stream, std::uint32_t lane, std::uint64_t context);
  // May make another context current, or none.
  IssueQueue::StreamTraits traits(const protocol::RecordHeader& header);
  // The client's context has ended with its per-thread streams.
  void context_ended(std::uint64_t context);

 private:
  const DriverFunctions& driver_;
  HandleTable& handles_;
  const std::uint64_t owner_;
  std::unordered_map<std::uint64_t, IssueQueue::StreamTraits> known_traits_;  // With the role.

  std::mutex mutex_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, void*> per_thread_;  // (lane, context). Under
                                                                         // mutex_.
};

}  // namespace gpurun::server
