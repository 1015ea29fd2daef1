// The lease of one run: asks the servers in turn, and says for each failure what to do about it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/control_link.h"
#include "client/session_data.h"
#include "tools/gpurun/credential.h"

namespace gpurun::tools {

struct LeaseOrder {
  std::vector<std::string> servers;  // HOST:PORT, at least one; the first that grants is taken.
  Credential credential;             // Empty: what found_credential() finds for each server.
  unsigned gpu_count = 1;
  std::chrono::milliseconds wait{0};
  client::LinkSecurity security;
  std::string program;                          // For the servers' listings.
  std::function<void(const std::string&)> say;  // What a waiting person should know.
  bool on_terminal = false;  // Somebody looks on: each new place in a queue is said.
  std::function<void(const std::string&)> warn;  // Also in a log: a server that is skipped.
};

struct HeldLease {
  std::unique_ptr<client::ControlLink> link;  // The lease ends with it.
  client::SessionData session;
};

// A control link to one server, not yet asked anything; the way to it is as `security` wants it.
// Without a credential it is what found_credential() finds. The message of a failure says what to
// do.
// `say_slow`: told when that lasts over 2 s.
Result<std::unique_ptr<client::ControlLink>> connect_to_server(
    const std::string& server, const Credential& credential, const client::LinkSecurity& security,
    const std::function<void(const std::string&)>& say_slow);
// What to do about a failure of that link. `credential`: what the user named, if anything.
Status advised(const Status& status, const std::string& server, const Credential& credential = {});

// How many GPUs the server has, leased or not.
Result<unsigned> count_gpus(const std::string& server, const Credential& credential,
                            const client::LinkSecurity& security);
// "2 free GPUs of HOST:PORT, behind 1 other: 1 more of its 4 GPUs must come free".
std::string describe_wait(const std::string& server, unsigned gpus, const protocol::Queued& place);

// The request of that order; `say` is told when it waits.
client::LeaseRequest lease_request(const std::string& server, const LeaseOrder& order,
                                   std::chrono::milliseconds wait,
                                   const std::function<void(const std::string&)>& say);

// Each of several servers is asked once in their order, without waiting. With a wait, those that
// may grant later are then waited for at once. Servers that are skipped (unreachable, or a refusal
// for good) are warned of once another one is waited for or has granted.
Result<HeldLease> acquire_lease(const LeaseOrder& order);

}  // namespace gpurun::tools
