// File I/O: a read begins with the file's size as its buffer, and grows it if the file does.
#include "base/file_io.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/hex.h"
#include "base/random.h"
#include "base/unique_fd.h"

namespace gpurun {
namespace {

constexpr std::size_t kFirstReadBytes = 4096;  // Of a file without a size: a pipe's, one of /proc.

enum class From { kPosition, kBeginning };

Status has_more(const std::string& name, std::size_t bytes_max, Code code) {
  const char* unit = " bytes";
  if (bytes_max % (std::size_t{1} << 20) == 0) {
    bytes_max >>= 20;
    unit = " MiB";
  } else if (bytes_max % (std::size_t{1} << 10) == 0) {
    bytes_max >>= 10;
    unit = " KiB";
  }
  return Status(code, name + ": more than " + std::to_string(bytes_max) + unit);
}

template <typename Content>
Result<Content> read_to_end(int fd, std::size_t bytes_max, const std::string& name, Code too_large,
                            From from) {
  struct stat about {};
  std::size_t first = kFirstReadBytes;
  if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0) {
    first = static_cast<std::size_t>(about.st_size);
  }
  // One byte more, so that the end is seen without growing.
  Content content(std::min(first, bytes_max) + 1, typename Content::value_type{});
  for (std::size_t bytes = 0;;) {
    if (bytes > bytes_max) return has_more(name, bytes_max, too_large);
    if (bytes == content.size()) content.resize(std::min(2 * bytes, bytes_max + 1));
    void* const at = content.data() + bytes;
    const std::size_t room = content.size() - bytes;
    const ssize_t got = from == From::kPosition ? read(fd, at, room)
                                                : pread(fd, at, room, static_cast<off_t>(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, name);
    if (got == 0) {
      content.resize(bytes);
      return content;
    }
    bytes += static_cast<std::size_t>(got);
  }
}

// Fills the temporary file `draft` and gives it its name.
Status fill_and_rename(int folder, int file, const std::string& draft, const std::string& name,
                       const std::string& path, ByteView content, const ReplaceOptions& options) {
  struct stat around {};
  if (options.owner_of_folder && geteuid() == 0 &&
      (fstatat(folder, folder_of(name).c_str(), &around, 0) != 0 ||
       fchown(file, around.st_uid, around.st_gid) != 0)) {
    return Status::from_errno(errno, path);
  }
  GPURUN_RETURN_IF_ERROR(write_whole(file, content, path));
  if ((options.durability != Durability::kNone && fsync(file) != 0) ||
      renameat(folder, draft.c_str(), folder, name.c_str()) != 0) {
    return Status::from_errno(errno, path);
  }
  return {};
}

bool exists(const std::string& path) {
  struct stat about {};
  return stat(path.c_str(), &about) == 0;
}

}  // namespace

Result<std::string> read_text(int fd, std::size_t bytes_max, const std::string& name,
                              Code too_large) {
  return read_to_end<std::string>(fd, bytes_max, name, too_large, From::kPosition);
}

Result<Bytes> read_bytes(int fd, std::size_t bytes_max, const std::string& name, Code too_large) {
  return read_to_end<Bytes>(fd, bytes_max, name, too_large, From::kPosition);
}

Result<std::string> read_text_from_start(int fd, std::size_t bytes_max, const std::string& name,
                                         Code too_large) {
  return read_to_end<std::string>(fd, bytes_max, name, too_large, From::kBeginning);
}

Status read_part(int fd, MutableBytes bytes, std::uint64_t offset, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t got = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, name);
    if (got == 0) return Status(Code::kUnavailable, name + " ends too early");
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<std::string> read_text_file(const std::string& path, std::size_t bytes_max, Code too_large) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat about {};
  if (!file.valid() || fstat(file.get(), &about) != 0) return Status::from_errno(errno, path);
  if (!S_ISREG(about.st_mode)) return Status(Code::kInvalidArgument, path + " is no file");
  if (static_cast<std::uint64_t>(about.st_size) > bytes_max) {
    return has_more(path, bytes_max, too_large);
  }
  return read_text(file.get(), bytes_max, path, too_large);
}

Status write_whole(int fd, ByteView bytes, const std::string& name, std::size_t* written) {
  std::size_t done = 0;
  Status status;
  while (done < bytes.size() && status.ok()) {
    const ssize_t count = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (count > 0) done += static_cast<std::size_t>(count);
    if (count == 0) status = Status(Code::kUnavailable, name + ": nothing more can be written");
    if (count < 0 && errno != EINTR) status = Status::from_errno(errno, name);
  }
  if (written != nullptr) *written = done;
  return status;
}

Status replace_file_in(int folder, const std::string& name, const std::string& path,
                       ByteView content, const ReplaceOptions& options) {
  const Result<std::string> digits = random_digits();
  if (!digits.ok()) return digits.status();
  const std::string draft = name + ".new-" + *digits;
  const UniqueFd file(openat(folder, draft.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, options.mode));
  if (!file.valid()) return Status::from_errno(errno, path);
  const Status filled = fill_and_rename(folder, file.get(), draft, name, path, content, options);
  if (!filled.ok()) {
    unlinkat(folder, draft.c_str(), 0);
    return filled;
  }
  if (options.durability == Durability::kContentAndName) {
    const UniqueFd around(
        openat(folder, folder_of(name).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (around.valid()) fsync(around.get());  // The file is in its place even if this fails.
  }
  return {};
}

Status replace_file(const std::string& path, ByteView content, const ReplaceOptions& options) {
  return replace_file_in(AT_FDCWD, path, path, content, options);
}

Status make_folders(const std::string& path, mode_t mode, std::size_t missing_max) {
  std::size_t end = path.size();  // Of the last folder that exists.
  for (std::size_t missing = 0; end != 0 && !exists(path.substr(0, end)); ++missing) {
    if (missing == missing_max) return Status::from_errno(ENOENT, path);
    const std::size_t slash = path.rfind('/', end - 1);
    end = slash == std::string::npos ? 0 : slash;
  }
  while (end != path.size()) {
    end = std::min(path.find('/', end + 1), path.size());
    const std::string folder = path.substr(0, end);
    // Another process may have made it just now.
    if (mkdir(folder.c_str(), mode) != 0 && errno != EEXIST) {
      return Status::from_errno(errno, folder);
    }
  }
  return {};
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<std::string> random_digits() {
  std::uint8_t noise[8];
  GPURUN_RETURN_IF_ERROR(fill_random(mutable_bytes(noise, sizeof noise)));
  return hex_of(bytes_of(noise));
}

}  // namespace gpurun
