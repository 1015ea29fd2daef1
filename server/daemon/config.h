// The settings of gpurund: a TOML file, over which the command line stands.
//
//   listen = "127.0.0.1:4790"      # HOST[:PORT]
//   driver = "real"                # real, emulated, or an absolute path
//   worker = "/usr/libexec/gpurun/gpurun-worker"
//   secret-file = "/etc/gpurun/secret"
//   insecure-plaintext = false
//   worker-uids = [2000000000, 2000004095]   # first and last; or "none"
//   log = "warning"                # error, warning, info, debug, trace
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "server/daemon/worker_uids.h"

namespace gpurun::server {

struct Config {
  std::string listen = "127.0.0.1";
  std::string driver = "real";
  std::string worker;  // Empty: beside this program.
  std::string secret_file;
  int secret_fd = -1;
  int ready_fd = -1;
  bool insecure_plaintext = false;
  UidRange worker_uids;           // Used by root only.
  bool worker_uids_told = false;  // Somebody has chosen them, so that they must be usable.
  std::string log = "warning";
};

// Reads `path` over what `config` holds. kUnavailable: no such file. kInvalidArgument: "PATH:LINE:
// ..." for what is no TOML, an unknown key, or a value of the wrong kind.
Status read_config_file(const std::string& path, Config* config);

// "FIRST-LAST", or "none", as --worker-uids has it.
Result<UidRange> parse_uid_range(const std::string& text);

}  // namespace gpurun::server
