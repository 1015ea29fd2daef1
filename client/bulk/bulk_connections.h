// BulkConnections: the bulk connections of a session, each with its sender and its receiver thread.
//
// A session begins with some connections, which its owner owns. Others may join while it runs, and
// belong to this object. ConnectionUse measures how many help.
//
// Threads: start() and join() are for the owner. add() and cannot_add() are for one thread at a
// time, which has ended before join(). Any thread may call the rest. The list of connections grows
// under the mutex of BulkState. A connection keeps its address and stays until the end, so its
// threads need no lock for it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/status.h"
#include "client/bulk/bulk_downloads.h"
#include "client/bulk/bulk_receiver.h"
#include "client/bulk/bulk_sender.h"
#include "client/bulk/bulk_state.h"
#include "client/bulk/bulk_uploads.h"
#include "client/bulk/connection_use.h"
#include "transport/transport.h"

namespace gpurun::client {

class BulkConnections {
 public:
  using Used = ConnectionUse::Used;

  // Borrows all arguments, the connections included.
  BulkConnections(BulkState& state, BulkUploads& uploads, BulkDownloads& downloads,
                  const std::vector<transport::Connection*>& connections);
  BulkConnections(const BulkConnections&) = delete;
  BulkConnections& operator=(const BulkConnections&) = delete;

  // Starts the threads.
  Status start();
  void join() noexcept;
  // With the mutex held, at the end of the session. Shuts down the connections that joined.
  void shut_down_joined() noexcept;

  // See Bulk.
  unsigned wanted() const noexcept;
  unsigned open() const noexcept;
  Used used() const noexcept;
  Used used_from_device() const noexcept;
  void add(std::unique_ptr<transport::Connection> connection, unsigned their_cores);
  void cannot_add();

 private:
  // One connection and its threads.
  struct Channel {
    Channel(BulkConnections& of, transport::Connection& over, std::size_t index)
        : sender(of.state_, over, of.state_.known.packed_chunks, index),
          receiver(of.state_, of.uploads_, of.downloads_, over) {}
    Status start();
    void join() noexcept;

    std::unique_ptr<transport::Connection> owned;  // Of a connection that joined.
    BulkSender sender;
    BulkReceiver receiver;
  };

  BulkState& state_;
  BulkUploads& uploads_;
  BulkDownloads& downloads_;
  std::vector<std::unique_ptr<Channel>> channels_;  // Grows. Each element keeps its address.
};

}  // namespace gpurun::client
