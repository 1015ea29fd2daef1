// Look-ups: asks each of the C library's functions that programs use for a file, and starts a
// program by each that starts one. It knows nothing of CUDA, as the first steps of a framework.
//
// usage: look_ups status PATH   one line for each function: name, kind, device number
//        look_ups open PATH     one line for each function: name, the file's content or the reason
//        look_ups list FOLDER   one line for each function: name, names in the folder
//        look_ups glob PATTERN
//        look_ups start FUNCTION FILE ARGUMENT ARGUMENT
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/stat.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern char** environ;

namespace {

template <typename Function>
Function* function(const char* name) {
  auto* found = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  if (found == nullptr) std::printf("%s: this C library does not have it\n", name);
  return found;
}

void print(const char* name, int result, mode_t mode, unsigned major_number,
           unsigned minor_number) {
  if (result != 0) {
    std::printf("%s: %s\n", name, std::strerror(errno));
    return;
  }
  const char* kind = S_ISCHR(mode)   ? "device"
                     : S_ISREG(mode) ? "file"
                     : S_ISDIR(mode) ? "folder"
                                     : "other";
  std::printf("%s: %s %u:%u\n", name, kind, major_number, minor_number);
}

void print(const char* name, int result, const struct stat& status) {
  print(name, result, status.st_mode, major(status.st_rdev), minor(status.st_rdev));
}

#if defined(__x86_64__)
constexpr int kVersion = 1;
#else
constexpr int kVersion = 0;
#endif

int show_status(const char* path) {
  for (const char* name : {"stat", "stat64", "lstat", "lstat64"}) {
    struct stat status = {};
    if (auto* call = function<int(const char*, struct stat*)>(name))
      print(name, call(path, &status), status);
  }
  for (const char* name : {"fstatat", "fstatat64"}) {
    struct stat status = {};
    auto* call = function<int(int, const char*, struct stat*, int)>(name);
    if (call != nullptr) print(name, call(AT_FDCWD, path, &status, 0), status);
  }
  for (const char* name : {"__xstat", "__xstat64", "__lxstat", "__lxstat64"}) {
    struct stat status = {};
    auto* call = function<int(int, const char*, struct stat*)>(name);
    if (call != nullptr) print(name, call(kVersion, path, &status), status);
  }
  for (const char* name : {"__fxstatat", "__fxstatat64"}) {
    struct stat status = {};
    auto* call = function<int(int, int, const char*, struct stat*, int)>(name);
    if (call != nullptr) print(name, call(kVersion, AT_FDCWD, path, &status, 0), status);
  }
  struct statx wide = {};
  if (auto* call = function<int(int, const char*, int, unsigned, struct statx*)>("statx")) {
    const int result = call(AT_FDCWD, path, 0, STATX_BASIC_STATS, &wide);
    print("statx", result, wide.stx_mode, wide.stx_rdev_major, wide.stx_rdev_minor);
  }
  for (const char* name : {"access", "eaccess", "euidaccess"}) {
    auto* call = function<int(const char*, int)>(name);
    if (call != nullptr)
      std::printf("%s: %s\n", name, call(path, R_OK) == 0 ? "yes" : std::strerror(errno));
  }
  if (auto* call = function<int(int, const char*, int, int)>("faccessat")) {
    std::printf("faccessat: %s\n",
                call(AT_FDCWD, path, R_OK, 0) == 0 ? "yes" : std::strerror(errno));
  }
  return 0;
}

void print_content(const char* name, int descriptor) {
  if (descriptor < 0) {
    std::printf("%s: %s\n", name, std::strerror(errno));
    return;
  }
  char text[1024] = "";
  const ssize_t bytes = read(descriptor, text, sizeof text - 1);
  const bool kept = (fcntl(descriptor, F_GETFD) & FD_CLOEXEC) == 0;
  close(descriptor);
  const int line = bytes < 0 ? 0 : static_cast<int>(std::strcspn(text, "\n"));
  std::printf("%s: %.*s%s\n", name, line, text, kept ? "" : " (closed by exec)");
}

int show_content(const char* path) {
  for (const char* name : {"open", "open64"}) {
    if (auto* call = function<int(const char*, int, ...)>(name))
      print_content(name, call(path, O_RDONLY));
  }
  for (const char* name : {"openat", "openat64"}) {
    auto* call = function<int(int, const char*, int, ...)>(name);
    if (call != nullptr) print_content(name, call(AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  }
  for (const char* name : {"__open_2", "__open64_2"}) {
    if (auto* call = function<int(const char*, int)>(name))
      print_content(name, call(path, O_RDONLY));
  }
  for (const char* name : {"__openat_2", "__openat64_2"}) {
    auto* call = function<int(int, const char*, int)>(name);
    if (call != nullptr) print_content(name, call(AT_FDCWD, path, O_RDONLY));
  }
  for (const char* name : {"fopen", "fopen64"}) {
    auto* call = function<FILE*(const char*, const char*)>(name);
    FILE* stream = call == nullptr ? nullptr : call(path, "r");
    char line[1024] = "";
    if (stream == nullptr) {
      std::printf("%s: %s\n", name, std::strerror(errno));
      continue;
    }
    const char* text = std::fgets(line, sizeof line, stream) != nullptr ? line : "";
    std::printf("%s: %.*s\n", name, static_cast<int>(std::strcspn(text, "\n")), text);
    std::fclose(stream);
  }
  if (auto* call = function<int(const char*, int, ...)>("open")) {
    std::printf("for writing: %s\n", call(path, O_WRONLY) < 0 ? std::strerror(errno) : "opened");
  }
  return 0;
}

const char* kind_of(unsigned char type) {
  return type == DT_CHR ? "c" : type == DT_REG ? "f" : type == DT_DIR ? "d" : "?";
}

void print_names(const char* name, std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  std::printf("%s:", name);
  for (const std::string& each : names) std::printf(" %s", each.c_str());
  std::printf("\n");
}

int show_names(const char* folder) {
  for (const char* name : {"readdir", "readdir64"}) {
    auto* call = function<dirent*(DIR*)>(name);
    DIR* directory = opendir(folder);
    if (directory == nullptr) {
      std::printf("%s: %s\n", name, std::strerror(errno));
      continue;
    }
    std::vector<std::string> first, names;
    while (const dirent* entry = call(directory)) first.push_back(entry->d_name);
    rewinddir(directory);
    errno = 0;
    while (const dirent* entry = call(directory)) {
      names.push_back(std::string(kind_of(entry->d_type)) + "=" + entry->d_name);
    }
    if (errno != 0) std::printf("%s: ended with %s\n", name, std::strerror(errno));
    if (names.size() != first.size()) std::printf("%s: rewound to another folder\n", name);
    closedir(directory);
    print_names(name, names);
  }
  for (const char* name : {"readdir_r", "readdir64_r"}) {
    auto* call = function<int(DIR*, dirent*, dirent**)>(name);
    DIR* directory = opendir(folder);
    if (directory == nullptr) {
      std::printf("%s: %s\n", name, std::strerror(errno));
      continue;
    }
    std::vector<std::string> names;
    dirent entry{};
    dirent* result = nullptr;
    while (call(directory, &entry, &result) == 0 && result != nullptr) {
      names.push_back(std::string(kind_of(entry.d_type)) + "=" + entry.d_name);
    }
    closedir(directory);
    print_names(name, names);
  }
  for (const char* name : {"scandir", "scandir64"}) {
    using Scan = int(const char*, dirent***, int (*)(const dirent*),
                     int (*)(const dirent**, const dirent**));
    dirent** list = nullptr;
    const int count = function<Scan>(name)(
        folder, &list, [](const dirent* entry) { return entry->d_name[0] != '.' ? 1 : 0; },
        alphasort);
    if (count < 0) {
      std::printf("%s: %s\n", name, std::strerror(errno));
      continue;
    }
    std::printf("%s:", name);
    for (int at = 0; at < count; ++at) {
      std::printf(" %s", list[at]->d_name);
      std::free(list[at]);
    }
    std::free(list);
    std::printf("\n");
  }
  return 0;
}

int show_matches(const char* pattern) {
  for (const char* name : {"glob", "glob64"}) {
    glob_t result = {};
    auto* call = function<int(const char*, int, int (*)(const char*, int), glob_t*)>(name);
    const int failed = call(pattern, 0, nullptr, &result);
    std::vector<std::string> paths;
    for (std::size_t at = 0; failed == 0 && at < result.gl_pathc; ++at)
      paths.push_back(result.gl_pathv[at]);
    print_names(name, paths);
    if (failed == 0) globfree(&result);
  }
  return 0;
}

// The functions that replace this program return here only if they fail.
int start(const std::string& name, const char* file, char* one, char* other) {
  char own[] = "started";
  char* const words[] = {own, one, other, nullptr};
  if (name == "execve") execve(file, words, environ);
  if (name == "execv") execv(file, words);
  if (name == "execvp") execvp(file, words);
  if (name == "execvpe") execvpe(file, words, environ);
  if (name == "execl") execl(file, own, one, other, nullptr);
  if (name == "execlp") execlp(file, own, one, other, nullptr);
  if (name == "execle") execle(file, own, one, other, nullptr, environ);
  if (name == "vfork") {
    const pid_t child = vfork();
    if (child == 0) {
      execve(file, words, environ);
      _exit(errno);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  if (name == "posix_spawn" || name == "posix_spawnp") {
    pid_t child = 0;
    const auto call = name == "posix_spawn" ? posix_spawn : posix_spawnp;
    const int failed = call(&child, file, nullptr, nullptr, words, environ);
    if (failed != 0) {
      std::printf("%s\n", std::strerror(failed));
      return 1;
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  std::printf("%s\n", std::strerror(errno));
  return 1;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 2 ? words[1] : "";
  if (what == "status") return show_status(words[2]);
  if (what == "open") return show_content(words[2]);
  if (what == "list") return show_names(words[2]);
  if (what == "glob") return show_matches(words[2]);
  if (what == "start" && count == 6) return start(words[2], words[3], words[4], words[5]);
  return 2;
}
