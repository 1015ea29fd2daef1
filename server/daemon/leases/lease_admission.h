// LeaseAdmission: how a request for a lease waits, first for its user's bounds, then for GPUs. A
// request that asks not to wait is refused, except when what it needs is about to come back.
//
// The thread of the request's link. It has no state of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "protocol/auth/proof.h"
#include "protocol/control/control.h"
#include "server/daemon/leases/lease_book.h"
#include "server/daemon/leases/lease_links.h"
#include "server/daemon/leases/lease_queue.h"
#include "server/daemon/leases/lease_wait_budget.h"
#include "server/daemon/users/users.h"
#include "transport/transport.h"

namespace gpurun::server {

class LeaseAdmission {
 public:
  // Borrows all references.
  LeaseAdmission(const LeaseWaitLimits& limits, UserRegistry& users, LeaseQueue& queue,
                 LeaseBook& book, LeaseLinks& links)
      : limits_(limits), users_(users), queue_(queue), book_(book), links_(links) {}
  LeaseAdmission(const LeaseAdmission&) = delete;
  LeaseAdmission& operator=(const LeaseAdmission&) = delete;

  LeaseWaitBudget budget(const protocol::LeaseRequest& request) const {
    return LeaseWaitBudget(limits_, request);
  }
  // Waits for the user's bounds. Fails with the bound that the user has reached.
  Result<std::unique_ptr<UserAdmission>> enter(const transport::Connection& connection,
                                               const protocol::LeaseRequest& request,
                                               const User& user, LeaseWaitBudget& budget);
  // Waits for the GPUs. The client gets its place in the queue, in messages from number `sent` on.
  Result<std::shared_ptr<Claim>> wait_for_devices(transport::Connection& connection,
                                                  const protocol::LeaseRequest& request,
                                                  const User& user, const protocol::Key& key,
                                                  const UserAdmission& admission,
                                                  LeaseWaitBudget& budget, std::uint64_t& sent);

 private:
  bool own_suffice(const protocol::LeaseRequest& request, const User& user) const;
  Result<bool> wait_for(Room room, const transport::Connection& connection, const User& user,
                        const UserAdmission* admission, LeaseWaitBudget& budget);
  Result<std::shared_ptr<Claim>> follow(const transport::Connection& connection,
                                        const protocol::LeaseRequest& request, const User& user,
                                        const UserAdmission& admission, LeaseWaitBudget& budget);
  Result<bool> wait_in_queue(transport::Connection& connection,
                             const protocol::LeaseRequest& request, const protocol::Key& key,
                             const UserAdmission& admission, const Claim& claim, Deadline deadline,
                             std::uint64_t& sent);

  const LeaseWaitLimits limits_;
  UserRegistry& users_;
  LeaseQueue& queue_;
  LeaseBook& book_;
  LeaseLinks& links_;
};

}  // namespace gpurun::server
