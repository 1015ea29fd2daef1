// Lease of one run: asks the servers in turn, and gives advice for each failure.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/attach/session_data.h"
#include "client/control/control_link.h"
#include "tools/gpurun/credential.h"

namespace gpurun::tools {

struct LeaseOrder {
  std::vector<std::string> servers;  // HOST:PORT, at least one. The first grant wins.
  Credential credential;             // Empty: found_credential() for each server.
  unsigned gpu_count = 1;
  std::chrono::milliseconds wait{0};
  client::LinkSecurity security;
  std::string program;                          // For the servers' listings.
  std::function<void(const std::string&)> say;  // For a waiting person.
  bool on_terminal = false;  // A person is watching, so each new place in a queue is reported.
  std::function<void(const std::string&)> warn;  // Also for a log: a server that is skipped.
};

struct HeldLease {
  std::unique_ptr<client::ControlLink> link;  // The lease ends with it.
  client::SessionData session;
};

// The credential that a link to `server` shows: the named one, or else the stored one. Empty: no
// credential is stored. Errors are those of found_credential().
Result<Credential> shown_credential(const std::string& server, const Credential& named);
// The security of a link that shows `shown`. A token that names its server must not go to another
// one, so the link is encrypted.
client::LinkSecurity security_for(const Credential& shown, const client::LinkSecurity& security);

// Opens a control link to one server, without a request yet, with the security that `security` asks
// for. Without a credential, uses found_credential(). A failure's message has advice. Calls
// `say_slow` when it takes over 2 s.
Result<std::unique_ptr<client::ControlLink>> connect_to_server(
    const std::string& server, const Credential& credential, const client::LinkSecurity& security,
    const std::function<void(const std::string&)>& say_slow);
// Adds advice to a failure of that link. `credential` is what the user named, if anything.
Status advised(const Status& status, const std::string& server, const Credential& credential = {});

// Number of GPUs of the server, leased or not.
Result<unsigned> count_gpus(const std::string& server, const Credential& credential,
                            const client::LinkSecurity& security);
// "2 free GPUs of HOST:PORT, behind 1 other: 1 more of its 4 GPUs must come free".
std::string describe_wait(const std::string& server, unsigned gpus, const protocol::Queued& place);

// The request for that order. `say` is called when it waits.
client::LeaseRequest lease_request(const std::string& server, const LeaseOrder& order,
                                   std::chrono::milliseconds wait,
                                   const std::function<void(const std::string&)>& say);

// Asks each of several servers once, in their order, without waiting. With a wait, it then waits at
// all that may grant later, at the same time. Skipped servers (unreachable, or a final refusal) are
// reported once it waits for another one or has a grant.
Result<HeldLease> acquire_lease(const LeaseOrder& order);

}  // namespace gpurun::tools
