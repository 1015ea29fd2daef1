// User and service folders: the environment decides, and only absolute paths count.
#include "base/user_folders.h"

#include <unistd.h>

#include <cstdlib>

namespace gpurun {
namespace {

std::string absolute(const char* variable) {
  const char* value = getenv(variable);
  return value != nullptr && value[0] == '/' ? value : "";
}

}  // namespace

std::string xdg_folder(const char* variable, const char* below_home, const char* name) {
  if (const std::string base = absolute(variable); !base.empty()) return base + "/" + name;
  const std::string home = absolute("HOME");
  return home.empty() ? home : home + "/" + below_home + "/" + name;
}

std::string service_folder(const char* variable) {
  const std::string given = absolute(variable);
  return given.substr(0, given.find(':'));
}

std::string state_folder() {
  if (std::string given = service_folder("STATE_DIRECTORY"); !given.empty()) return given;
  return geteuid() == 0 ? "/var/lib/gpurun" : xdg_folder("XDG_STATE_HOME", ".local/state");
}

}  // namespace gpurun
