// gpuctl token: who may use this machine's GPUs. What it changes is the file that gpurund reads
// (protocol/token_file.h); no server is asked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "protocol/token_file.h"

namespace gpurun::tools {

struct TokenWords {
  std::string file;  // Of the tokens; empty: where gpurund looks when it is told nothing.
  std::string user, expires, note, fingerprint, output;
  std::vector<std::string> ids;
  bool keep_running = false;
  bool as_json = false;
};

// Seconds: "12h", "90d", "2w"; at most ten years. kInvalidArgument: none of these.
Result<std::int64_t> parse_lifetime(const std::string& text);

// The table, the newest token last; and a line of JSON for each.
std::string token_table(const std::vector<protocol::TokenEntry>& entries, std::int64_t now);
std::string token_json(const std::vector<protocol::TokenEntry>& entries, std::int64_t now);

// Each prints what it did and returns the exit status: 0; 2 when the words are wrong; 125.
//
// The token is all that is on stdout, or in the new file `output`, and is shown this once.
int create_token(const TokenWords& words);
int list_tokens(const TokenWords& words);
// Those of `ids`, or all of `user`: one of the two.
int revoke_tokens(const TokenWords& words);

}  // namespace gpurun::tools
