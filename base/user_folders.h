// Folders of a user or a service. Any thread. Each call reads the environment.
#pragma once

#include <string>

namespace gpurun {

// Returns gpurun's folder in the folder that `variable` names, or in `below_home` of HOME if it
// names none. XDG Base Directory Specification: a path that is not absolute is ignored. Empty:
// neither is named.
//   xdg_folder("XDG_CACHE_HOME", ".cache")
// `name` is the folder's own name.
std::string xdg_folder(const char* variable, const char* below_home, const char* name = "gpurun");

// Returns the first folder that systemd gives a service in `variable` (systemd.exec(5): one path,
// or several separated by colons). Empty: there is no folder.
std::string service_folder(const char* variable);

// Returns the folder for a server's state. It is systemd's STATE_DIRECTORY if that is set. If not,
// it is /var/lib/gpurun for root, and gpurun in XDG_STATE_HOME (~/.local/state) for other users.
// Empty: the environment names none.
std::string state_folder();

}  // namespace gpurun
