// verbs_driver: the null or the emulated device, in a library that also brings the verbs double. A
// worker gets few variables of its environment, and so finds the double by its driver
// (tests/drivers/verbs). The double's faults in a worker are in the file verbs_faults of the folder
// TMPDIR, if it is there. Its counters go to the file verbs_counters, if it is there.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

extern "C" __attribute__((visibility("default"))) void gpurun_verbs_driver() {}

namespace {

[[gnu::constructor]] void take_settings() {
  const char* const folder = std::getenv("TMPDIR");
  if (folder == nullptr) return;
  const std::string counters = std::string(folder) + "/verbs_counters";
  if (access(counters.c_str(), W_OK) == 0) setenv("VERBS_DOUBLE_COUNTERS", counters.c_str(), 1);
  std::FILE* const file = std::fopen((std::string(folder) + "/verbs_faults").c_str(), "re");
  if (file == nullptr) return;
  char faults[256] = {};
  if (std::fgets(faults, sizeof faults, file) != nullptr) setenv("VERBS_DOUBLE_FAULTS", faults, 1);
  std::fclose(file);
}

}  // namespace
