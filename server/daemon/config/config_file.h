// Configuration file: reads gpurund's settings from TOML into a Config, and compares two of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/daemon/config/config.h"

namespace gpurun::server {

// Reads `path` and overrides `config`. kUnavailable: no such file. kInvalidArgument, with
// "PATH:LINE: ...": not TOML, an unknown key, a value of the wrong kind or out of range, or an
// error of config_text().
Status read_config_file(const std::string& path, Config* config);

// All keys of the file, tables included.
std::vector<std::string_view> setting_names();
// Checks the value of a setting. The message follows the setting's name.
Status check_setting(std::string_view name, const Config& config);

// The names of settings that differ.
struct ConfigChanges {
  std::vector<std::string> heeded;      // A running gpurund adopts them (server/daemon/reload.h).
  std::vector<std::string> at_restart;  // They need a restart.
};
ConfigChanges changes_between(const Config& before, const Config& after);

// The cache folder that the service manager gave to this daemon, else one in its user's folders
// (XDG Base Directory Specification). Empty: the environment names none.
std::string default_cache();

// Parses "FIRST-LAST" or "none", as --worker-uids takes it.
Result<UidRange> parse_uid_range(const std::string& text);

}  // namespace gpurun::server
