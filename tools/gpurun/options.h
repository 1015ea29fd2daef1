// The command line of gpurun, parsed and checked before anything is started.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/link_security.h"
#include "tools/gpurun/server_list.h"

namespace gpurun::tools {

// gpurun's own failures, apart from the program's exit status (as env(1) and nohup(1) do).
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
  std::vector<Address> servers;             // Of -l or -s; empty: the default ones, if any.
  bool private_server = false;              // Said: by -l none or --device.
  std::chrono::milliseconds lease_wait{0};  // 0: do not wait for a GPU.
  Device device = Device::kAutomatic;
  std::string secret_file;          // Of the server named by -l or -s; "" when none was named.
  std::string token_file;           // Of this user, likewise.
  bool insecure_plaintext = false;  // Accept that nothing is encrypted beyond this machine.
  bool always_tls = false;          // Within this machine, too.
  std::string authorities_file;     // Whose word counts for a server's certificate.
  std::string server_fingerprint;   // The key that the server must have; "" when none was named.
  bool stats = false;
  std::string trace_folder;  // Where each process leaves its trace; "" when none was named.
  bool quiet = false;
  std::vector<std::string> command;  // Program and its arguments, at least one.
};

// What these options, and the environment's GPURUN_INSECURE_PLAINTEXT, mean for the way to a
// server. kInvalidArgument: that is no fingerprint, or a key is named and no TLS wanted.
Result<client::LinkSecurity> link_security(const Options& options, bool plaintext_accepted);

// Options end at the first word that is none, or at "--". Reads the file of -s. A failure's message
// is one line that says which word is wrong and what would be right; the caller exits with 125.
Result<Options> parse_options(int argc, const char* const* argv);

}  // namespace gpurun::tools
