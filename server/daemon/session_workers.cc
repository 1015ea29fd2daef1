// SessionWorkers: one table of workers, looked through in each turn of the daemon's loop.
#include "server/daemon/session_workers.h"

#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/hex.h"
#include "protocol/control/control.h"
#include "server/daemon/links/tls_hello.h"
#include "transport/shm/memory.h"

namespace gpurun::server {
namespace {

// For a refusal to a client with a failed session. It is only a courtesy, and blocks everything
// else.
constexpr std::chrono::milliseconds kRefusalDeadline{100};
// Spare workers also use users, processes and descriptors.
bool lacks_what_spares_hold(const Result<std::unique_ptr<Worker>>& worker) {
  return !worker.ok() && worker.status().code() == Code::kResourceExhausted;
}

}  // namespace

void SessionWorkers::refill() {
  spares_.refill();
  spare_count_ = spares_.count();
}

void SessionWorkers::watch(std::vector<pollfd>* waited) const {
  for (const Running& running : workers_) {
    waited->push_back({running.worker->exit_fd(), POLLIN, 0});
    waited->push_back({running.worker->log_fd(), POLLIN, 0});
    waited->push_back({running.worker->exchange_fd(), POLLIN, 0});
  }
  spares_.watch(waited);
}

void SessionWorkers::look() {
  for (const Running& running : workers_) {
    running.worker->relay_log();
    running.worker->serve_exchange(exchange_, running.lease);
  }
  reap();
}

void SessionWorkers::clear() {
  workers_.clear();
  spares_.give_up();
}

void SessionWorkers::end(const protocol::Id& lease) {
  for (Running& running : workers_) {
    if (running.lease != lease) continue;
    running.killed = true;
    running.worker->kill();
  }
}

// Returns a spare worker, or starts a new one.
Result<std::unique_ptr<Worker>> SessionWorkers::worker_for(const std::vector<int>& devices) {
  if (std::unique_ptr<Worker> spare = spares_.take(devices)) return spare;
  Result<std::unique_ptr<Worker>> worker = parts_.spawner.prepare(devices);
  if (lacks_what_spares_hold(worker) && spares_.give_up()) worker = parts_.spawner.prepare(devices);
  return worker;
}

void SessionWorkers::prepare(LeaseBegun begun) {
  if (!parts_.book.has(begun.lease)) return;
  Result<std::unique_ptr<Worker>> worker = worker_for(begun.claim->devices());
  spares_.lease_began();
  spares_.expect(parts_.queue.expected());
  if (!worker.ok()) return spdlog::info("no worker beforehand: {}", worker.status().to_string());
  Running running{begun.lease, std::move(begun.claim), *std::move(worker), {}, begun.user};
  running.prepared = true;
  workers_.push_back(std::move(running));
}

void SessionWorkers::start(Arrival& arrival) {
  if (!parts_.book.has(arrival.lease)) return;
  const User user = arrival.order.user;
  const std::string from = (arrival.order.encrypted ? "tls 1.3 over " : "") +
                           arrival.order.connections[0]->description();
  const std::string lease = hex_of(bytes_of(arrival.lease));
  const protocol::Id id = arrival.order.session;
  const std::string session = hex_of(bytes_of(id));
  const bool sharing = transport::shm::is_local(*arrival.order.connections[0]);
  if (const Status admitted = admit(arrival); !admitted.ok()) {
    parts_.audit.write_refusal("session.refused", {{"user", user.name},
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
  parts_.audit.write("session.started", {{"user", user.name},
                                         {"token", user.token},
                                         {"from", from},
                                         {"lease", lease},
                                         {"session", session}});
  parts_.links.session_started(arrival.lease, id, {sharing});
}

// A worker's words. A session has one line of the audit log for each of both events.
void SessionWorkers::hear(ExchangeRegistry::Owner worker, const TransportReport& report) {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const Running& other) {
    return other.worker.get() == worker && !other.prepared;
  });
  if (found == workers_.end()) return;
  Running& running = *found;
  const std::string ports = text_of(report.ports);
  const std::string session = hex_of(bytes_of(running.session));
  if (report.over_rdma + report.left_rdma > 0 && !std::exchange(running.uses_rdma, true)) {
    parts_.audit.write("session.over_rdma", {{"user", running.user.name},
                                             {"token", running.user.token},
                                             {"session", session},
                                             {"ports", ports},
                                             {"encryption", "payload not encrypted"}});
  }
  if (running.uses_rdma && report.left_rdma > 0 && !std::exchange(running.left_rdma, true)) {
    parts_.audit.write("session.left_rdma",
                       {{"user", running.user.name},
                        {"token", running.user.token},
                        {"session", session},
                        {"connections", std::to_string(report.left_rdma) + " of " +
                                            std::to_string(report.connections)},
                        {"reason", text_of(report.why_left)}});
  }
  parts_.links.session_changed(
      running.lease, running.session,
      {false, report.connections, report.over_rdma, ports, report.numa_node});
}

void SessionWorkers::join(ExtraBulkConnection& joining) {
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
Status SessionWorkers::admit(Arrival& arrival) {
  const User& user = arrival.order.user;
  const auto running = std::count_if(workers_.begin(), workers_.end(), [&](const Running& other) {
    return other.user.name == user.name && !other.killed && !other.prepared;
  });
  GPURUN_RETURN_IF_ERROR(parts_.users.admit_session(user, static_cast<std::size_t>(running)));
  spares_.session_began();
  if (use_prepared(arrival) || use_spare(arrival)) return Status();
  Result<std::unique_ptr<Worker>> worker = parts_.spawner.start(arrival.order);
  if (lacks_what_spares_hold(worker) && spares_.give_up())
    worker = parts_.spawner.start(arrival.order);
  if (worker.ok()) {
    workers_.push_back(
        {arrival.lease, std::move(arrival.claim), *std::move(worker), arrival.order.session, user});
    return Status();
  }
  spdlog::error("no worker: {}", worker.status().to_string());
  return Status(worker.status().code(), "no worker could be started: " + worker.status().message());
}

bool SessionWorkers::use_prepared(Arrival& arrival) {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const Running& other) {
    return other.prepared && !other.killed && other.lease == arrival.lease;
  });
  if (found == workers_.end()) return false;
  pollfd ended = {found->worker->exit_fd(), POLLIN, 0};
  if (poll(&ended, 1, 0) > 0 || !found->worker->hand_over(arrival.order).ok()) {
    found->killed = true;  // reap() removes it.
    found->worker->kill();
    return false;
  }
  found->prepared = false;
  found->session = arrival.order.session;
  found->user = arrival.order.user;
  return true;
}

// For a further process of a lease.
bool SessionWorkers::use_spare(Arrival& arrival) {
  std::unique_ptr<Worker> spare = spares_.take(arrival.order.devices);
  if (spare == nullptr) return false;
  Running running{arrival.lease, arrival.claim, std::move(spare), arrival.order.session,
                  arrival.order.user};
  const bool given = running.worker->hand_over(arrival.order).ok();
  if (!given) {
    running.prepared = running.killed = true;  // reap() removes it.
    running.worker->kill();
  }
  workers_.push_back(std::move(running));
  return given;
}

void SessionWorkers::reap() {
  const std::size_t gone = std::erase_if(workers_, [this](Running& running) {
    pollfd ended = {running.worker->exit_fd(), POLLIN, 0};
    if (poll(&ended, 1, 0) <= 0) return false;
    running.worker->serve_exchange(exchange_, running.lease);  // Its last words.
    exchange_.forget(running.worker.get());
    const std::string failure = running.worker->how_it_failed();
    if (running.prepared) {
      if (!running.killed) spdlog::warn("a worker ended before its session: {}", failure);
      return true;
    }
    if (!failure.empty() && !running.killed) report_death(running, failure);
    parts_.audit.write("session.ended", {{"user", running.user.name},
                                         {"token", running.user.token},
                                         {"session", hex_of(bytes_of(running.session))},
                                         {"how", running.killed ? "with its lease" : failure}});
    parts_.links.session_ended(running.lease, running.session);
    return true;
  });
  if (gone > 0) spares_.expect(parts_.queue.expected());  // GPUs may have become free.
}

// Logs the death. The link's thread also reports it to the lease's gpurun, for its user.
void SessionWorkers::report_death(const Running& running, const std::string& how) {
  spdlog::log(parts_.for_one_run ? spdlog::level::info : spdlog::level::warn,
              "a worker ended with {}; its user is {}", how, running.user.name);
  parts_.links.report_death(running.lease, {running.session, how});
}

}  // namespace gpurun::server
