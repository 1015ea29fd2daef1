// Where gpurun keeps what is a user's or a service's own. Any thread; the environment is read anew.
#pragma once

#include <string>

namespace gpurun {

// gpurun's folder in what `variable` names, else in `below_home` of HOME (XDG Base Directory
// Specification: a path that is not absolute counts for nothing). Empty: neither is named.
//   xdg_folder("XDG_CACHE_HOME", ".cache")
std::string xdg_folder(const char* variable, const char* below_home);

// The first folder that systemd gives a service in `variable` (systemd.exec(5): one path, or
// several with colons between). Empty: none.
std::string service_folder(const char* variable);

// What a server keeps: in systemd's STATE_DIRECTORY, else /var/lib/gpurun for root, else gpurun in
// XDG_STATE_HOME (~/.local/state). Empty: the environment names none.
std::string state_folder();

}  // namespace gpurun
