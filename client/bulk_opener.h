// BulkOpener: brings a session the further bulk connections that its Bulk wants, on a thread that
// lives as long as some are wanted. What cannot be had is no failure of the session.
#pragma once

#include <mutex>
#include <vector>

#include "client/bulk.h"
#include "client/opening_descriptor.h"
#include "client/session.h"
#include "client/thread.h"

namespace gpurun::client {

class BulkOpener {
 public:
  BulkOpener(MoreConnections& from, Bulk& bulk) : from_(from), bulk_(bulk) {}
  BulkOpener(const BulkOpener&) = delete;
  BulkOpener& operator=(const BulkOpener&) = delete;

  // The Bulk may want more. Any thread; does not wait.
  void look();
  // Begins nothing more, gives up what has begun, and waits for its end, which comes at once unless
  // a name is being looked up. Before its connections are closed.
  void stop();

 private:
  void run();
  bool begins(OpeningDescriptor& opening);
  void has_ended();

  MoreConnections& from_;
  Bulk& bulk_;
  std::mutex mutex_;  // Guards all below.
  bool stopping_ = false;
  bool running_ = false;
  OpeningDescriptor* opening_ = nullptr;  // Of the connection that is being opened, if one is.
  std::vector<int> watched_;              // Descriptors; the thread's, then stop()'s.
  Thread thread_;
};

}  // namespace gpurun::client
