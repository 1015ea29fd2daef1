// Daemon: the core of gpurund. It accepts connections, and lets a peer past the hello frame only
// when it proves a secret. It grants leases, and starts a worker for each session that attaches.
//
// Threads: run()'s (accepts, starts and reaps workers), one for each connection in a handshake or
// control link, one that closes connections, and one that watches the file of tokens. An attached
// connection belongs to its worker, not to the daemon.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/auth/proof.h"
#include "protocol/control/control.h"
#include "protocol/limits.h"
#include "server/daemon/authenticator.h"
#include "server/daemon/leases/lease_admission.h"
#include "server/daemon/leases/lease_book.h"
#include "server/daemon/leases/lease_links.h"
#include "server/daemon/leases/lease_queue.h"
#include "server/daemon/links/acceptor.h"
#include "server/daemon/links/connection_closer.h"
#include "server/daemon/links/connection_threads.h"
#include "server/daemon/links/half_open.h"
#include "server/daemon/links/handshake_admission.h"
#include "server/daemon/links/loop_wake.h"
#include "server/daemon/links/tls_hello.h"
#include "server/daemon/live_settings.h"
#include "server/daemon/session_workers.h"
#include "server/daemon/token_watch.h"
#include "server/daemon/users/audit.h"
#include "server/daemon/users/tokens.h"
#include "server/daemon/users/users.h"
#include "server/daemon/workers/spare_workers.h"
#include "server/daemon/workers/spawn.h"
#include "transport/tls/client_hello.h"
#include "transport/tls/handshake.h"
#include "transport/transport.h"

namespace gpurun::server {

struct DaemonOptions {
  Bytes secret;                        // Empty: every peer that reaches the port may ask.
  std::shared_ptr<TokenStore> tokens;  // Of users. Empty: no tokens.
  UserLimitsTable user_limits;
  std::shared_ptr<AuditLog> audit;  // Empty: no audit log.
  unsigned devices = 0;
  std::vector<DeviceFacts> device_facts;  // One for each device, or none: then listings have no
                                          // names.
  std::string confinement;                // Of workers, for listings.
  // Counts the memory of emulated devices, for listings. Empty: they are not emulated.
  std::shared_ptr<const DeviceLedgers> ledgers;
  std::chrono::milliseconds handshake_deadline{limits::kHandshakeDeadlineS * 1000};
  // Bounds for a request that asks not to wait. follow_deadline: how long it still waits for GPUs
  // of ended leases, which become free when their workers are killed.
  // overtaken_deadline: how long it waits for leases of its own user to end. The user's client may
  // have ended them before it asked, but two connections' packets overtake each other, above all
  // after a loss. A client must wait longer than both for its answer.
  std::chrono::milliseconds follow_deadline{5000};
  std::chrono::milliseconds overtaken_deadline{750};
  // How often a waiting request may be notified of a new place in the queue.
  std::chrono::milliseconds place_interval{60'000};
  // For each listener (AdmissionLimits).
  std::size_t half_open_max = limits::kHalfOpenMax;
  std::size_t half_open_of_source = limits::kHalfOpenOfSourceMax;
  std::chrono::milliseconds half_open_grace{limits::kHalfOpenGraceMs};
  // The daemon serves one gpurun's run. That gpurun reports workers' deaths on the same terminal.
  bool for_one_run = false;
  SpareOptions spares;  // Workers that wait for leases.
  // The server's identity for clients that speak TLS. Empty: no control link may use TLS.
  std::shared_ptr<const transport::tls::Identity> identity;
  // Where processes of this machine may attach, to share memory with their worker. Empty: nowhere.
  // A client gets its address with its lease.
  std::shared_ptr<transport::Listener> local;
  bool tls_only = false;            // Also within this machine.
  bool insecure_plaintext = false;  // Clients beyond this machine need no TLS.
  // run()'s thread calls it after reload(). Empty: reload() does nothing.
  std::function<void()> on_reload;
};

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
  struct LeaseEnded {
    protocol::Id lease;
  };
  using Event = std::variant<LeaseBegun, Arrival, JoiningConnection, LeaseEnded>;
  Daemon(std::unique_ptr<transport::Listener> listener, DaemonOptions options,
         WorkerSpawner& spawner, UniqueFd wake);
  Status open_listeners();

  // run()'s thread.
  Status serve_until_stopped();
  int milliseconds_to_look();
  void take_events();
  void end_all(const std::string& why);

  // A connection's thread (daemon_link.cc).
  void serve(std::unique_ptr<transport::Connection>& connection, HalfOpen& half_open,
             Deadline deadline);
  void serve_link(std::unique_ptr<transport::Connection>& connection, HalfOpen& half_open,
                  const Exporter& exporter, Deadline deadline);
  // TLS (daemon_tls.cc).
  Status check_plaintext(const transport::Connection& connection) const;
  void serve_tls(std::unique_ptr<transport::Connection>& connection, HalfOpen& half_open,
                 Deadline deadline);
  void serve_session(std::unique_ptr<transport::Connection>& connection,
                     const transport::tls::KeyOffer& offer,
                     const protocol::SessionIdentity& identity, HalfOpen& half_open);
  // Passes the connection to its session, which begins or already runs. On success `connection` is
  // empty.
  Status take_in(const protocol::Attach& attach, const protocol::Key& key,
                 std::unique_ptr<transport::Connection>& connection, bool encrypted);
  // Leaves `connection` empty when its session has taken it.
  void serve_attach(std::unique_ptr<transport::Connection>& connection,
                    const protocol::ControlFrame& frame, const protocol::Attach& attach,
                    HalfOpen& half_open);
  void serve_control(transport::Connection& connection, const protocol::Hello& hello,
                     HalfOpen& half_open, const Exporter& exporter, Deadline deadline);
  void hold_lease(transport::Connection& connection, const protocol::LeaseRequest& request,
                  const Asked& asked);
  std::vector<std::string> models_of(const std::vector<int>& devices) const;
  bool all_emulated(const std::vector<int>& devices) const;
  void tell_deaths(transport::Connection& connection, const protocol::Id& lease, const Asked& asked,
                   UserAdmission& admission, std::uint64_t sent);
  protocol::Listing listing();
  void list_leases(protocol::Listing* listing);
  Deadline handshake() const { return Deadline::in(options_.handshake_deadline); }
  void post(Event event);

  const std::unique_ptr<transport::Listener> listener_;
  const DaemonOptions options_;
  CurrentSettings settings_{{options_.secret, options_.identity, options_.insecure_plaintext}};
  const LoopWake wake_;
  ConnectionCloser closer_;
  ConnectionThreads threads_;
  Acceptor acceptor_{threads_, closer_};
  UserBook users_;
  LeaseQueue queue_;
  LeaseBook book_;
  LeaseLinks lease_links_{stopping_};
  LeaseAdmission admission_;
  AuditTrail audit_{options_.audit};
  TokenWatch token_watch_{options_.tokens, audit_, book_, users_};
  Authenticator authenticator_{options_.tokens, settings_};
  SessionWorkers workers_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> reload_wanted_{false};
  mutable std::mutex mutex_;
  std::deque<Event> events_;  // Under mutex_.
};

}  // namespace gpurun::server
