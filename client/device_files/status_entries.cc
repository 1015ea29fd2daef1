// Status entries: the C library's functions that say whether a file is there, and what it is.
//
// Each calls the C library first. Only its ENOENT leads to our names, so that everything else costs
// nothing, and a machine's own device files stay as they are.
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "client/device_files/this_lease.h"
#include "client/process/next_function.h"

namespace gpurun::client::device_files {
namespace {

int status_of(const char* path, struct stat* status) {
  const Entry entry = shown_entry(path);
  if (!entry.found()) return -1;
  fill_status(entry, status);
  return 0;
}

int extended_status_of(const char* path, struct statx* status) {
  struct stat plain;
  if (status_of(path, &plain) != 0) return -1;
  *status = {};
  status->stx_mask = STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_INO | STATX_SIZE;
  status->stx_blksize = 4096;
  status->stx_nlink = static_cast<__u32>(plain.st_nlink);
  status->stx_mode = static_cast<__u16>(plain.st_mode);
  status->stx_ino = plain.st_ino;
  status->stx_rdev_major = major(plain.st_rdev);
  status->stx_rdev_minor = minor(plain.st_rdev);
  return 0;
}

int access_of(const char* path, int mode) {
  const Entry entry = shown_entry(path);
  if (!entry.found()) return -1;
  const bool writes = (mode & W_OK) != 0 && entry.kind() != Kind::kDevice;
  const bool executes = (mode & X_OK) != 0 && entry.kind() != Kind::kFolder;
  if (!writes && !executes) return 0;
  errno = EACCES;
  return -1;
}

using Stat = int(const char*, struct stat*);
using StatAt = int(int, const char*, struct stat*, int);
using OldStat = int(int, const char*, struct stat*);
using OldStatAt = int(int, int, const char*, struct stat*, int);
using Access = int(const char*, int);

int stat_by(NextFunction<Stat>* next, const char* path, struct stat* status, int flags) {
  // A C library before 2.33 has __xstat() alone. A program that was linked with it calls that.
  Stat* const function = next->get();
  const int result = function != nullptr
                         ? function(path, status)
                         : static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, status, flags));
  return is_missing(result) ? status_of(path, status) : result;
}

int stat_at_by(NextFunction<StatAt>* next, int folder, const char* path, struct stat* status,
               int flags) {
  StatAt* const function = next->get();
  const int result = function != nullptr
                         ? function(folder, path, status, flags)
                         : static_cast<int>(syscall(SYS_newfstatat, folder, path, status, flags));
  return is_missing(result) ? status_of(path, status) : result;
}

int old_stat_by(NextFunction<OldStat>* next, int version, const char* path, struct stat* status) {
  const int result = (*next)(version, path, status);
  return is_missing(result) ? status_of(path, status) : result;
}

int access_by(NextFunction<Access>* next, const char* path, int mode) {
  const int result = (*next)(path, mode);
  return is_missing(result) ? access_of(path, mode) : result;
}

constinit NextFunction<Stat> next_stat("stat");
constinit NextFunction<Stat> next_stat64("stat64");
constinit NextFunction<Stat> next_lstat("lstat");
constinit NextFunction<Stat> next_lstat64("lstat64");
constinit NextFunction<StatAt> next_fstatat("fstatat");
constinit NextFunction<StatAt> next_fstatat64("fstatat64");
constinit NextFunction<OldStat> next_xstat("__xstat");
constinit NextFunction<OldStat> next_xstat64("__xstat64");
constinit NextFunction<OldStat> next_lxstat("__lxstat");
constinit NextFunction<OldStat> next_lxstat64("__lxstat64");
constinit NextFunction<OldStatAt> next_fxstatat("__fxstatat");
constinit NextFunction<OldStatAt> next_fxstatat64("__fxstatat64");
constinit NextFunction<int(int, const char*, int, unsigned, struct statx*)> next_statx("statx");
constinit NextFunction<Access> next_access("access");
constinit NextFunction<Access> next_eaccess("eaccess");
constinit NextFunction<Access> next_euidaccess("euidaccess");
constinit NextFunction<int(int, const char*, int, int)> next_faccessat("faccessat");

}  // namespace

// struct stat and struct stat64 are one on the machines that we have.
static_assert(sizeof(struct stat) == sizeof(struct stat64));

extern "C" {

int shown_stat(const char* path, struct stat* status) GPURUN_AS("stat");
int shown_stat64(const char* path, struct stat* status) GPURUN_AS("stat64");
int shown_lstat(const char* path, struct stat* status) GPURUN_AS("lstat");
int shown_lstat64(const char* path, struct stat* status) GPURUN_AS("lstat64");
int shown_fstatat(int folder, const char* path, struct stat* status, int flags)
    GPURUN_AS("fstatat");
int shown_fstatat64(int folder, const char* path, struct stat* status, int flags)
    GPURUN_AS("fstatat64");
int shown_xstat(int version, const char* path, struct stat* status) GPURUN_AS("__xstat");
int shown_xstat64(int version, const char* path, struct stat* status) GPURUN_AS("__xstat64");
int shown_lxstat(int version, const char* path, struct stat* status) GPURUN_AS("__lxstat");
int shown_lxstat64(int version, const char* path, struct stat* status) GPURUN_AS("__lxstat64");
int shown_fxstatat(int version, int folder, const char* path, struct stat* status, int flags)
    GPURUN_AS("__fxstatat");
int shown_fxstatat64(int version, int folder, const char* path, struct stat* status, int flags)
    GPURUN_AS("__fxstatat64");
int shown_statx(int folder, const char* path, int flags, unsigned mask, struct statx* status)
    GPURUN_AS("statx");
int shown_access(const char* path, int mode) GPURUN_AS("access");
int shown_eaccess(const char* path, int mode) GPURUN_AS("eaccess");
int shown_euidaccess(const char* path, int mode) GPURUN_AS("euidaccess");
int shown_faccessat(int folder, const char* path, int mode, int flags) GPURUN_AS("faccessat");

int shown_stat(const char* path, struct stat* status) {
  return stat_by(&next_stat, path, status, 0);
}
int shown_stat64(const char* path, struct stat* status) {
  return stat_by(&next_stat64, path, status, 0);
}
int shown_lstat(const char* path, struct stat* status) {
  return stat_by(&next_lstat, path, status, AT_SYMLINK_NOFOLLOW);
}
int shown_lstat64(const char* path, struct stat* status) {
  return stat_by(&next_lstat64, path, status, AT_SYMLINK_NOFOLLOW);
}
int shown_fstatat(int folder, const char* path, struct stat* status, int flags) {
  return stat_at_by(&next_fstatat, folder, path, status, flags);
}
int shown_fstatat64(int folder, const char* path, struct stat* status, int flags) {
  return stat_at_by(&next_fstatat64, folder, path, status, flags);
}
int shown_xstat(int version, const char* path, struct stat* status) {
  return old_stat_by(&next_xstat, version, path, status);
}
int shown_xstat64(int version, const char* path, struct stat* status) {
  return old_stat_by(&next_xstat64, version, path, status);
}
int shown_lxstat(int version, const char* path, struct stat* status) {
  return old_stat_by(&next_lxstat, version, path, status);
}
int shown_lxstat64(int version, const char* path, struct stat* status) {
  return old_stat_by(&next_lxstat64, version, path, status);
}
int shown_fxstatat(int version, int folder, const char* path, struct stat* status, int flags) {
  const int result = next_fxstatat(version, folder, path, status, flags);
  return is_missing(result) ? status_of(path, status) : result;
}
int shown_fxstatat64(int version, int folder, const char* path, struct stat* status, int flags) {
  const int result = next_fxstatat64(version, folder, path, status, flags);
  return is_missing(result) ? status_of(path, status) : result;
}
int shown_statx(int folder, const char* path, int flags, unsigned mask, struct statx* status) {
  const int result = next_statx(folder, path, flags, mask, status);
  return is_missing(result) ? extended_status_of(path, status) : result;
}
int shown_access(const char* path, int mode) { return access_by(&next_access, path, mode); }
int shown_eaccess(const char* path, int mode) { return access_by(&next_eaccess, path, mode); }
int shown_euidaccess(const char* path, int mode) { return access_by(&next_euidaccess, path, mode); }
int shown_faccessat(int folder, const char* path, int mode, int flags) {
  const int result = next_faccessat(folder, path, mode, flags);
  return is_missing(result) ? access_of(path, mode) : result;
}

}  // extern "C"
}  // namespace gpurun::client::device_files
