// gpuctl token: decides which users may use this machine's GPUs. It changes the file that gpurund
// reads (protocol/auth/token_file.h), and contacts no server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "protocol/auth/token_file.h"

namespace gpurun::tools {

struct TokenOptions {
  std::string file;  // The token file. Empty: gpurund's default.
  std::string user, expires, note, fingerprint, output;
  std::vector<std::string> ids;
  bool keep_running = false;
  bool as_json = false;
};

// Seconds from "12h", "90d", "2w", at most ten years. kInvalidArgument: anything else.
Result<std::int64_t> parse_lifetime(const std::string& text);

// The table, the newest token last. token_json(): a line of JSON for each token.
std::string token_table(const std::vector<protocol::TokenEntry>& entries, std::int64_t now);
std::string token_json(const std::vector<protocol::TokenEntry>& entries, std::int64_t now);

// Each prints what it did and returns the exit status: 0, 2 for invalid options, or 125.
//
// Only the token is on stdout, or in the new file `output`. It is never shown again.
int create_token(const TokenOptions& options);
int list_tokens(const TokenOptions& options);
// Revokes the tokens `ids`, or all of `user`. Give one of the two.
int revoke_tokens(const TokenOptions& options);

}  // namespace gpurun::tools
