// Daemon: the parts, and the loop that gives each of them its turn.
#include "server/daemon/daemon.h"

#include <errno.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>
#include <variant>
#include <vector>

#include "base/hex.h"
#include "server/daemon/leases/ticket_check.h"

namespace gpurun::server {
namespace {

// How often sessions with missing connections are checked.
constexpr int kLookMilliseconds = 1000;
// For links to send their clients the reason why the daemon ends.
constexpr std::chrono::milliseconds kLastWordsDeadline{1000};
constexpr const char* kStopped = "the server was stopped by its operator";

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
      wake_(std::move(wake)),
      threads_([this](auto& connection, HalfOpen& half_open,
                      Deadline deadline) { connections_.serve(connection, half_open, deadline); },
               closer_, wake_),
      users_(options_.user_limits),
      queue_(options_.devices),
      book_(options_.handshake_deadline),
      admission_({options_.devices, options_.follow_deadline, options_.overtaken_deadline,
                  options_.place_interval, options_.handshake_deadline},
                 users_, queue_, book_, lease_links_),
      workers_({spawner, users_, queue_, book_, lease_links_, audit_, options_.for_one_run},
               options_.spares) {}

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
  const int refill = workers_.milliseconds_to_refill();
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
    workers_.refill();
    const int timeout = milliseconds_to_look();
    waited.assign({{wake_.fd(), POLLIN, 0}});
    acceptor_.watch(&waited);
    workers_.watch(&waited);
    const int ready = poll(waited.data(), waited.size(), timeout);
    if (ready < 0 && errno != EINTR) return Status::from_errno(errno, "poll");
    if (reload_wanted_.exchange(false) && options_.on_reload) options_.on_reload();
    closer_.close(book_.drop_late());
    workers_.look_at_spares();
    if (ready <= 0) continue;
    if (waited[0].revents != 0) wake_.clear();
    workers_.look();
    take_events();
    lease_links_.tell_claims_dropped();
    GPURUN_RETURN_IF_ERROR(acceptor_.look(waited));
  }
  return Status();
}

void Daemon::take_events() {
  for (DaemonEvent& event : events_.take()) {
    if (auto* begun = std::get_if<LeaseBegun>(&event)) {
      workers_.prepare(std::move(*begun));
      continue;
    }
    if (auto* arrival = std::get_if<Arrival>(&event)) {
      const std::size_t connections = arrival->order.connections.size();
      workers_.start(*arrival);
      book_.settled(arrival->lease, connections);
      closer_.close(std::move(arrival->order.connections));  // Those that no worker has taken.
      continue;
    }
    if (auto* joining = std::get_if<ExtraBulkConnection>(&event)) {
      workers_.join(*joining);
      closer_.close(std::move(joining->connection));
      continue;
    }
    workers_.end(std::get<LeaseEnded>(event).lease);
  }
}

// Clients get the reason from their links before their workers end, so that they report no other.
void Daemon::end_all(const std::string& why) {
  users_.close(why);
  lease_links_.tell_claims_dropped();
  token_watch_.end();
  acceptor_.clear();
  threads_.end(kLastWordsDeadline);
  events_.clear();
  closer_.stop();
  workers_.clear();
}

}  // namespace gpurun::server
