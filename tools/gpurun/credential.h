// Credential: how a user authenticates to a server, by a token of its own or by the server's
// secret.
#pragma once

#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/auth/token.h"

namespace gpurun::tools {

// The variable that names the token's file when --token-file does not.
inline constexpr const char* kTokenFileVariable = "GPURUN_TOKEN_FILE";

struct Credential {
  std::optional<protocol::Token> token;
  Bytes secret;      // Used without a token.
  std::string file;  // Where it was read from, for messages. Empty: no file.

  bool empty() const { return !token && secret.empty(); }
};

// Reads the only token of a file, which no other user may read. kRefused: others may read it.
// kInvalidArgument: no token, or a damaged one. No message holds a part of the token.
Result<protocol::Token> read_token(const std::string& path);

// The credential that the user named for all servers: the options' files, else the environment's.
// Empty: none named. kInvalidArgument also for a token and a secret together.
Result<Credential> named_credential(std::string token_file, std::string secret_file);

// The stored credential for `server` (HOST:PORT) when the user named none. It is the first of:
//
//   tokens/HOST:PORT, tokens/HOST   in gpurun of XDG_CONFIG_HOME (~/.config)
//   the run secret of this user's gpurund on this machine
//   token                           in that folder, for all servers
//
// Empty: there is no such file. A file that exists and is unusable is a failure.
Result<Credential> found_credential(const std::string& server);

// The folder gpurun in XDG_CONFIG_HOME, or in ~/.config. Empty: the environment names none.
std::string config_folder();

}  // namespace gpurun::tools
