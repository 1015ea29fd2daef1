// DaemonOptions: what a Daemon is started with. Constant afterwards.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "protocol/limits.h"
#include "server/daemon/users/audit.h"
#include "server/daemon/users/tokens.h"
#include "server/daemon/users/users.h"
#include "server/daemon/workers/spare_workers.h"
#include "server/daemon/workers/spawn.h"
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

}  // namespace gpurun::server
