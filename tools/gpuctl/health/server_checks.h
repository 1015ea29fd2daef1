// Server checks: the way to one server, step by step, and what it reports.
#pragma once

#include <cstdint>
#include <string>

#include "client/control/link_security.h"
#include "protocol/control/control.h"
#include "tools/gpuctl/health/check.h"
#include "tools/gpuctl/list.h"
#include "tools/gpuctl/machine/known_transports.h"

namespace gpurun::tools {

// Looks the name up, connects, secures the link, shows the credential and asks for the listing. A
// failed step ends the checks of that server. Blocks up to 25 s for a server that is silent, and as
// long as the name service takes.
Checks server_checks(const std::string& server, const ServerChoice& choice);

// The link's security. `key` is what the server has shown, and why it was accepted. `security` is
// that of the command line, without the token's fingerprint.
Check tls_check(const std::string& server, const client::ServerKey& key, bool same_host,
                const client::LinkSecurity& security);

// Whether sessions go over RDMA, as far as this machine knows.
Check rdma_check(const SessionFacts& facts);

// The size of packets on the way to a server. `path_mtu`: by the kernel's information about a
// connection (tcp(7), TCP_INFO). `device_mtu`: of the network device of the route. 0: unknown.
Check path_mtu_check(const std::string& server, unsigned path_mtu, const std::string& device,
                     int device_mtu);

// What to do about a failure of gpuctl's link to a server, and the check that it belongs to.
struct Remedy {
  std::string check, fix;
};
// `step` is the check that failed, unless the message shows another cause.
Remedy remedy_of(const Status& status, const std::string& step);

// The checks of what the server reports. `now` is this machine's time, in seconds since 1970.
Checks listing_checks(const std::string& server, const protocol::Listing& listing,
                      std::int64_t now);

}  // namespace gpurun::tools
