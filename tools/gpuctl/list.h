// gpuctl list: prints which GPUs servers have, and which users hold them.
#pragma once

#include <string>
#include <vector>

#include "client/control/link_security.h"
#include "protocol/control/control.h"
#include "protocol/limits.h"
#include "tools/gpurun/credential.h"

namespace gpurun::tools {

// The gpurund of this machine, where no server is named.
inline constexpr const char* kOwnServer = "127.0.0.1:4790";
static_assert(limits::kDefaultPort == 4790);

struct ServerChoice {
  std::vector<std::string> servers;  // HOST:PORT.
  Credential credential;             // Empty: found_credential() for each.
  client::LinkSecurity security;
};

// One server's part of the table, without the heading.
std::string listing_rows(const std::string& server, const protocol::Listing& listing);
std::string listing_heading();

// One server's line of JSON.
std::string listing_json(const std::string& server, const protocol::Listing& listing);

// Connects to one server and asks it. A failure's message has advice.
Result<protocol::Listing> ask_for_listing(const std::string& server, const ServerChoice& choice);

// Prints the table on stdout, or with `as_json` a line for each server. Prints failures on stderr.
// Returns the exit status: 0 when every server answered.
int list_servers(const ServerChoice& choice, bool as_json);

}  // namespace gpurun::tools
