// gpuctl list: which GPUs servers have, and who holds them.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "protocol/control.h"

namespace gpurun::tools {

struct ServerChoice {
  std::vector<std::string> servers;  // HOST:PORT.
  Bytes secret;
  bool insecure_plaintext = false;
};

// One server's part of the table, without the heading.
std::string listing_rows(const std::string& server, const protocol::Listing& listing);
std::string listing_heading();

// Prints the table on stdout, and failures on stderr. The exit status: 0 when every server
// answered.
int list_servers(const ServerChoice& choice);

}  // namespace gpurun::tools
