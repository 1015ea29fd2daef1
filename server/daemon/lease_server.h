// LeaseServer: the daemon's end of a control link, from the peer's hello to the end of its lease.
//
// The thread of the link. It has no state of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "protocol/control/control.h"
#include "server/daemon/daemon_events.h"
#include "server/daemon/daemon_options.h"
#include "server/daemon/leases/lease_admission.h"
#include "server/daemon/leases/lease_book.h"
#include "server/daemon/leases/lease_links.h"
#include "server/daemon/leases/lease_queue.h"
#include "server/daemon/links/acceptor.h"
#include "server/daemon/links/authenticator.h"
#include "server/daemon/links/connection_closer.h"
#include "server/daemon/links/half_open.h"
#include "server/daemon/session_workers.h"
#include "server/daemon/users/audit.h"
#include "server/daemon/users/users.h"

namespace gpurun::server {

class LeaseServer {
 public:
  // Borrowed.
  struct Parts {
    const DaemonOptions& options;
    const Authenticator& authenticator;
    LeaseAdmission& admission;
    LeaseQueue& queue;
    LeaseBook& book;
    LeaseLinks& links;
    DaemonEvents& events;
    AuditTrail& audit;
    ConnectionCloser& closer;
    const Acceptor& acceptor;  // For listings, as the next.
    const SessionWorkers& workers;
  };
  explicit LeaseServer(const Parts& parts) : parts_(parts) {}
  LeaseServer(const LeaseServer&) = delete;
  LeaseServer& operator=(const LeaseServer&) = delete;

  // Serves the link after its hello: identifies the peer, and serves its request until its end.
  void serve(transport::Connection& connection, const protocol::Hello& hello, HalfOpen& half_open,
             const Exporter& exporter, Deadline deadline);

 private:
  // `release`: gpurun's version on the client.
  void hold_lease(transport::Connection& connection, const protocol::LeaseRequest& request,
                  const Asked& asked, const std::string& release);
  void tell_deaths(transport::Connection& connection, const protocol::Id& lease, const Asked& asked,
                   UserAdmission& admission, std::uint64_t sent);
  std::vector<std::string> models_of(const std::vector<int>& devices) const;
  bool all_emulated(const std::vector<int>& devices) const;
  protocol::Listing listing() const;
  void list_leases(protocol::Listing* listing) const;
  Deadline handshake() const { return Deadline::in(parts_.options.handshake_deadline); }

  const Parts parts_;
};

// A refusal is a courtesy: its loss changes nothing.
void refuse(transport::Connection& connection, const std::string& reason, Deadline deadline,
            bool for_good = true);

}  // namespace gpurun::server
