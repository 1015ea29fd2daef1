// real_function(): opens the first library that has nvJitLinkCreate.
#include "client/nvjitlink/real_library.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

#include "base/log.h"

namespace gpurun::nvjitlink {
namespace {

constexpr const char* kNames[] = {"libnvJitLink.so.13", "libnvJitLink.so.12"};
// Below a folder of Python packages: the wheels of CUDA 13, and of CUDA 12.
constexpr const char* kInPackages[] = {"nvidia/cu13/lib/libnvJitLink.so.13",
                                       "nvidia/nvjitlink/lib/libnvJitLink.so.12"};
constexpr int kFoldersUp = 12;

void* opened(const char* file, int flags) {
  void* library = dlopen(file, RTLD_LAZY | RTLD_LOCAL | flags);
  if (library == nullptr) return nullptr;
  if (dlsym(library, "nvJitLinkCreate") != nullptr) return library;
  dlclose(library);
  return nullptr;
}

void* first_of(const std::vector<std::string>& files, int flags) {
  for (const std::string& file : files) {
    if (void* library = opened(file.c_str(), flags)) return library;
  }
  return nullptr;
}

void* open_library(const void* caller) {
  const char* named = std::getenv(kLibraryVariable);
  if (named != nullptr && *named != '\0') return opened(named, 0);
  const std::vector<std::string> names(std::begin(kNames), std::end(kNames));
  if (void* library = first_of(names, RTLD_NOLOAD)) return library;
  Dl_info who = {};
  if (dladdr(caller, &who) != 0 && who.dli_fname != nullptr) {
    if (void* library = first_of(places_near(who.dli_fname), 0)) return library;
  }
  if (void* library = first_of(names, 0)) return library;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* folder = std::getenv(variable);
    if (folder == nullptr || *folder == '\0') continue;
    for (const std::string& name : names) {
      if (void* library = opened((std::string(folder) + "/lib64/" + name).c_str(), 0)) {
        return library;
      }
    }
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> places_near(const std::string& caller) {
  std::vector<std::string> places;
  std::string folder = caller;
  for (int up = 0; up < kFoldersUp; ++up) {
    const std::size_t slash = folder.rfind('/');
    if (slash == std::string::npos) break;
    folder.resize(slash);
    for (const char* inside : kInPackages) places.push_back(folder + "/" + inside);
  }
  return places;
}

void* real_function(const char* name, const void* caller) {
  // Never closed: NVIDIA's library may have threads.
  static std::atomic<void*> library{nullptr};
  void* found = library.load(std::memory_order_acquire);
  if (found == nullptr) {
    found = open_library(caller);
    if (found == nullptr) {
      GPURUN_LOG(kInfo, "nvJitLink is not on this machine; GPURUN_NVJITLINK may name it");
      return nullptr;
    }
    library.store(found, std::memory_order_release);
  }
  return dlsym(found, name);
}

}  // namespace gpurun::nvjitlink
