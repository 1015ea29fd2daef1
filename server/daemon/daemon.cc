// Daemon: the main loop accepts connections, starts workers and reaps them.
#include "server/daemon/daemon.h"

#include <errno.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "base/hex.h"
#include "server/daemon/leases/ticket_check.h"
#include "transport/shm/memory.h"

namespace gpurun::server {
namespace {

// How often sessions with missing connections are checked.
constexpr int kLookMilliseconds = 1000;
// For a refusal to a client with a failed session. It is only a courtesy, and blocks everything
// else.
constexpr std::chrono::milliseconds kRefusalDeadline{100};
// Events in one turn. The start of a worker takes milliseconds, during which other events wait.
constexpr std::size_t kEventsAtOnceMax = 16;
// For links to send their clients the reason why the daemon ends.
constexpr std::chrono::milliseconds kLastWordsDeadline{1000};
constexpr const char* kStopped = "the server was stopped by its operator";

// Spare workers also use users, processes and descriptors.
bool lacks_what_spares_hold(const Result<std::unique_ptr<Worker>>& worker) {
  return !worker.ok() && worker.status().code() == Code::kResourceExhausted;
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::create(std::unique_ptr<transport::Listener> listener,
                                               DaemonOptions options, WorkerSpawner& spawner) {
  // The first logging call makes the logger, which every thread uses. So make it before the
  // threads, and before the owner registers anything for the process's end.
  static_cast<void>(spdlog::default_logger_raw());
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return Status::from_errno(errno, "eventfd");
  std::unique_ptr<Daemon> daemon(
      new Daemon(std::move(listener), std::move(options), spawner, std::move(wake)));
  GPURUN_RETURN_IF_ERROR(daemon->open_listeners());
  return daemon;
}

Daemon::Daemon(std::unique_ptr<transport::Listener> listener, DaemonOptions options,
               WorkerSpawner& spawner, UniqueFd wake)
    : listener_(std::move(listener)),
      options_(std::move(options)),
      spawner_(spawner),
      wake_(std::move(wake)),
      threads_([this](auto& connection, HalfOpen& half_open,
                      Deadline deadline) { serve(connection, half_open, deadline); },
               closer_, wake_),
      users_(options_.user_limits),
      queue_(options_.devices),
      book_(options_.handshake_deadline),
      admission_({options_.devices, options_.follow_deadline, options_.overtaken_deadline,
                  options_.place_interval, options_.handshake_deadline},
                 users_, queue_, book_, lease_links_),
      spares_(spawner_, options_.spares) {}

Status Daemon::open_listeners() {
  AdmissionLimits limits;
  limits.places = options_.half_open_max;
  limits.places_of_source = options_.half_open_of_source;
  limits.grace = options_.half_open_grace;
  limits.deadline = options_.handshake_deadline;
  for (transport::Listener* listener : {listener_.get(), options_.local.get()}) {
    if (listener == nullptr) continue;
    GPURUN_RETURN_IF_ERROR(
        acceptor_.open(listener, limits, [this](const transport::Connection& connection) {
          return shows_ticket(book_, connection);
        }));
  }
  return {};
}

std::size_t Daemon::half_open() const noexcept { return acceptor_.half_open(); }

// Sooner than usual when a worker is missing, or a connection waits for a place.
int Daemon::milliseconds_to_look() {
  int milliseconds = kLookMilliseconds;
  const int refill = spares_.milliseconds_to_refill();
  if (refill >= 0) milliseconds = std::min(milliseconds, refill);
  return acceptor_.milliseconds_to_look(milliseconds);
}

Status Daemon::run() {
  closer_.start();
  Status status = token_watch_.start();
  if (status.ok()) status = serve_until_stopped();
  stopping_ = true;
  end_all(status.ok() ? kStopped : "the server ended: " + status.message());
  return status;
}

void Daemon::stop() noexcept {
  stopping_ = true;
  wake_.wake();
}

void Daemon::reload() noexcept {
  reload_wanted_ = true;
  wake_.wake();
}

void Daemon::adopt(LiveSettings live, UserLimitsTable user_limits) {
  settings_.adopt(std::move(live));
  users_.set_limits(std::move(user_limits));
}

Status Daemon::serve_until_stopped() {
  std::vector<pollfd> waited;
  while (!stopping_) {
    spares_.refill();  // After all events, because a new lease delays it.
    spare_count_ = spares_.count();
    const int timeout = milliseconds_to_look();
    waited.assign({{wake_.fd(), POLLIN, 0}});
    acceptor_.watch(&waited);
    for (const Running& running : workers_) {
      waited.push_back({running.worker->exit_fd(), POLLIN, 0});
      waited.push_back({running.worker->log_fd(), POLLIN, 0});
      waited.push_back({running.worker->exchange_fd(), POLLIN, 0});
    }
    spares_.watch(&waited);
    const int ready = poll(waited.data(), waited.size(), timeout);
    if (ready < 0 && errno != EINTR) return Status::from_errno(errno, "poll");
    if (reload_wanted_.exchange(false) && options_.on_reload) options_.on_reload();
    closer_.close(book_.drop_late());
    spares_.look();
    if (ready <= 0) continue;
    if (waited[0].revents != 0) wake_.clear();
    for (const Running& running : workers_) {
      running.worker->relay_log();
      running.worker->serve_exchange(exchange_, running.lease);
    }
    reap_workers();
    take_events();
    lease_links_.tell_claims_dropped();
    GPURUN_RETURN_IF_ERROR(acceptor_.look(waited));
  }
  return Status();
}

void Daemon::post(Event event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  wake_.wake();
}

void Daemon::take_events() {
  std::deque<Event> events;
  {
    const std::lock_guard lock(mutex_);
    while (!events_.empty() && events.size() < kEventsAtOnceMax) {
      events.push_back(std::move(events_.front()));
      events_.pop_front();
    }
    if (!events_.empty()) wake_.wake();
  }
  for (Event& event : events) {
    if (auto* begun = std::get_if<LeaseBegun>(&event)) {
      prepare_worker(std::move(*begun));
      continue;
    }
    if (auto* arrival = std::get_if<Arrival>(&event)) {
      const std::size_t connections = arrival->order.connections.size();
      start_worker(*arrival);
      book_.settled(arrival->lease, connections);
      closer_.close(std::move(arrival->order.connections));  // Those that no worker has taken.
      continue;
    }
    if (auto* joining = std::get_if<JoiningConnection>(&event)) {
      pass_to_worker(*joining);
      closer_.close(std::move(joining->connection));
      continue;
    }
    end_workers_of(std::get<LeaseEnded>(event).lease);
  }
}

void Daemon::end_workers_of(const protocol::Id& lease) {
  for (Running& running : workers_) {
    if (running.lease != lease) continue;
    running.killed = true;
    running.worker->kill();
  }
}

// Returns a spare worker, or starts a new one.
Result<std::unique_ptr<Worker>> Daemon::worker_for(const std::vector<int>& devices) {
  if (std::unique_ptr<Worker> spare = spares_.take(devices)) return spare;
  Result<std::unique_ptr<Worker>> worker = spawner_.prepare(devices);
  if (lacks_what_spares_hold(worker) && spares_.give_up()) worker = spawner_.prepare(devices);
  return worker;
}

// A lease's first worker opens the devices while the client is still connecting. A failure costs
// only time.
void Daemon::prepare_worker(LeaseBegun begun) {
  if (!book_.has(begun.lease)) return;
  Result<std::unique_ptr<Worker>> worker = worker_for(begun.claim->devices());
  spares_.lease_began();
  spares_.expect(queue_.expected());
  if (!worker.ok()) return spdlog::info("no worker beforehand: {}", worker.status().to_string());
  Running running{begun.lease, std::move(begun.claim), *std::move(worker), {}, begun.user};
  running.prepared = true;
  workers_.push_back(std::move(running));
}

void Daemon::start_worker(Arrival& arrival) {
  if (!book_.has(arrival.lease)) return;
  const User user = arrival.order.user;
  const std::string from = (arrival.order.encrypted ? "tls 1.3 over " : "") +
                           arrival.order.connections[0]->description();
  const std::string lease = hex_of(bytes_of(arrival.lease));
  const protocol::Id id = arrival.order.session;
  const std::string session = hex_of(bytes_of(id));
  const bool sharing = transport::shm::is_local(*arrival.order.connections[0]);
  if (const Status admitted = admit(arrival); !admitted.ok()) {
    audit_.write_refusal("session.refused", {{"user", user.name},
                                             {"token", user.token},
                                             {"from", from},
                                             {"lease", lease},
                                             {"reason", admitted.message()}});
    if (arrival.order.encrypted) {
      for (const auto& connection : arrival.order.connections) {
        refuse_in_tls(*connection, transport::tls::Alert::kInternalError);
      }
      return;
    }
    static_cast<void>(protocol::send_control(
        *arrival.order.connections[0], protocol::Refused{admitted.message()}, arrival.order.key,
        protocol::Sender::kServer, 0, Deadline::in(kRefusalDeadline)));
    return;
  }
  audit_.write("session.started", {{"user", user.name},
                                   {"token", user.token},
                                   {"from", from},
                                   {"lease", lease},
                                   {"session", session}});
  for (Running& running : workers_) {
    if (!running.prepared && running.session == id) running.sharing = sharing;
  }
  lease_links_.session_started(arrival.lease, sharing);
}

// The client works without this connection when the worker cannot get it.
void Daemon::pass_to_worker(JoiningConnection& joining) {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const Running& other) {
    return !other.prepared && !other.killed && other.lease == joining.lease &&
           other.session == joining.session;
  });
  const Status given = found == workers_.end() ? Status(Code::kUnavailable, "its worker has ended")
                                               : found->worker->join(joining);
  if (given.ok()) return;
  spdlog::info("{}: joins no session: {}", joining.connection->description(), given.message());
  if (joining.encrypted) {
    return refuse_in_tls(*joining.connection, transport::tls::Alert::kInternalError);
  }
  static_cast<void>(protocol::send_control(*joining.connection, protocol::Refused{given.message()},
                                           joining.key, protocol::Sender::kServer, joining.index,
                                           Deadline::in(kRefusalDeadline)));
}

// Gives it a worker, if the user may have another.
Status Daemon::admit(Arrival& arrival) {
  const User& user = arrival.order.user;
  const auto running = std::count_if(workers_.begin(), workers_.end(), [&](const Running& other) {
    return other.user.name == user.name && !other.killed && !other.prepared;
  });
  GPURUN_RETURN_IF_ERROR(users_.admit_session(user, static_cast<std::size_t>(running)));
  spares_.session_began();
  if (use_prepared(arrival) || use_spare(arrival)) return Status();
  Result<std::unique_ptr<Worker>> worker = spawner_.start(arrival.order);
  if (lacks_what_spares_hold(worker) && spares_.give_up()) worker = spawner_.start(arrival.order);
  if (worker.ok()) {
    workers_.push_back(
        {arrival.lease, std::move(arrival.claim), *std::move(worker), arrival.order.session, user});
    return Status();
  }
  spdlog::error("no worker: {}", worker.status().to_string());
  return Status(worker.status().code(), "no worker could be started: " + worker.status().message());
}

bool Daemon::use_prepared(Arrival& arrival) {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const Running& other) {
    return other.prepared && !other.killed && other.lease == arrival.lease;
  });
  if (found == workers_.end()) return false;
  pollfd ended = {found->worker->exit_fd(), POLLIN, 0};
  if (poll(&ended, 1, 0) > 0 || !found->worker->hand_over(arrival.order).ok()) {
    found->killed = true;  // reap_workers() removes it.
    found->worker->kill();
    return false;
  }
  found->prepared = false;
  found->session = arrival.order.session;
  found->user = arrival.order.user;
  return true;
}

// For a further process of a lease.
bool Daemon::use_spare(Arrival& arrival) {
  std::unique_ptr<Worker> spare = spares_.take(arrival.order.devices);
  if (spare == nullptr) return false;
  Running running{arrival.lease, arrival.claim, std::move(spare), arrival.order.session,
                  arrival.order.user};
  const bool given = running.worker->hand_over(arrival.order).ok();
  if (!given) {
    running.prepared = running.killed = true;  // reap_workers() removes it.
    running.worker->kill();
  }
  workers_.push_back(std::move(running));
  return given;
}

void Daemon::reap_workers() {
  const std::size_t gone = std::erase_if(workers_, [this](Running& running) {
    pollfd ended = {running.worker->exit_fd(), POLLIN, 0};
    if (poll(&ended, 1, 0) <= 0) return false;
    exchange_.forget(running.worker.get());
    const std::string failure = running.worker->how_it_failed();
    if (running.prepared) {
      if (!running.killed) spdlog::warn("a worker ended before its session: {}", failure);
      return true;
    }
    if (!failure.empty() && !running.killed) report_death(running, failure);
    audit_.write("session.ended", {{"user", running.user.name},
                                   {"token", running.user.token},
                                   {"session", hex_of(bytes_of(running.session))},
                                   {"how", running.killed ? "with its lease" : failure}});
    lease_links_.session_ended(running.lease, running.sharing);
    return true;
  });
  if (gone > 0) spares_.expect(queue_.expected());  // GPUs may have become free.
}

// Logs the death. The link's thread also reports it to the lease's gpurun, for its user.
void Daemon::report_death(const Running& running, const std::string& how) {
  spdlog::log(options_.for_one_run ? spdlog::level::info : spdlog::level::warn,
              "a worker ended with {}; its user is {}", how, running.user.name);
  lease_links_.report_death(running.lease, {running.session, how});
}

// Clients get the reason from their links before their workers end, so that they report no other.
void Daemon::end_all(const std::string& why) {
  users_.close(why);
  lease_links_.tell_claims_dropped();
  token_watch_.end();
  acceptor_.clear();
  threads_.end(kLastWordsDeadline);
  {
    const std::lock_guard lock(mutex_);
    events_.clear();
  }
  closer_.stop();
  workers_.clear();
  spares_.give_up();
}

}  // namespace gpurun::server
