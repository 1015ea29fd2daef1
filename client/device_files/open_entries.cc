// Open entries: the C library's functions that open a file by its name.
//
// A file of ours opens as a memory file with its content. A device does not open: without NVIDIA's
// kernel driver nothing could answer its requests.
#include <fcntl.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>

#include "client/device_files/this_lease.h"
#include "client/process/next_function.h"

namespace gpurun::client::device_files {
namespace {

using Open = int(const char*, int, ...);
using OpenAt = int(int, const char*, int, ...);
using CheckedOpen = int(const char*, int);
using CheckedOpenAt = int(int, const char*, int);
using OpenStream = FILE*(const char*, const char*);

bool has_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

// The answer for a path that could not be opened.
int open_shown(const char* path, int flags) {
  const Entry entry = shown_entry(path);
  return entry.found() ? open_entry(entry, flags) : -1;
}

constinit NextFunction<Open> next_open("open");
constinit NextFunction<Open> next_open64("open64");
constinit NextFunction<OpenAt> next_openat("openat");
constinit NextFunction<OpenAt> next_openat64("openat64");
constinit NextFunction<CheckedOpen> next_open_2("__open_2");
constinit NextFunction<CheckedOpen> next_open64_2("__open64_2");
constinit NextFunction<CheckedOpenAt> next_openat_2("__openat_2");
constinit NextFunction<CheckedOpenAt> next_openat64_2("__openat64_2");
constinit NextFunction<OpenStream> next_fopen("fopen");
constinit NextFunction<OpenStream> next_fopen64("fopen64");

FILE* open_stream(NextFunction<OpenStream>* next, const char* path, const char* mode) {
  OpenStream* const function = next->get();
  if (function == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  FILE* const stream = function(path, mode);
  if (stream != nullptr || errno != ENOENT) return stream;
  const Entry entry = shown_entry(path);
  if (!entry.found()) return nullptr;
  int flags = O_RDONLY;
  for (const char* letter = mode; *letter != '\0' && *letter != ','; ++letter) {
    if (*letter == 'w' || *letter == 'a' || *letter == '+') flags = O_RDWR;
    if (*letter == 'e') flags |= O_CLOEXEC;
  }
  const int descriptor = open_entry(entry, flags);
  if (descriptor < 0) return nullptr;
  FILE* const shown = fdopen(descriptor, "r");
  if (shown == nullptr) close(descriptor);
  return shown;
}

}  // namespace

extern "C" {

int shown_open(const char* path, int flags, ...) GPURUN_AS("open");
int shown_open64(const char* path, int flags, ...) GPURUN_AS("open64");
int shown_openat(int folder, const char* path, int flags, ...) GPURUN_AS("openat");
int shown_openat64(int folder, const char* path, int flags, ...) GPURUN_AS("openat64");
int shown_open_2(const char* path, int flags) GPURUN_AS("__open_2");
int shown_open64_2(const char* path, int flags) GPURUN_AS("__open64_2");
int shown_openat_2(int folder, const char* path, int flags) GPURUN_AS("__openat_2");
int shown_openat64_2(int folder, const char* path, int flags) GPURUN_AS("__openat64_2");
FILE* shown_fopen(const char* path, const char* mode) GPURUN_AS("fopen");
FILE* shown_fopen64(const char* path, const char* mode) GPURUN_AS("fopen64");

// The mode is there only with the flags that need it.
#define GPURUN_MODE(mode)        \
  mode_t mode = 0;               \
  if (has_mode(flags)) {         \
    va_list list;                \
    va_start(list, flags);       \
    mode = va_arg(list, mode_t); \
    va_end(list);                \
  }

int shown_open(const char* path, int flags, ...) {
  GPURUN_MODE(mode)
  const int descriptor = next_open(path, flags, mode);
  return is_missing(descriptor) ? open_shown(path, flags) : descriptor;
}
int shown_open64(const char* path, int flags, ...) {
  GPURUN_MODE(mode)
  const int descriptor = next_open64(path, flags, mode);
  return is_missing(descriptor) ? open_shown(path, flags) : descriptor;
}
int shown_openat(int folder, const char* path, int flags, ...) {
  GPURUN_MODE(mode)
  const int descriptor = next_openat(folder, path, flags, mode);
  return is_missing(descriptor) ? open_shown(path, flags) : descriptor;
}
int shown_openat64(int folder, const char* path, int flags, ...) {
  GPURUN_MODE(mode)
  const int descriptor = next_openat64(folder, path, flags, mode);
  return is_missing(descriptor) ? open_shown(path, flags) : descriptor;
}
int shown_open_2(const char* path, int flags) {
  const int descriptor = next_open_2(path, flags);
  return is_missing(descriptor) ? open_shown(path, flags) : descriptor;
}
int shown_open64_2(const char* path, int flags) {
  const int descriptor = next_open64_2(path, flags);
  return is_missing(descriptor) ? open_shown(path, flags) : descriptor;
}
int shown_openat_2(int folder, const char* path, int flags) {
  const int descriptor = next_openat_2(folder, path, flags);
  return is_missing(descriptor) ? open_shown(path, flags) : descriptor;
}
int shown_openat64_2(int folder, const char* path, int flags) {
  const int descriptor = next_openat64_2(folder, path, flags);
  return is_missing(descriptor) ? open_shown(path, flags) : descriptor;
}
FILE* shown_fopen(const char* path, const char* mode) {
  return open_stream(&next_fopen, path, mode);
}
FILE* shown_fopen64(const char* path, const char* mode) {
  return open_stream(&next_fopen64, path, mode);
}

}  // extern "C"
}  // namespace gpurun::client::device_files
