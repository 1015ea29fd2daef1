// Files of gpurund: its secret, its key, users' tokens and the audit log. Errors name the file, or
// the setting that named it. Call from the main thread, before the daemon serves.
#pragma once

#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "server/daemon/config/config.h"
#include "server/daemon/users/audit.h"
#include "server/daemon/users/run_secret.h"
#include "server/daemon/users/server_identity.h"
#include "server/daemon/users/tokens.h"
#include "transport/transport.h"

namespace gpurun::server {

using SharedIdentity = std::shared_ptr<const transport::tls::Identity>;

// The secret of the file that the settings name. Empty: they name none.
Result<Bytes> read_secret(const Config& config);
// For a server without a configured secret: makes one that this machine's other users cannot read.
Result<std::unique_ptr<RunSecret>> make_run_secret(const transport::Listener& listener);

// This server's key, made at its first start.
Result<SharedIdentity> this_servers_identity(const Config& config);
// The server's identity for clients that speak TLS. Empty: not needed within this machine.
Result<SharedIdentity> identity_for(const transport::Listener& listener, const Config& config);

// Writes the fingerprint of that key to where gpuctl token looks for it. Logs a failure.
void leave_fingerprint_for(const Config& config, const transport::tls::Identity* identity);
// Users' tokens. Empty: this server has none. A file that exists must be valid. It may also appear
// later.
Result<std::shared_ptr<TokenStore>> open_tokens(const Config& config,
                                                const transport::tls::Identity* identity);
// Without a setting, uses the system's log. Where it is missing (a container), uses a file of
// its own. Without a folder for the file there is no audit log.
Result<std::unique_ptr<AuditLog>> open_audit(const Config& config);

}  // namespace gpurun::server
