// LeaseLinks: the control links that hold a lease, and what the daemon knows of each lease's
// workers.
//
// run()'s thread leaves messages for a lease's client here, and the link's own thread sends them.
// So a client that does not read delays no other client. Any thread. The mutex is taken before
// those of UserRegistry and LeaseQueue, and is otherwise a leaf.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "protocol/auth/proof.h"
#include "protocol/control/control.h"
#include "server/daemon/leases/lease_book.h"
#include "server/daemon/leases/lease_queue.h"
#include "server/daemon/users/users.h"

namespace gpurun::server {

class LeaseLinks {
 public:
  // `stopping` becomes true before the last tell_claims_dropped().
  explicit LeaseLinks(const std::atomic<bool>& stopping) : stopping_(stopping) {}
  LeaseLinks(const LeaseLinks&) = delete;
  LeaseLinks& operator=(const LeaseLinks&) = delete;

  struct Holder {
    int fd = -1;                         // Of its connection, which is open until end().
    UserAdmission* admission = nullptr;  // Lives until end().
    protocol::ListedGpu about;           // The listing entry for each of its GPUs.
    std::weak_ptr<Claim> claim;
    std::shared_ptr<const std::atomic<bool>> returned;
  };
  void add(const protocol::Id& lease, Holder holder);
  // The lease has ended: its user has left, and its GPUs come back soon.
  void end(const protocol::Id& lease);
  // As end(), for each client that has hung up, even before its link's thread has noticed. The
  // links stay here.
  void note_ended();

  // Readable when there are deaths to take. -1: no descriptor was free. For the lease's own thread.
  int wake_fd(const protocol::Id& lease);
  std::vector<protocol::WorkerEnded> take_deaths(const protocol::Id& lease);
  // A worker of the lease has died. Beyond a bound later deaths are dropped.
  void report_death(const protocol::Id& lease, protocol::WorkerEnded death);

  // Returns when the GPUs are free (`returned`), when the daemon stops, or after a bound.
  void wait_until_free(const std::atomic<bool>& returned);
  // Claims may have been dropped.
  void tell_claims_dropped();

  // What a session's connections use.
  struct SessionTransport {
    bool shares_memory = false;  // With its client.
    unsigned connections = 0;    // 0: nothing more is known.
    unsigned over_rdma = 0;      // Of these.
    std::string ports = {};      // Of RDMA, "mlx5_0:1 to mlx5_1:1".
    int numa_node = -1;          // On which its worker runs. -1: everywhere.
  };
  void session_started(const protocol::Id& lease, const protocol::Id& session,
                       SessionTransport transport);
  // shares_memory does not change.
  void session_changed(const protocol::Id& lease, const protocol::Id& session,
                       SessionTransport transport);
  void session_ended(const protocol::Id& lease, const protocol::Id& session);
  // Entries for listings, one for each of `held`, without what concerns a GPU. Returns the number
  // of all workers with a session.
  std::uint32_t list(const std::vector<HeldLease>& held, std::vector<protocol::ListedGpu>* entries);

 private:
  struct Link {
    Holder holder;
    UniqueFd wake;  // eventfd, readable when there is something in deaths.
    std::vector<protocol::WorkerEnded> deaths;

    void end() const;  // Call once or more.
  };
  using Sessions = std::map<protocol::Id, SessionTransport>;
  static void count(const Sessions& sessions, protocol::ListedGpu* entry);

  const std::atomic<bool>& stopping_;
  std::mutex mutex_;  // Guards what follows.
  std::condition_variable claims_dropped_;
  std::map<protocol::Id, Link> links_;
  std::map<protocol::Id, Sessions> sessions_;  // By lease. Those with a worker.
};

}  // namespace gpurun::server
