// ConnectionServer: a connection from its place in the handshake to its owner: a control link, or
// the worker of a session.
//
// With TLS the daemon is the TLS server of a control link. It only peeks at a session's connection,
// and leaves all bytes unread, because the worker does that handshake. The thread of the
// connection. It has no state of its own.
#pragma once

#include <memory>

#include "base/deadline.h"
#include "base/status.h"
#include "protocol/control/control.h"
#include "protocol/control/session_identity.h"
#include "server/daemon/daemon_events.h"
#include "server/daemon/daemon_options.h"
#include "server/daemon/lease_server.h"
#include "server/daemon/leases/lease_book.h"
#include "server/daemon/leases/token_watch.h"
#include "server/daemon/links/connection_threads.h"
#include "server/daemon/links/half_open.h"
#include "server/daemon/links/live_settings.h"
#include "server/daemon/users/audit.h"
#include "transport/tls/client_hello.h"

namespace gpurun::server {

class ConnectionServer {
 public:
  // Borrowed.
  struct Parts {
    const DaemonOptions& options;
    const CurrentSettings& settings;
    LeaseBook& book;
    DaemonEvents& events;
    TokenWatch& tokens;
    AuditTrail& audit;
    ConnectionThreads& threads;
    LeaseServer& leases;
  };
  explicit ConnectionServer(const Parts& parts) : parts_(parts) {}
  ConnectionServer(const ConnectionServer&) = delete;
  ConnectionServer& operator=(const ConnectionServer&) = delete;

  // See ConnectionThreads::Serve.
  void serve(std::unique_ptr<transport::Connection>& connection, HalfOpen& half_open,
             Deadline deadline);

 private:
  Status check_plaintext(const transport::Connection& connection) const;
  void serve_link(std::unique_ptr<transport::Connection>& connection, HalfOpen& half_open,
                  const Exporter& exporter, Deadline deadline);
  void serve_tls(std::unique_ptr<transport::Connection>& connection, HalfOpen& half_open,
                 Deadline deadline);
  void serve_session(std::unique_ptr<transport::Connection>& connection,
                     const transport::tls::KeyOffer& offer,
                     const protocol::SessionIdentity& identity, HalfOpen& half_open);
  // Leaves `connection` empty when its session has taken it.
  void serve_attach(std::unique_ptr<transport::Connection>& connection,
                    const protocol::ControlFrame& frame, const protocol::Attach& attach,
                    HalfOpen& half_open);
  // Passes the connection to its session, which begins or already runs. On success `connection` is
  // empty.
  Status take_in(const protocol::Attach& attach, const protocol::Key& key,
                 std::unique_ptr<transport::Connection>& connection, bool encrypted);
  Deadline handshake() const { return Deadline::in(parts_.options.handshake_deadline); }

  const Parts parts_;
};

}  // namespace gpurun::server
