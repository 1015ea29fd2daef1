// LeaseBook: the active leases, and the sessions that are attaching to them.
//
// Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "protocol/auth/proof.h"
#include "protocol/control/control.h"
#include "protocol/control/session_identity.h"
#include "server/daemon/leases/lease_queue.h"
#include "server/daemon/users/users.h"
#include "server/daemon/users/wiped_key.h"
#include "server/daemon/workers/spawn.h"
#include "transport/transport.h"

namespace gpurun::server {

struct Lease {
  protocol::Id id{};
  protocol::Id ticket{};
  protocol::Nonce challenge{};
  WipedKey ticket_key{};
  std::shared_ptr<Claim> claim;
  std::string holder;  // The requesting address, for listings.
  User user = {};
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
};

// An active lease, for listings.
struct HeldLease {
  protocol::Id id{};
  std::string holder;
  std::string user;
  std::chrono::seconds held{0};
  std::vector<int> devices;
};

// A complete session: its worker's order, and the lease and claim that give it its GPUs.
struct Arrival {
  protocol::Id lease{};
  std::shared_ptr<Claim> claim;
  WorkerOrder order;
};

class LeaseBook {
 public:
  // Tests set another `sessions_max`.
  explicit LeaseBook(std::chrono::milliseconds gather_deadline,
                     std::size_t sessions_max = limits::kSessionsMax)
      : gather_deadline_(gather_deadline), sessions_max_(sessions_max) {}

  // Connections of dropped sessions. The caller must close them, which may take long.
  using Connections = std::vector<std::unique_ptr<transport::Connection>>;

  void add(Lease lease);
  // Ends a lease: no process may attach any more, and incomplete sessions are dropped.
  Connections remove(const protocol::Id& id);
  // For all leases of that token: no process may attach any more, and gets `why` as the reason. The
  // links end the leases.
  void close(const std::string& token, const std::string& why);
  bool has(const protocol::Id& id) const;
  std::vector<HeldLease> held() const;
  // Number of GPUs in that user's leases.
  std::size_t devices_of(const User& user) const;
  // Number of sessions, of all leases, of which some connections have not come yet.
  std::size_t gathering() const;

  // The key that proves `attach`. kRefused: no such lease or ticket.
  Result<protocol::Key> attach_key(const protocol::Attach& attach) const;
  // The pre-shared key of an encrypted session. kRefused as attach_key().
  Result<protocol::Key> tls_key(const protocol::SessionIdentity& identity) const;

  // Takes a connection of which the first frame (`encrypted`: ClientHello) is proved. Leaves it
  // with the caller on failure. The last connection of a session completes it. kRefused: the
  // session was here before (a replay), or a connection comes twice. Also if too many gather on
  // this lease or of this user (limits::kGatheringMax and the next).
  Result<std::optional<Arrival>> arrive(const protocol::Attach& attach, const protocol::Key& key,
                                        std::unique_ptr<transport::Connection>& connection,
                                        bool encrypted = false);
  // The start of an arrived session's worker has succeeded or failed. The session has
  // `connections`.
  void settled(const protocol::Id& lease, std::size_t connections);
  // Takes one more connection for a complete session, of which the first frame is proved. False:
  // the session is not complete, and the connection must arrive(). kRefused: the session has had
  // this connection (a replay), or takes no more.
  Result<bool> join(const protocol::Attach& attach, bool encrypted);
  // Drops the sessions of which some connections did not come in time.
  Connections drop_late();

 private:
  struct Gathering {
    Deadline deadline = Deadline::never();
    protocol::Nonce nonce{};
    Sha256Digest rows{};
    protocol::Features features;
    bool encrypted = false;
    std::size_t arrived = 0;
    std::vector<std::unique_ptr<transport::Connection>> connections;
  };
  struct Complete {
    std::uint16_t connections = 0;  // The connections that it has had. The next index must not be
                                    // below.
    bool encrypted = false;
  };
  struct Entry {
    Lease lease;
    std::string why_closed;                     // Empty: processes may attach.
    std::map<protocol::Id, Complete> sessions;  // All, ever.
    std::map<protocol::Id, Gathering> gathering;
    std::size_t gathered = 0;  // Connections in gathering.
    std::size_t starting = 0;  // Connections of complete sessions that are not settled().
  };

  // Call this and what follows with mutex_ held.
  Status check_room(const Entry& entry, bool is_new_session) const;
  static void drop(Entry& entry, Gathering& gathering, Connections* dropped);

  const std::chrono::milliseconds gather_deadline_;
  const std::size_t sessions_max_;
  mutable std::mutex mutex_;
  std::map<protocol::Id, Entry> entries_;
};

}  // namespace gpurun::server
