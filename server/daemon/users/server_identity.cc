// Server identity: of several daemons that start at once one makes the files, and the others read
// them.
#include "server/daemon/users/server_identity.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/deadline.h"
#include "base/file_io.h"
#include "base/lock_file.h"
#include "base/unique_fd.h"
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
  return read_text(fd.get(), kFileBytesMax, path);
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

Result<UniqueFd> lock_folder(const std::string& folder) {
  static_cast<void>(make_folders(folder_of(folder), 0755));  // open() reports what is missing.
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
  GPURUN_RETURN_IF_ERROR(replace_file(key_path, *key, {0600, Durability::kContent}));
  GPURUN_RETURN_IF_ERROR(
      replace_file(certificate_path, *certificate, {0644, Durability::kContent}));
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
  return replace_file(path, tls::to_string(identity->fingerprint()) + "\n",
                      {0644, Durability::kContent});
}

}  // namespace gpurun::server
