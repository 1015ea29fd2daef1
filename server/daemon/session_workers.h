// SessionWorkers: the workers of all sessions, and the spare ones that wait for a lease.
//
// run()'s thread, because the kernel kills workers when the thread that started them ends.
// spare_count(): any thread.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/daemon/leases/lease_book.h"
#include "server/daemon/leases/lease_links.h"
#include "server/daemon/leases/lease_queue.h"
#include "server/daemon/users/audit.h"
#include "server/daemon/users/users.h"
#include "server/daemon/workers/spare_workers.h"
#include "server/daemon/workers/spawn.h"
#include "server/exchange/exchange_book.h"
#include "server/handover/user.h"

namespace gpurun::server {

struct LeaseBegun {
  protocol::Id lease;
  std::shared_ptr<Claim> claim;
  User user;
};

class SessionWorkers {
 public:
  // Borrowed. `for_one_run`: the client reports deaths on the same terminal.
  struct Parts {
    WorkerSpawner& spawner;
    UserRegistry& users;
    LeaseQueue& queue;
    LeaseBook& book;
    LeaseLinks& links;
    AuditTrail& audit;
    bool for_one_run;
  };
  SessionWorkers(const Parts& parts, SpareOptions spares)
      : parts_(parts),
        exchange_({}, [this](ExchangeRegistry::Owner worker,
                             const TransportReport& report) { hear(worker, report); }),
        spares_(parts.spawner, spares) {}
  SessionWorkers(const SessionWorkers&) = delete;
  SessionWorkers& operator=(const SessionWorkers&) = delete;

  // Starts spare workers that are missing. After all events, because a new lease delays it.
  void refill();
  // Until refill() has something to do. -1: never.
  int milliseconds_to_refill() { return spares_.milliseconds_to_refill(); }
  std::size_t spare_count() const noexcept { return spare_count_.load(); }

  // Adds what poll() has to watch.
  void watch(std::vector<pollfd>* waited) const;
  // After each poll(): looks at spare workers.
  void look_at_spares() { spares_.look(); }
  // Relays workers' logs and serves their exchanges. Then removes those that have ended.
  void look();

  // A lease's first worker opens the devices while the client is still connecting. A failure costs
  // only time.
  void prepare(LeaseBegun begun);
  // Starts the session, or refuses it. Leaves connections that no worker has taken.
  void start(Arrival& arrival);
  // The client works without this connection when the worker cannot get it.
  void join(ExtraBulkConnection& joining);
  // Kills the workers of a lease that has ended.
  void end(const protocol::Id& lease);
  // Kills and reaps all. The end of run().
  void clear();

 private:
  struct Running {
    protocol::Id lease;
    std::shared_ptr<Claim> claim;  // Held until the worker has ended.
    std::unique_ptr<Worker> worker;
    protocol::Id session;
    User user;
    bool killed = false;     // By the daemon: not a failure.
    bool prepared = false;   // For a session that has not come yet.
    bool uses_rdma = false;  // It has reported that.
    bool left_rdma = false;  // The same.
  };

  Result<std::unique_ptr<Worker>> worker_for(const std::vector<int>& devices);
  Status admit(Arrival& arrival);
  bool use_prepared(Arrival& arrival);
  bool use_spare(Arrival& arrival);
  void hear(ExchangeRegistry::Owner worker, const TransportReport& report);
  void reap();
  void report_death(const Running& running, const std::string& how);

  const Parts parts_;
  ExchangeRegistry exchange_;
  std::vector<Running> workers_;
  SpareWorkers spares_;
  std::atomic<std::size_t> spare_count_{0};  // Of spares_, for listings.
};

}  // namespace gpurun::server
