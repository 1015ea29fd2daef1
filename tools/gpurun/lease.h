// The lease of one run: asks the servers in turn, and says for each failure what to do about it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "client/control_link.h"
#include "client/session_data.h"

namespace gpurun::tools {

struct LeaseOrder {
  std::vector<std::string> servers;  // HOST:PORT, at least one; the first that grants is taken.
  ByteView secret;  // Empty: of a server of this user's own on this machine, what it has made.
  std::string secret_file;  // Where `secret` was read, for messages; empty: in no file.
  unsigned gpu_count = 1;
  std::chrono::milliseconds wait{0};
  // Reach servers beyond this machine although nothing is encrypted.
  bool insecure_plaintext = false;
  std::function<void(const std::string&)> say;  // What a waiting person should know.
};

struct HeldLease {
  std::unique_ptr<client::ControlLink> link;  // The lease ends with it.
  client::SessionData session;
};

// A control link to one server, not yet asked anything; the way to it is encrypted, or within this
// machine, or `insecure_plaintext` accepts that it is neither. The message of a failure says what
// to do.
Result<std::unique_ptr<client::ControlLink>> connect_to_server(const std::string& server,
                                                               ByteView secret,
                                                               bool insecure_plaintext);
// What to do about a failure of that link. `secret_file`: the one that the user named, if any.
Status advised(const Status& status, const std::string& server,
               const std::string& secret_file = "");

// With several servers and a wait, each is asked once without waiting; then the first that could
// be reached is waited for.
Result<HeldLease> acquire_lease(const LeaseOrder& order);

}  // namespace gpurun::tools
