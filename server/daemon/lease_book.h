// LeaseBook: the leases in force, and the sessions that are just attaching to them.
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
#include "protocol/control.h"
#include "protocol/proof.h"
#include "protocol/session_identity.h"
#include "server/daemon/lease_queue.h"
#include "server/daemon/spawn.h"
#include "server/daemon/users.h"
#include "server/daemon/wiped_key.h"
#include "transport/transport.h"

namespace gpurun::server {

struct Lease {
  protocol::Id id{};
  protocol::Id ticket{};
  protocol::Nonce challenge{};
  WipedKey ticket_key{};
  std::shared_ptr<Claim> claim;
  std::string holder;  // From where it was asked for, for listings.
  User user = {};
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
};

// A lease in force, for listings.
struct HeldLease {
  protocol::Id id{};
  std::string holder;
  std::string user;
  std::chrono::seconds held{0};
  std::vector<int> devices;
};

// A session that is complete: what its worker needs, and whose GPUs it holds.
struct Arrival {
  protocol::Id lease{};
  std::shared_ptr<Claim> claim;
  WorkerOrder order;
};

class LeaseBook {
 public:
  // Another `sessions_max` is for tests.
  explicit LeaseBook(std::chrono::milliseconds gather_deadline,
                     std::size_t sessions_max = limits::kSessionsMax)
      : gather_deadline_(gather_deadline), sessions_max_(sessions_max) {}

  // Of sessions that are dropped; for the caller to close, which may take long.
  using Connections = std::vector<std::unique_ptr<transport::Connection>>;

  void add(Lease lease);
  // Ends it: no process attaches any more, and half-gathered sessions are dropped.
  Connections remove(const protocol::Id& id);
  // What that token holds: no process attaches any more, and is told why. The leases are ended by
  // their links.
  void close(const std::string& token, const std::string& why);
  bool has(const protocol::Id& id) const;
  std::vector<HeldLease> held() const;
  // GPUs of that user's leases.
  std::size_t devices_of(const User& user) const;
  // Sessions of all leases of which not all connections have come.
  std::size_t gathering() const;

  // The key that proves `attach`. kRefused: no such lease or ticket.
  Result<protocol::Key> attach_key(const protocol::Attach& attach) const;
  // The pre-shared key of an encrypted session. Likewise.
  Result<protocol::Key> tls_key(const protocol::SessionIdentity& identity) const;

  // Takes in a connection whose first frame (`encrypted`: ClientHello) is proved, and only on
  // success takes it away. The last one of a session completes it. kRefused: the session has been
  // here before (a replay), a connection comes twice, or too many gather on this lease or of this
  // user (limits::kGatheringMax and what follows it).
  Result<std::optional<Arrival>> arrive(const protocol::Attach& attach, const protocol::Key& key,
                                        std::unique_ptr<transport::Connection>& connection,
                                        bool encrypted = false);
  // The worker of a session that has arrived with so many connections has been started, or not.
  void settled(const protocol::Id& lease, std::size_t connections);
  // Of a session that is complete: takes in one more connection of its own, whose first frame is
  // proved; false: the session is not complete, and the connection has to arrive(). kRefused: it
  // has had this one (a replay), or takes no more.
  Result<bool> join(const protocol::Attach& attach, bool encrypted);
  // Drops sessions whose connections did not all come in time.
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
    std::uint16_t connections = 0;  // That it has had; the index of the next is not below.
    bool encrypted = false;
  };
  struct Entry {
    Lease lease;
    std::string why_closed;                     // Empty: processes may attach.
    std::map<protocol::Id, Complete> sessions;  // Ever.
    std::map<protocol::Id, Gathering> gathering;
    std::size_t gathered = 0;  // Their connections.
    std::size_t starting = 0;  // Those of complete sessions that are not settled().
  };

  // With the mutex held, as all that follow.
  Status check_room(const Entry& entry, bool is_new_session) const;
  static void drop(Entry& entry, Gathering& gathering, Connections* dropped);

  const std::chrono::milliseconds gather_deadline_;
  const std::size_t sessions_max_;
  mutable std::mutex mutex_;
  std::map<protocol::Id, Entry> entries_;
};

}  // namespace gpurun::server
