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
//   worker-memory = "16GiB"        # or a number of bytes; 0: by the devices
//   spare-workers = 1              # that wait for a lease
//   spare-level = "mapped"         # or "initialised"
//   cache = "/var/cache/gpurun"    # or "none"
//   cache-bytes = "4GiB"
//   log = "warning"                # error, warning, info, debug, trace
//   [emulated]                     # what GPURUN_EMULATED takes; the variable overrides it
//   devices = 2
//   memory = "4GiB"
//   capability = 9.0
//   [every-user]                   # what each user with a token may have at a time
//   max-leases = 4
//   [user.anna]                    # what is said for one stands over that
//   max-gpus = 2
//   max-sessions = 16
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
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
  std::string emulated;  // [emulated], as GPURUN_EMULATED says it.
  // "PATH:LINE" of each key that a file has set.
  std::map<std::string, std::string> origins;
};

// Reads `path` over what `config` holds. kUnavailable: no such file. kInvalidArgument: "PATH:LINE:
// ..." for what is no TOML, an unknown key, or a value of the wrong kind or out of its range; also
// for what config_text() says.
Status read_config_file(const std::string& path, Config* config);

// The keys of the file, tables included.
std::vector<std::string_view> setting_names();
// Whether the value of that setting is one that it may have; the message follows its name.
Status check_setting(std::string_view name, const Config& config);

// Settings that differ, by name.
struct ConfigChanges {
  std::vector<std::string> heeded;  // A running gpurund takes them over (server/daemon/reload.h).
  std::vector<std::string> at_restart;  // It cannot.
};
ConfigChanges changes_between(const Config& before, const Config& after);

// The folder that the service manager gave to this daemon for its cache, else one in its user's
// (XDG Base Directory Specification); empty: the environment names none.
std::string default_cache();

// "FIRST-LAST", or "none", as --worker-uids has it.
Result<UidRange> parse_uid_range(const std::string& text);

}  // namespace gpurun::server
