// Start: recognises a ptxas by its name, and finds our program beside this library.
#include "client/cuda_tools/start.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace gpurun::client::cuda_tools {
namespace {

constexpr char kProgram[] = "gpurun-ptxas";

// The system's own answer, whatever stands in front of access().
bool is_executable(const char* path) { return syscall(SYS_faccessat, AT_FDCWD, path, X_OK) == 0; }

bool join(const char* folder, std::size_t bytes, const char* name, char (&path)[PATH_MAX]) {
  const std::size_t name_bytes = std::strlen(name);
  if (bytes + 1 + name_bytes + 1 > PATH_MAX) return false;
  std::memcpy(path, folder, bytes);
  path[bytes] = '/';
  std::memcpy(path + bytes + 1, name, name_bytes + 1);
  return true;
}

bool find_in_path(const char* name, char (&path)[PATH_MAX]) {
  const char* folders = std::getenv("PATH");
  if (folders == nullptr) folders = "/bin:/usr/bin";
  for (;;) {
    const std::size_t bytes = std::strcspn(folders, ":");
    const bool here = bytes == 0;  // An empty part is the current folder.
    if (join(here ? "." : folders, here ? 1 : bytes, name, path) && is_executable(path))
      return true;
    if (folders[bytes] == '\0') return false;
    folders += bytes + 1;
  }
}

bool find_ptxas(const char* file, bool search, char (&path)[PATH_MAX]) {
  if (search && std::strchr(file, '/') == nullptr) return find_in_path(file, path);
  const std::size_t bytes = std::strlen(file);
  if (bytes >= PATH_MAX || !is_executable(file)) return false;
  std::memcpy(path, file, bytes + 1);
  return true;
}

bool find_program(char (&path)[PATH_MAX]) {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&change_start), &self) == 0) return false;
  const char* slash = std::strrchr(self.dli_fname, '/');
  if (slash == nullptr) return false;
  return join(self.dli_fname, static_cast<std::size_t>(slash - self.dli_fname), kProgram, path) &&
         is_executable(path);
}

}  // namespace

bool is_ptxas(const char* file) noexcept {
  if (file == nullptr) return false;
  const char* slash = std::strrchr(file, '/');
  const char* name = slash == nullptr ? file : slash + 1;
  // Triton's wheel has one for the newest GPUs, under a name of its own.
  return std::strcmp(name, "ptxas") == 0 || std::strcmp(name, "ptxas-blackwell") == 0;
}

bool change_start(const char* file, char* const* arguments, bool search, Start* start) noexcept {
  if (arguments == nullptr) return false;
  const int before = errno;
  std::size_t count = 0;
  while (arguments[count] != nullptr && count < kArgumentsMax) ++count;
  const bool changes = arguments[count] == nullptr && find_ptxas(file, search, start->ptxas) &&
                       find_program(start->program);
  errno = before;
  if (!changes) return false;
  start->arguments[0] = start->program;
  start->arguments[1] = start->ptxas;
  std::memcpy(start->arguments + kArgumentsAdded, arguments, (count + 1) * sizeof *arguments);
  return true;
}

}  // namespace gpurun::client::cuda_tools
