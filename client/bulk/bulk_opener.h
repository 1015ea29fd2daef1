// BulkOpener: opens the further bulk connections that a session's Bulk wants. It does so on a
// thread that lives while some are wanted. A connection that cannot be opened does not fail the
// session.
#pragma once

#include <mutex>
#include <vector>

#include "client/bulk/bulk.h"
#include "client/bulk/extra_bulk_connections.h"
#include "client/process/opening_descriptor.h"
#include "client/process/thread.h"

namespace gpurun::client {

class BulkOpener {
 public:
  BulkOpener(ExtraBulkConnections& from, Bulk& bulk) : from_(from), bulk_(bulk) {}
  BulkOpener(const BulkOpener&) = delete;
  BulkOpener& operator=(const BulkOpener&) = delete;

  // Checks whether the Bulk wants more. Any thread. Does not block.
  void look();
  // Starts no more connections, gives up the one that is being opened, and waits for the thread.
  // That takes no time unless a name is being resolved. Call it before its connections are closed.
  void stop();

 private:
  void run();
  bool begins(OpeningDescriptor& opening);
  void has_ended();

  ExtraBulkConnections& from_;
  Bulk& bulk_;
  std::mutex mutex_;  // Guards all below.
  bool stopping_ = false;
  bool running_ = false;
  OpeningDescriptor* opening_ = nullptr;  // The connection that is being opened, or nullptr.
  std::vector<int> watched_;              // Descriptors. Used by the thread, then by stop().
  Thread thread_;
};

}  // namespace gpurun::client
