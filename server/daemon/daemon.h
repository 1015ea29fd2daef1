// Daemon: the heart of gpurund. Accepts connections, lets nobody past the hello frame who does not
// prove a secret, grants leases, and starts a worker for each session that attaches.
//
// Threads: run()'s (accepts, starts and reaps workers), one per connection that is in a handshake
// or is a control link, one that closes connections, and one that looks at the file of tokens.
// Attached connections belong to their worker, not to us.
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
#include "protocol/control.h"
#include "protocol/limits.h"
#include "protocol/proof.h"
#include "server/daemon/audit.h"
#include "server/daemon/connection_closer.h"
#include "server/daemon/handshake_admission.h"
#include "server/daemon/lease_book.h"
#include "server/daemon/lease_queue.h"
#include "server/daemon/spare_workers.h"
#include "server/daemon/spawn.h"
#include "server/daemon/tokens.h"
#include "server/daemon/users.h"
#include "server/exchange/exchange_book.h"
#include "transport/tls/client_hello.h"
#include "transport/tls/handshake.h"
#include "transport/transport.h"

namespace gpurun::server {

struct DaemonOptions {
  Bytes secret;                        // Empty: whoever reaches the port may ask.
  std::shared_ptr<TokenStore> tokens;  // Of users; empty: there are none.
  UserLimitsTable user_limits;
  std::shared_ptr<AuditLog> audit;  // Empty: nothing is written.
  unsigned devices = 0;
  std::vector<DeviceFacts> device_facts;  // As many, or none: listings then have no names.
  std::string confinement;                // Of workers, for listings.
  // By which emulated devices' memory is counted, for listings; empty: they are not emulated.
  std::shared_ptr<const DeviceLedgers> ledgers;
  std::chrono::milliseconds handshake_deadline{limits::kHandshakeDeadlineS * 1000};
  // What a request that is not to wait waits for nevertheless: GPUs of leases that have ended,
  // whose workers are killed; and the end of leases of its own user, which that user's client may
  // have told before it asked: two connections' packets overtake each other, the more so where one
  // is lost. A client waits for its answer longer than that.
  std::chrono::milliseconds follow_deadline{5000};
  std::chrono::milliseconds overtaken_deadline{750};
  // How often a waiting request is told that its place in the queue has changed.
  std::chrono::milliseconds place_interval{60'000};
  // Of each listener (AdmissionLimits).
  std::size_t half_open_max = limits::kHalfOpenMax;
  std::size_t half_open_of_source = limits::kHalfOpenOfSourceMax;
  std::chrono::milliseconds half_open_grace{limits::kHalfOpenGraceMs};
  // It serves the run of one gpurun, which tells its user of workers' deaths on the same terminal.
  bool for_one_run = false;
  SpareOptions spares;  // Workers that wait for leases.
  // Who we are to clients that speak TLS; empty: no control link can.
  std::shared_ptr<const transport::tls::Identity> identity;
  // Where processes of this machine may attach as well, to share memory with their worker; empty:
  // nowhere. Its address is told to who gets a lease.
  std::shared_ptr<transport::Listener> local;
  bool tls_only = false;            // Also within this machine.
  bool insecure_plaintext = false;  // Beyond it too, clients need not.
  // Called by run()'s thread after reload(); empty: reload() does nothing.
  std::function<void()> on_reload;
};

// What a running daemon can be given anew. New links and requests see it.
struct LiveSettings {
  Bytes secret;
  std::shared_ptr<const transport::tls::Identity> identity;
  bool insecure_plaintext = false;
};

class Daemon {
 public:
  // `spawner` must outlive it. kResourceExhausted: no descriptor.
  static Result<std::unique_ptr<Daemon>> create(std::unique_ptr<transport::Listener> listener,
                                                DaemonOptions options, WorkerSpawner& spawner);
  // Not while run() runs.
  ~Daemon() = default;
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  const std::string& address() const { return listener_->address(); }
  // Serves until stop(), then ends every link and worker. Fails when the listener does.
  Status run();
  // Any thread, and signal handlers.
  void stop() noexcept;
  void reload() noexcept;

  // Replaces what DaemonOptions said of these. Leases and sessions go on. Any thread.
  void adopt(LiveSettings live, UserLimitsTable user_limits);
  std::shared_ptr<const LiveSettings> live() const;
  const transport::Listener& listener() const { return *listener_; }

  // Connections that have not proved anything yet.
  std::size_t half_open() const noexcept;

 private:
  class HalfOpen;
  // A listener, and who has come to it and proved nothing yet.
  struct Door {
    transport::Listener* listener;
    std::unique_ptr<HandshakeAdmission> admission;
  };
  struct LeaseBegun {
    protocol::Id lease;
    std::shared_ptr<Claim> claim;
    User user;
  };
  struct LeaseEnded {
    protocol::Id lease;
  };
  using Event = std::variant<LeaseBegun, Arrival, JoiningConnection, LeaseEnded>;
  struct Running {
    protocol::Id lease;
    std::shared_ptr<Claim> claim;  // Held until the worker is gone.
    std::unique_ptr<Worker> worker;
    protocol::Id session;
    User user;
    bool killed = false;    // By us: no failure.
    bool prepared = false;  // For a session that has not come yet.
    bool sharing = false;   // Memory with its client.
  };
  // What a lease's link is to tell its client: put here by run()'s thread, said by the link's own,
  // so that a client that does not read holds up nobody else.
  struct Link {
    int fd = -1;    // Its connection's.
    UniqueFd wake;  // eventfd: there is something in deaths.
    std::vector<protocol::WorkerEnded> deaths;
    // What goes back at its end.
    UserBook::Stay* stay = nullptr;
    protocol::ListedGpu about;  // What a listing says of each of its GPUs.
    std::weak_ptr<Claim> claim;
    std::shared_ptr<const std::atomic<bool>> returned;

    void end() const;  // Once or more.
  };

  // What a control link was proved to ask, and by whom.
  struct Asked {
    User user;
    WipedKey key{};
    Bytes request;  // Its message.
  };

  Daemon(std::unique_ptr<transport::Listener> listener, DaemonOptions options,
         WorkerSpawner& spawner, UniqueFd wake);
  Status open_doors();

  // run()'s thread.
  Status serve_until_stopped();
  Status look_at(Door& door, bool somebody_came);
  Status accept_all(Door& door);
  void serve_apart(HandshakeAdmission& admission, HandshakeAdmission::Admitted admitted);
  int milliseconds_to_look();
  bool accepts() const;
  void take_events();
  void tell_claims_dropped();
  void prepare_worker(LeaseBegun begun);
  Result<std::unique_ptr<Worker>> worker_for(const std::vector<int>& devices);
  void end_workers_of(const protocol::Id& lease);
  void start_worker(Arrival& arrival);
  void pass_to_worker(JoiningConnection& joining);
  void reap_workers();
  void report_death(const Running& running, const std::string& how);
  Status admit(Arrival& arrival);
  bool use_prepared(Arrival& arrival);
  bool use_spare(Arrival& arrival);
  void end_all(const std::string& why);

  // What a connection has sent so far, unread, proves a ticket (daemon_accept.cc).
  bool shows_ticket(const transport::Connection& connection) const;
  // A connection's thread (daemon_link.cc).
  void serve(std::unique_ptr<transport::Connection>& connection, HalfOpen& half_open,
             Deadline deadline);
  // Behind TLS, if there is any, with its channel's exporter (protocol/proof.h).
  using Exporter = std::optional<protocol::Nonce>;
  void serve_link(std::unique_ptr<transport::Connection>& connection, HalfOpen& half_open,
                  const Exporter& exporter, Deadline deadline);
  // TLS (daemon_tls.cc).
  static Result<bool> begins_with_tls(const transport::Connection& connection, Deadline deadline);
  Status check_plaintext(const transport::Connection& connection) const;
  static void refuse_in_tls(transport::Connection& connection, transport::tls::Alert alert);
  void serve_tls(std::unique_ptr<transport::Connection>& connection, HalfOpen& half_open,
                 Deadline deadline);
  void serve_session(std::unique_ptr<transport::Connection>& connection,
                     const transport::tls::KeyOffer& offer,
                     const protocol::SessionIdentity& identity, HalfOpen& half_open);
  // To its session, which begins or runs. On success `connection` is empty.
  Status take_in(const protocol::Attach& attach, const protocol::Key& key,
                 std::unique_ptr<transport::Connection>& connection, bool encrypted);
  // Leaves `connection` empty when it has passed to its session.
  void serve_attach(std::unique_ptr<transport::Connection>& connection,
                    const protocol::ControlFrame& frame, const protocol::Attach& attach,
                    HalfOpen& half_open);
  void serve_control(transport::Connection& connection, const protocol::Hello& hello,
                     HalfOpen& half_open, const Exporter& exporter, Deadline deadline);
  // daemon_identify.cc
  Result<Asked> identify(transport::Connection& connection, const protocol::Hello& hello,
                         const Exporter& exporter, Deadline deadline);
  Status check_still_valid(const User& user);
  void heed_tokens();
  Status watch_tokens();  // From now on, on a thread of its own, until the next.
  void end_token_watch();
  void audit(const char* event, std::initializer_list<AuditLog::Field> fields);
  void audit_refusal(const char* event, std::initializer_list<AuditLog::Field> fields);

  void hold_lease(transport::Connection& connection, const protocol::LeaseRequest& request,
                  const Asked& asked);
  std::vector<std::string> models_of(const std::vector<int>& devices) const;
  bool all_emulated(const std::vector<int>& devices) const;
  void tell_deaths(transport::Connection& connection, const protocol::Id& lease, const Asked& asked,
                   UserBook::Stay& stay, std::uint64_t sent);
  void wait_until_free(const std::atomic<bool>& returned);
  protocol::Listing listing();
  void list_leases(protocol::Listing* listing);
  // How a request waits (daemon_wait.cc).
  struct Patience;
  void note_ended_links();
  bool own_suffice(const protocol::LeaseRequest& request, const User& user) const;
  Result<bool> wait_for(Room room, const transport::Connection& connection, const User& user,
                        const UserBook::Stay* stay, Patience& patience);
  Result<std::unique_ptr<UserBook::Stay>> enter(const transport::Connection& connection,
                                                const protocol::LeaseRequest& request,
                                                const User& user, Patience& patience);
  Result<std::shared_ptr<Claim>> follow(const transport::Connection& connection,
                                        const protocol::LeaseRequest& request, const User& user,
                                        const UserBook::Stay& stay, Patience& patience);
  Result<bool> wait_in_queue(transport::Connection& connection,
                             const protocol::LeaseRequest& request, const protocol::Key& key,
                             const UserBook::Stay& stay, const Claim& claim, Deadline deadline,
                             std::uint64_t& sent);
  Result<std::shared_ptr<Claim>> wait_for_devices(transport::Connection& connection,
                                                  const protocol::LeaseRequest& request,
                                                  const Asked& asked, const UserBook::Stay& stay,
                                                  Patience& patience, std::uint64_t& sent);
  Deadline handshake() const { return Deadline::in(options_.handshake_deadline); }
  void post(Event event);
  // No longer to be shut down by us; before it is destroyed or passed on.
  void forget_link(transport::Connection* link);
  void wake() noexcept;

  const std::unique_ptr<transport::Listener> listener_;
  const DaemonOptions options_;
  WorkerSpawner& spawner_;
  const UniqueFd wake_;  // eventfd: events, stop, or a half-open place that came free.
  ConnectionCloser closer_;
  std::vector<Door> doors_;
  std::chrono::steady_clock::time_point accepts_from_;  // run()'s thread: not before.
  UserBook users_;
  LeaseQueue queue_;
  LeaseBook book_;
  ExchangeBook exchange_;                   // run()'s thread.
  std::vector<Running> workers_;            // run()'s thread.
  SpareWorkers spares_;                     // run()'s thread.
  std::mutex lease_links_mutex_;            // Over those of users_ and queue_, a leaf else.
  std::condition_variable claims_dropped_;  // Perhaps: by run()'s thread.
  std::map<protocol::Id, Link> lease_links_;
  struct WorkerCount {
    std::uint32_t all = 0;
    std::uint32_t sharing = 0;  // Memory with their client.
  };
  std::map<protocol::Id, WorkerCount> worker_counts_;  // By lease; under lease_links_mutex_.

  std::atomic<bool> stopping_{false};
  std::atomic<bool> reload_wanted_{false};
  std::atomic<std::size_t> spare_count_{0};  // Of spares_, for listings.
  mutable std::mutex mutex_;
  std::shared_ptr<const LiveSettings> live_;  // Under mutex_, as what follows.
  std::condition_variable thread_ended_;
  std::size_t threads_ = 0;
  std::set<transport::Connection*> links_;  // To shut down at the end.
  std::deque<Event> events_;

  std::mutex heed_mutex_;  // Before all others.
  std::thread token_watch_;
  std::condition_variable token_watch_told_;
  bool token_watch_ends_ = false;  // Under mutex_.
};

}  // namespace gpurun::server
