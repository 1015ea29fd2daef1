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
#include "server/daemon/connection_server.h"
#include "server/daemon/daemon_events.h"
#include "server/daemon/daemon_options.h"
#include "server/daemon/lease_server.h"
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
  DaemonEvents events_{wake_};
  LeaseServer leases_{{options_, authenticator_, admission_, queue_, book_, lease_links_, events_,
                       audit_, closer_, acceptor_, workers_}};
  ConnectionServer connections_{
      {options_, settings_, book_, events_, token_watch_, audit_, threads_, leases_}};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> reload_wanted_{false};
};

}  // namespace gpurun::server
