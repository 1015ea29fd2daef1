// Folders of a user or a service. Any thread. Each call reads the environment.
#pragma once

#include <string>

namespace gpurun {

// Returns the path of the folder `name` in the folder that the environment's `variable` names. If
// it names none, the folder is in `below_home` in HOME.
//   xdg_folder("XDG_CACHE_HOME", ".cache")
// A path that is not absolute is ignored (XDG Base Directory Specification). Returns an empty text
// if neither variable has an absolute path.
std::string xdg_folder(const char* variable, const char* below_home, const char* name = "gpurun");

// Returns the first folder that systemd gives a service in `variable` (systemd.exec(5): one path,
// or several separated by colons). Empty: there is no folder.
std::string service_folder(const char* variable);

// Returns the folder for a server's state. It is systemd's STATE_DIRECTORY if that is set. If not,
// it is /var/lib/gpurun for root, and gpurun in XDG_STATE_HOME (~/.local/state) for other users.
// Empty: the environment names none.
std::string state_folder();

}  // namespace gpurun
