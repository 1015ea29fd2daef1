// By what a server knows this user: a token of its own, or the server's secret.
#pragma once

#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/token.h"

namespace gpurun::tools {

// Names the token's file when --token-file does not.
inline constexpr const char* kTokenFileVariable = "GPURUN_TOKEN_FILE";

struct Credential {
  std::optional<protocol::Token> token;
  Bytes secret;      // Where there is no token.
  std::string file;  // That it was read from, for messages; empty: from none.

  bool empty() const { return !token && secret.empty(); }
};

// The one token in a file, which nobody else may read. kRefused: others may. kInvalidArgument: it
// holds none, or a damaged one. No message holds a part of it.
Result<protocol::Token> read_token(const std::string& path);

// What the user has named for all servers: the options' files, else the environment's; empty: none.
// kInvalidArgument also: a token and a secret.
Result<Credential> named_credential(std::string token_file, std::string secret_file);

// What lies ready for `server` (HOST:PORT) where none was named, the first of:
//   tokens/HOST:PORT, tokens/HOST   in gpurun of XDG_CONFIG_HOME (~/.config)
//   the secret that a gpurund of this user's on this machine has made for its run
//   token                           in that folder: for all servers
// Empty: there is nothing. A file that is there and cannot be used is a failure.
Result<Credential> found_credential(const std::string& server);

// gpurun in XDG_CONFIG_HOME, or in ~/.config; empty: the environment names none.
std::string config_folder();

}  // namespace gpurun::tools
