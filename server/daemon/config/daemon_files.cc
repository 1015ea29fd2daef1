// Files of gpurund: unset paths get this machine's defaults. Explicit paths must be valid.
#include "server/daemon/config/daemon_files.h"

#include <errno.h>
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "base/unique_fd.h"
#include "base/user_folders.h"
#include "protocol/auth/run_secret.h"
#include "protocol/auth/secret_text.h"
#include "transport/sockets/address.h"

namespace gpurun::server {
namespace {

// The bound in bytes of an audit log without a setting. One older file is kept.
constexpr std::uint64_t kOwnAuditBytesMax = std::uint64_t{64} << 20;

// Empty: this server has no users with tokens.
std::string token_file_of(const Config& config) {
  const std::string path = config.tokens_given ? config.tokens : protocol::default_token_file();
  return path == "none" ? std::string() : path;
}

}  // namespace

Result<Bytes> read_secret(const Config& config) {
  if (config.secret_fd >= 0) {
    const UniqueFd fd(config.secret_fd);
    return protocol::read_secret_bytes(fd.get(), "--secret-fd");
  }
  if (config.secret_file.empty()) return Bytes();
  const UniqueFd fd(open(config.secret_file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) {
    const bool shown = !protocol::may_be_secret(config.secret_file);
    return Status::from_errno(
        errno, shown ? config.secret_file
                     : "secret-file names a file, and what was given is not shown, for it may be "
                       "the secret itself");
  }
  struct stat about;
  if (fstat(fd.get(), &about) != 0) return Status::from_errno(errno, config.secret_file);
  // On SIGHUP the daemon's loop reads it again, and must not wait for the writer of a FIFO.
  if (!S_ISREG(about.st_mode)) {
    return Status(Code::kRefused, config.secret_file +
                                      ": secret-file names a regular file; --secret-fd reads the "
                                      "secret from a pipe");
  }
  if (about.st_uid != geteuid() && about.st_uid != 0) {
    return Status(Code::kRefused, config.secret_file + " belongs to user " +
                                      std::to_string(about.st_uid) +
                                      ". That user would be this server's operator; chown it");
  }
  if ((about.st_mode & 077) != 0) {
    return Status(Code::kRefused, config.secret_file + ": others may read it; make it mode 0600");
  }
  return protocol::read_secret_bytes(fd.get(), config.secret_file);
}

Result<std::unique_ptr<RunSecret>> make_run_secret(const transport::Listener& listener) {
  const auto advised = [](Code code, const std::string& why) {
    return Status(code, "no secret can be made for this run: " + why +
                            "; name a file with a secret by --secret-file");
  };
  const std::string folder = protocol::run_secret_folder();
  if (folder.empty()) return advised(Code::kUnavailable, "XDG_RUNTIME_DIR names no folder for it");
  const Result<transport::sockets::HostPort> place =
      transport::sockets::parse_host_port(listener.address(), 0);
  if (!place.ok()) return place.status();
  Result<std::unique_ptr<RunSecret>> secret = RunSecret::create(folder, place->port);
  if (!secret.ok()) return advised(secret.status().code(), secret.status().message());
  return secret;
}

Result<SharedIdentity> this_servers_identity(const Config& config) {
  bool made = false;
  auto identity = open_identity({config.tls_certificate, config.tls_key, state_folder()}, &made);
  if (!identity.ok()) {
    return Status(identity.status().code(), "TLS: " + identity.status().message());
  }
  const std::string name = transport::tls::to_string((*identity)->fingerprint());
  if (made) {
    spdlog::warn(
        "made a key for this server in {}; its fingerprint, by which clients know it, is {}",
        state_folder(), name);
  } else {
    spdlog::info("the fingerprint of this server's key is {}", name);
  }
  return identity;
}

Result<SharedIdentity> identity_for(const transport::Listener& listener, const Config& config) {
  const Result<transport::sockets::SocketAddress> address =
      transport::sockets::local_address(listener.fd());
  if (!address.ok()) return address.status();
  const bool told = config.tls || !config.tls_certificate.empty() || !config.tls_key.empty();
  if (address->is_loopback() && !told) return SharedIdentity();
  auto identity = this_servers_identity(config);
  if (identity.ok() || told || !config.insecure_plaintext) return identity;
  spdlog::warn("no client can speak {}", identity.status().message());
  return SharedIdentity();
}

void leave_fingerprint_for(const Config& config, const transport::tls::Identity* identity) {
  const std::string path = token_file_of(config);
  if (path.empty()) return;
  const Status left = leave_fingerprint(path, identity);
  if (!left.ok()) spdlog::warn("gpuctl token cannot show the fingerprint: {}", left.message());
}

Result<std::shared_ptr<TokenStore>> open_tokens(const Config& config,
                                                const transport::tls::Identity* identity) {
  const std::string path = token_file_of(config);
  if (path.empty()) return std::shared_ptr<TokenStore>();
  const auto read = protocol::read_token_file(path, protocol::TokenFileUse::kServer);
  if (!read.ok()) return Status(read.status().code(), "tokens: " + read.status().message());
  leave_fingerprint_for(config, identity);
  Result<UniqueFd> in_use = protocol::note_token_file_in_use(path);
  if (!in_use.ok()) {
    spdlog::warn("gpuctl token does not see that these tokens are used: {}",
                 in_use.status().message());
  }
  return std::make_shared<TokenStore>(path, in_use.ok() ? *std::move(in_use) : UniqueFd());
}

Result<std::unique_ptr<AuditLog>> open_audit(const Config& config) {
  const auto named = [](const Status& status) {
    return Status(status.code(), "audit: " + status.message());
  };
  const bool told = !config.audit.empty();
  if (told || access("/dev/log", W_OK) == 0) {
    auto log = AuditLog::open(told ? config.audit : "syslog");
    if (!log.ok()) return named(log.status());
    return log;
  }
  const std::string folder = state_folder();
  if (!folder.empty()) mkdir(folder.c_str(), 0700);  // open() reports a failure.
  auto own = AuditLog::open(folder.empty() ? "none" : folder + "/audit.log", kOwnAuditBytesMax);
  if (own.ok() && !folder.empty()) spdlog::info("the audit log is {}/audit.log", folder);
  if (own.ok()) return own;
  spdlog::warn("no audit log is kept: {}", own.status().message());
  return AuditLog::open("none");
}

}  // namespace gpurun::server
