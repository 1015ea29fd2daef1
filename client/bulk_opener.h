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
  // Begins nothing more, and waits for what has begun. Before its connections are closed.
  void stop();

 private:
  void run();
  bool goes_on();

  MoreConnections& from_;
  Bulk& bulk_;
  std::mutex mutex_;  // Guards all below.
  bool stopping_ = false;
  bool running_ = false;
  std::vector<int> watched_;  // Descriptors; the thread's, then stop()'s.
  Thread thread_;
};

}  // namespace gpurun::client
