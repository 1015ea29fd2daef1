// Options: the command line of gpurun, parsed and checked before anything is started.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/control/link_security.h"
#include "tools/gpurun/server_list.h"

namespace gpurun::tools {

// gpurun's own failures, distinct from the program's exit status (as for env(1) and nohup(1)).
enum ExitStatus : int {
  kExitOwnFailure = 125,
  kExitNotExecutable = 126,
  kExitNotFound = 127,
};

// "30s", "5m", "2h", "250ms": a whole number and a unit, at most 30 days.
Result<std::chrono::milliseconds> parse_duration(const std::string& text);

enum class Device { kAutomatic, kReal, kEmulated };

struct Options {
  enum class Action { kRun, kShowText };
  Action action = Action::kRun;
  std::string text;  // kShowText: help or version, for stdout.

  int gpu_count = 1;
  bool gpu_count_named = false;             // By -n.
  std::vector<Address> servers;             // Of -l or -s. Empty: the default servers, if any.
  bool private_server = false;              // Explicitly: by -l none or --device.
  std::chrono::milliseconds lease_wait{0};  // 0: do not wait for a GPU.
  Device device = Device::kAutomatic;
  std::string secret_file;          // For the server named by -l or -s. "": not named.
  std::string token_file;           // For this user. "": not named.
  bool insecure_plaintext = false;  // Accept that nothing is encrypted beyond this machine.
  bool always_tls = false;          // Within this machine, too.
  std::string authorities_file;     // May sign a server's certificate.
  std::string server_fingerprint;   // Of the key that the server must have. "": not named.
  bool stats = false;
  std::string transports;       // As GPURUN_TRANSPORTS. "": not named.
  std::string trusted_fabrics;  // "*" or a list of ports. "": not named.
  std::string trace_folder;     // Where each process leaves its trace. "": not named.
  std::string session_folder;   // For programs in containers. "": not named.
  bool quiet = false;
  std::vector<std::string> command;  // Program and its arguments, at least one.
};

// The link security that these options, and the environment's GPURUN_INSECURE_PLAINTEXT, select.
// kInvalidArgument: not a fingerprint, or a key is named but TLS is not wanted.
Result<client::LinkSecurity> link_security(const Options& options, bool plaintext_accepted);

// Options end at the first word that is not an option, or at "--". Reads the file of -s. A
// failure's message is one line that names the wrong word and the right form. The caller then exits
// with 125.
Result<Options> parse_options(int argc, const char* const* argv);

}  // namespace gpurun::tools
