// What gpurund reads from files and keeps in some: its secret, its key, users' tokens, who did
// what. Errors say which file, or which setting named it. By the main thread, before it serves.
#pragma once

#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "server/daemon/audit.h"
#include "server/daemon/config.h"
#include "server/daemon/run_secret.h"
#include "server/daemon/server_identity.h"
#include "server/daemon/tokens.h"
#include "transport/transport.h"

namespace gpurun::server {

using SharedIdentity = std::shared_ptr<const transport::tls::Identity>;

// What the settings name; empty: they name none.
Result<Bytes> read_secret(const Config& config);
// For a server that was told no secret: one that this machine's other users cannot read.
Result<std::unique_ptr<RunSecret>> make_run_secret(const transport::Listener& listener);

// This server's key, which is made at its first start.
Result<SharedIdentity> this_servers_identity(const Config& config);
// Who we are to clients that speak TLS; empty: there is no need within this machine.
Result<SharedIdentity> identity_for(const transport::Listener& listener, const Config& config);

// Leaves the fingerprint of that key where gpuctl token looks for it, or says in the log why not.
void leave_fingerprint_for(const Config& config, const transport::tls::Identity* identity);
// Users' tokens; empty: there are none. A file that is there must be good; it may come later.
Result<std::shared_ptr<TokenStore>> open_tokens(const Config& config,
                                                const transport::tls::Identity* identity);
// Who is told nothing takes the system's log, and where there is none (a container) a file of its
// own, so that there is a record; without a folder for it none is kept.
Result<std::unique_ptr<AuditLog>> open_audit(const Config& config);

}  // namespace gpurun::server
