// Daemon: the core of gpurund. It accepts connections, and lets a peer past the hello frame only
// when it proves a secret. It grants leases, and starts a worker for each session that attaches.
// The class itself only owns its parts, connects them, and runs the loop.
//
// The way of a connection: the Acceptor accepts it. The connection stays in the HandshakeAdmission
// of its listener until it has sent a byte and a place is free. Then ConnectionThreads gives it a
// thread. ConnectionServer distinguishes two kinds by the first bytes:
// - A control link. With TLS the daemon finishes the handshake. Authenticator proves the peer.
//   LeaseServer serves its request: a listing, or a lease for as long as the link lives. The lease
//   waits in LeaseAdmission for the user's bounds (UserRegistry) and for GPUs (LeaseQueue). Then it
//   is in LeaseBook, and its link in LeaseLinks.
// - A connection of a session. LeaseBook checks the proof of its ticket and gathers the session's
//   connections. Then the session comes to the loop as an event.
// The loop takes DaemonEvents and gives sessions and leases to SessionWorkers, which starts workers
// and reaps them. An attached connection belongs to its worker, not to the daemon.
//
// Threads: run()'s has the loop, the Acceptor and SessionWorkers. Workers are started on it,
// because they end with the thread that started them. Each connection in a handshake or control
// link has a thread. One thread closes connections (ConnectionCloser), and one watches the file of
// tokens (TokenWatch). Signal handlers only call stop() and reload().
//
// Locks: each part has its own. TokenWatch::apply_changes() takes its lock before all others.
// LeaseLinks takes its lock before those of UserRegistry and LeaseQueue. The locks of LeaseQueue
// and ConnectionCloser come last: a claim or a connection may end under another part's lock.
//
// Rules for a change:
// - The loop never waits for a peer or for a disk. A courtesy to a peer has a deadline of 100 ms.
// - All that a stranger can make the daemon hold has a bound for each source, and a deadline.
//   All that a user can hold has a bound for each user.
// - Before its proof a peer reaches no parser but those of the ClientHello and of small messages.
// - A connection that leaves its thread is first forgotten by ConnectionThreads, and its place is
//   free (HalfOpen::proved()).
// - What the peer has sent is read before a refusal. A close with unread bytes would discard it.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "server/daemon/connection_server.h"
#include "server/daemon/daemon_events.h"
#include "server/daemon/daemon_options.h"
#include "server/daemon/lease_server.h"
#include "server/daemon/leases/lease_admission.h"
#include "server/daemon/leases/lease_book.h"
#include "server/daemon/leases/lease_links.h"
#include "server/daemon/leases/lease_queue.h"
#include "server/daemon/leases/token_watch.h"
#include "server/daemon/links/acceptor.h"
#include "server/daemon/links/authenticator.h"
#include "server/daemon/links/connection_closer.h"
#include "server/daemon/links/connection_threads.h"
#include "server/daemon/links/live_settings.h"
#include "server/daemon/links/loop_wake.h"
#include "server/daemon/session_workers.h"
#include "server/daemon/users/audit.h"
#include "server/daemon/users/users.h"
#include "transport/transport.h"

namespace gpurun::server {

class Daemon {
 public:
  // `spawner` must outlive it. kResourceExhausted: no descriptor.
  static Result<std::unique_ptr<Daemon>> create(std::unique_ptr<transport::Listener> listener,
                                                DaemonOptions options, WorkerSpawner& spawner);
  // Call only when run() does not run.
  ~Daemon() = default;
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  const std::string& address() const { return listener_->address(); }
  // Serves until stop(), and then ends every link and worker. Fails when the listener fails.
  Status run();
  // Any thread, and signal handlers.
  void stop() noexcept;
  void reload() noexcept;

  // Replaces these settings of DaemonOptions. Leases and sessions go on. Any thread.
  void adopt(LiveSettings live, UserLimitsTable user_limits);
  std::shared_ptr<const LiveSettings> live() const { return settings_.get(); }
  const transport::Listener& listener() const { return *listener_; }

  // The number of connections that have not proved anything yet.
  std::size_t half_open() const noexcept;

 private:
  Daemon(std::unique_ptr<transport::Listener> listener, DaemonOptions options,
         WorkerSpawner& spawner, UniqueFd wake);
  Status open_listeners();

  // run()'s thread.
  Status serve_until_stopped();
  int milliseconds_to_look();
  void take_events();
  void end_all(const std::string& why);

  // In the order in which they need each other.
  const std::unique_ptr<transport::Listener> listener_;
  const DaemonOptions options_;
  CurrentSettings settings_{{options_.secret, options_.identity, options_.insecure_plaintext}};
  const LoopWake wake_;
  ConnectionCloser closer_;
  ConnectionThreads threads_;
  Acceptor acceptor_{threads_, closer_};
  UserRegistry users_;
  LeaseQueue queue_;
  LeaseBook book_;
  LeaseLinks lease_links_{stopping_};
  LeaseAdmission admission_;
  AuditTrail audit_{options_.audit};
  TokenWatch token_watch_{options_.tokens, audit_, book_, users_};
  Authenticator authenticator_{options_.tokens, settings_};
  SessionWorkers workers_;
  DaemonEvents events_{wake_};
  LeaseServer leases_{{options_, authenticator_, admission_, queue_, book_, lease_links_, events_,
                       audit_, closer_, acceptor_, workers_}};
  ConnectionServer connections_{
      {options_, settings_, book_, events_, token_watch_, audit_, threads_, leases_}};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> reload_wanted_{false};
};

}  // namespace gpurun::server
