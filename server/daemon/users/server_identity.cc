// Server identity: of several daemons that start at once one makes the files, and the others read
// them.
#include "server/daemon/users/server_identity.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/deadline.h"
#include "base/lock_file.h"
#include "base/unique_fd.h"
#include "base/write_whole.h"
#include "protocol/auth/token_file.h"

namespace gpurun::server {
namespace {

namespace tls = transport::tls;

constexpr const char* kCertificateName = "/server-certificate.pem";
constexpr const char* kKeyName = "/server-key.pem";
constexpr const char* kLockName = "server.lock";
constexpr std::chrono::seconds kLockDeadline{10};
constexpr std::size_t kFileBytesMax = std::size_t{256} << 10;

// `is_secret`: only its owner, this process's user or root, may be able to read it.
Result<std::string> read_file(const std::string& path, bool is_secret) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) return Status::from_errno(errno, path);
  struct stat about = {};
  if (fstat(fd.get(), &about) != 0) return Status::from_errno(errno, path);
  if (!S_ISREG(about.st_mode)) return Status(Code::kInvalidArgument, path + " is no file");
  if (is_secret && (about.st_mode & 077) != 0) {
    return Status(Code::kRefused, path + ": others may read this key; make it mode 0600");
  }
  if (is_secret && about.st_uid != geteuid() && about.st_uid != 0) {
    return Status(Code::kRefused, path + " is another user's");
  }
  std::string text(kFileBytesMax + 1, '\0');
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + bytes, text.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, path);
    if (got == 0) break;
    bytes += static_cast<std::size_t>(got);
  }
  if (bytes > kFileBytesMax) return Status(Code::kInvalidArgument, path + " has over 256 KiB");
  text.resize(bytes);
  return text;
}

Result<std::shared_ptr<const tls::Identity>> read_identity(const std::string& certificate_path,
                                                           const std::string& key_path) {
  const Result<std::string> certificate = read_file(certificate_path, false);
  if (!certificate.ok()) return certificate.status();
  const Result<std::string> key = read_file(key_path, true);
  if (!key.ok()) return key.status();
  auto identity = tls::Identity::from_pem(*certificate, *key);
  if (identity.ok()) return identity;
  return Status(identity.status().code(),
                certificate_path + ", " + key_path + ": " + identity.status().message());
}

// Written under another name and renamed, so that no reader sees half of it.
Status write_file(const std::string& path, const std::string& text, mode_t mode) {
  const std::string draft = path + "." + std::to_string(getpid());
  unlink(draft.c_str());
  const UniqueFd fd(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!fd.valid()) return Status::from_errno(errno, path);
  Status written = write_whole(fd.get(), text, path);
  if (written.ok() && (fsync(fd.get()) != 0 || rename(draft.c_str(), path.c_str()) != 0)) {
    written = Status::from_errno(errno, path);
  }
  if (!written.ok()) unlink(draft.c_str());
  return written;
}

Result<UniqueFd> lock_folder(const std::string& folder) {
  for (std::size_t at = folder.find('/', 1); at != std::string::npos;
       at = folder.find('/', at + 1)) {
    mkdir(folder.substr(0, at).c_str(), 0755);
  }
  mkdir(folder.c_str(), 0700);
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  struct stat about = {};
  if (!fd.valid() || fstat(fd.get(), &about) != 0) return Status::from_errno(errno, folder);
  if (about.st_uid != geteuid() || (about.st_mode & 022) != 0) {
    return Status(Code::kRefused, folder + " is another user's, or others may write it");
  }
  return lock_file(fd.get(), kLockName, folder + "/" + kLockName, Deadline::in(kLockDeadline));
}

std::string own_host() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace

Result<std::shared_ptr<const tls::Identity>> open_identity(const IdentityFiles& files, bool* made) {
  *made = false;
  if (files.certificate.empty() != files.key.empty()) {
    return Status(Code::kInvalidArgument,
                  "tls-certificate and tls-key go together; one of them is missing");
  }
  if (!files.certificate.empty()) return read_identity(files.certificate, files.key);
  if (files.folder.empty()) {
    return Status(Code::kUnavailable,
                  "there is no folder to keep a certificate in; name one of yours by "
                  "tls-certificate and tls-key");
  }
  const Result<UniqueFd> alone = lock_folder(files.folder);
  if (!alone.ok()) return alone.status();
  const std::string certificate_path = files.folder + kCertificateName;
  const std::string key_path = files.folder + kKeyName;
  // The certificate is written last, so a key exists when the certificate exists.
  if (access(certificate_path.c_str(), F_OK) == 0) return read_identity(certificate_path, key_path);
  auto identity = tls::Identity::make(own_host());
  if (!identity.ok()) return identity;
  const Result<std::string> key = (*identity)->key_pem();
  if (!key.ok()) return key.status();
  const Result<std::string> certificate = (*identity)->certificate_pem();
  if (!certificate.ok()) return certificate.status();
  GPURUN_RETURN_IF_ERROR(write_file(key_path, *key, 0600));
  GPURUN_RETURN_IF_ERROR(write_file(certificate_path, *certificate, 0644));
  *made = true;
  return identity;
}

Status leave_fingerprint(const std::string& tokens, const tls::Identity* identity) {
  const std::string path = tokens + protocol::kFingerprintSuffix;
  if (identity == nullptr) {
    if (unlink(path.c_str()) == 0 || errno == ENOENT || errno == ENOTDIR) return {};
    return Status::from_errno(errno, path);
  }
  const Result<UniqueFd> alone = lock_folder(tokens.substr(0, tokens.rfind('/')));
  if (!alone.ok()) return alone.status();
  return write_file(path, tls::to_string(identity->fingerprint()) + "\n", 0644);
}

}  // namespace gpurun::server
