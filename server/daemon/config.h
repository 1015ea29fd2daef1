// The settings of gpurund: a TOML file, over which the command line stands.
//
//   listen = "127.0.0.1:4790"      # HOST[:PORT]
//   driver = "real"                # real, emulated, or an absolute path
//   worker = "/usr/libexec/gpurun/gpurun-worker"
//   secret-file = "/etc/gpurun/secret"
//   insecure-plaintext = false
//   tokens = "/var/lib/gpurun/tokens"   # or "none"
//   audit = "syslog"               # or "none", or a file; told nothing: what there is
//   tls = false                    # true: also within this machine
//   tls-certificate = "/etc/gpurun/certificate.pem"
//   tls-key = "/etc/gpurun/key.pem"
//   worker-uids = [2000000000, 2000004095]   # first and last; or "none"
//   confinement = "full"           # or "none"
//   worker-memory = 0              # bytes; 0: by the devices
//   spare-workers = 1              # that wait for a lease
//   spare-level = "mapped"         # or "initialised"
//   cache = "/var/cache/gpurun"    # or "none"
//   cache-bytes = 4294967296
//   log = "warning"                # error, warning, info, debug, trace
//   [every-user]                   # what each user with a token may have at a time
//   max-leases = 4
//   [user.anna]                    # what is said for one stands over that
//   max-gpus = 2
//   max-sessions = 16
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/daemon/users.h"
#include "server/daemon/worker_uids.h"

namespace gpurun::server {

struct Config {
  std::string listen = "127.0.0.1";
  std::string driver = "real";
  std::string worker;  // Empty: beside this program.
  std::string secret_file;
  int secret_fd = -1;
  int ready_fd = -1;
  bool for_one_run = false;  // DaemonOptions::for_one_run.
  bool insecure_plaintext = false;
  std::string tokens;        // The file of users' tokens; "none": there are none.
  bool tokens_told = false;  // Else `tokens` stands for nothing: protocol::default_token_file().
  std::string audit;         // Empty: the system's log, else a file in the state folder.
  UserLimitsTable user_limits;
  bool tls = false;             // Also within this machine, and nothing but TLS.
  std::string tls_certificate;  // Both, or neither: one that it makes for itself.
  std::string tls_key;
  UidRange worker_uids;           // Used by root only.
  bool worker_uids_told = false;  // Somebody has chosen them, so that they must be usable.
  std::string confinement = "full";
  std::uint64_t worker_memory = 0;  // ProcessSettings::worker_memory_bytes.
  std::uint64_t spare_workers = 1;
  bool spare_workers_told = false;  // Else a server of one run has none.
  std::string spare_level = "mapped";
  // Folder for what outlives a session; "none" or empty: there is none.
  std::string cache;
  bool cache_told = false;  // Else `cache` stands for nothing: default_cache().
  std::uint64_t cache_bytes = std::uint64_t{4} << 30;
  std::string log = "warning";
};

// Reads `path` over what `config` holds. kUnavailable: no such file. kInvalidArgument: "PATH:LINE:
// ..." for what is no TOML, an unknown key, or a value of the wrong kind; also for a file of more
// than 1 MiB, and for characters beyond ASCII elsewhere than in comments and texts of one line.
Status read_config_file(const std::string& path, Config* config);

// The folder that the service manager gave to this daemon for its cache, else one in its user's
// (XDG Base Directory Specification); empty: the environment names none.
std::string default_cache();

// "FIRST-LAST", or "none", as --worker-uids has it.
Result<UidRange> parse_uid_range(const std::string& text);

}  // namespace gpurun::server
