// Loading: the ways in which the library is loaded, and changes of the program to its start-up
// state.
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "tests/system/process/cases.h"

namespace process_cases {

void environment_cleared() {
  EXPECT(clearenv() == 0);
  work();
}

void folder_removed() {
  char folder[] = "/tmp/process-cases-XXXXXX";
  EXPECT(mkdtemp(folder) != nullptr && chdir(folder) == 0 && rmdir(folder) == 0);
  work();
}

// The word: the new, empty root. Afterwards no file can be opened by name.
void another_root() {
  if (word(1) == "after") use_device();
  EXPECT(chroot(word(0).c_str()) == 0 && chdir("/") == 0);
  CUcontext context = nullptr;
  int result = cuInit(0);
  if (result == 0) result = cuDevicePrimaryCtxRetain(&context, 0);
  if (result == 0) result = cuCtxSetCurrent(context);
  if (result == 0) result = try_to_compute(5);
  say(result == 0 ? "computed\n" : "result " + std::to_string(result) + "\n");
}

// Loads and unloads a plugin that uses CUDA, again and again.
void plugin_again() {
  for (int round = 0; round < 5; ++round) {
    void* plugin = dlopen(word(0).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr)
      cuda_check::fail(__FILE__, __LINE__, dlerror(), std::to_string(round).c_str());
    const auto run = reinterpret_cast<int (*)()>(dlsym(plugin, "plugin_run"));
    EXPECT(run != nullptr);
    MUST(run());
    EXPECT(dlclose(plugin) == 0);
  }
}

}  // namespace process_cases
