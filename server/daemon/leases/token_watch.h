// TokenWatch: applies an operator's changes in the file of tokens: audits them, and ends the leases
// of revoked tokens. A thread of its own looks at the file every second.
//
// Any thread, but only run()'s calls start() and end(). apply_changes()'s mutex is taken before all
// others of the daemon.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "server/daemon/leases/lease_book.h"
#include "server/daemon/users/audit.h"
#include "server/daemon/users/tokens.h"
#include "server/daemon/users/users.h"

namespace gpurun::server {

class TokenWatch {
 public:
  // Empty `tokens`: it does nothing. Borrows the references.
  TokenWatch(std::shared_ptr<TokenStore> tokens, AuditTrail& audit, LeaseBook& book,
             UserRegistry& users)
      : tokens_(std::move(tokens)), audit_(audit), book_(book), users_(users) {}
  TokenWatch(const TokenWatch&) = delete;
  TokenWatch& operator=(const TokenWatch&) = delete;

  // Not for run()'s thread, because a disk may make it wait. When it returns, all changes that were
  // made before the call are active, whichever thread has applied them.
  void apply_changes();
  // Starts the thread. kResourceExhausted: no thread can start.
  Status start();
  // Returns once the thread has ended. It may wait for a disk, or for the lock of the tokens' file.
  void end();

 private:
  const std::shared_ptr<TokenStore> tokens_;
  AuditTrail& audit_;
  LeaseBook& book_;
  UserRegistry& users_;
  std::mutex apply_mutex_;  // Taken before all others.
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable told_;
  bool ends_ = false;  // Under mutex_.
};

}  // namespace gpurun::server
