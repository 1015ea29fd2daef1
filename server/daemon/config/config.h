// Settings of gpurund: a TOML file, which the command line overrides.
//
//   listen = "127.0.0.1:4790"      # HOST[:PORT]
//   driver = "real"                # real, emulated, or an absolute path
//   worker = "/usr/libexec/gpurun/gpurun-worker"
//
//   secret-file = "/etc/gpurun/secret"
//   insecure-plaintext = false
//   tokens = "/var/lib/gpurun/tokens"   # or "none"
//   audit = "syslog"               # or "none", or a file. Default: what the machine has
//
//   tls = false                    # true: also within this machine
//   tls-certificate = "/etc/gpurun/certificate.pem"
//   tls-key = "/etc/gpurun/key.pem"
//
//   worker-uids = [2000000000, 2000004095]   # first and last, or "none"
//   confinement = "full"           # or "none"
//   worker-memory = "16GiB"        # or a number of bytes. 0: from the devices
//   worker-numa = "auto"           # run near the GPUs, or "off"
//   spare-workers = 1              # workers that wait for a lease
//   spare-level = "mapped"         # or "initialised"
//
//   cache = "/var/cache/gpurun"    # or "none"
//   cache-bytes = "4GiB"
//   log = "warning"                # error, warning, info, debug, trace
//
//   [emulated]                     # keys of GPURUN_EMULATED, which overrides them
//   devices = 2
//   memory = "4GiB"
//   capability = 9.0
//
//   [fabric]                       # RDMA, which encrypts nothing
//   trusted = ["mlx5_0:1"]         # devices or ports that sessions may use; ["*"]: all
//   service-level = 3              # of the server's packets: 0 to 15.
//   traffic-class = 106            # The same: 0 to 255.
//   gpudirect = "auto"             # or "off": RDMA devices read into no GPU memory
//
//   [every-user]                   # the bounds of each user with a token
//   max-leases = 4
//   [user.anna]                    # overrides [every-user] for one user
//   max-gpus = 2
//   max-sessions = 16
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/daemon/users/users.h"
#include "server/daemon/workers/worker_uids.h"

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
  std::string tokens;         // The file of users' tokens. "none": no tokens.
  bool tokens_given = false;  // False: protocol::default_token_file().
  std::string audit;          // Empty: the system's log, else a file in the state folder.
  UserLimitsTable user_limits;
  bool tls = false;             // Only TLS, also within this machine.
  std::string tls_certificate;  // Both or neither. Neither: the server makes its own.
  std::string tls_key;
  UidRange worker_uids;            // Used by root only.
  bool worker_uids_given = false;  // The operator chose them, so they must be usable.
  std::string confinement = "full";
  std::uint64_t worker_memory = 0;  // ProcessSettings::worker_memory_bytes.
  std::string worker_numa = "auto";
  std::vector<std::string> trusted_fabrics;  // [fabric] trusted. Empty: no RDMA.
  std::uint64_t service_level = 0;           // [fabric] service-level.
  std::uint64_t traffic_class = 0;           // [fabric] traffic-class.
  std::string gpudirect = "auto";            // [fabric] gpudirect.
  std::uint64_t spare_workers = 1;
  bool spare_workers_given = false;  // False: a server of one run has none.
  std::string spare_level = "mapped";
  // The folder for data that outlives a session. "none" or empty: no such folder.
  std::string cache;
  bool cache_given = false;  // False: default_cache().
  std::uint64_t cache_bytes = std::uint64_t{4} << 30;
  std::string log = "warning";
  std::string emulated;  // [emulated], in the form of GPURUN_EMULATED.
  // "PATH:LINE" of each key that a file has set.
  std::map<std::string, std::string> origins;
};

}  // namespace gpurun::server
