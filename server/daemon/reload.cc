// Reloader: everything that can fail comes first. Then the daemon gets all changes at once.
#include "server/daemon/reload.h"

#include <spdlog/spdlog.h>
#include <stdlib.h>

#include <string_view>
#include <utility>

#include "base/log.h"
#include "server/daemon/config/config_values.h"
#include "server/daemon/config/daemon_files.h"

namespace gpurun::server {
namespace {

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// A renewed certificate may have the key that clients already know.
bool is_same(const SharedIdentity& a, const SharedIdentity& b) {
  if (a == nullptr || b == nullptr) return a == b;
  const Result<std::string> one = a->certificate_pem(), other = b->certificate_pem();
  return one.ok() && other.ok() && *one == *other;
}

}  // namespace

Status choose_log_level(const CommandLine& words, const StartedWith& started, Config* config) {
  if (words.log_given) return {};
  if (words.verbose) {
    config->log = "info";
  } else if (started.log_variable) {
    config->log = *started.log_variable;
    const Status good = check_log(*config);
    if (!good.ok()) return Status(good.code(), "GPURUN_LOG " + good.message());
  }
  return {};
}

void set_log_level(const std::string& name) {
  log::Level level = log::Level::kWarning;
  log::parse_level(name.c_str(), &level);
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::err, spdlog::level::warn,
                                                   spdlog::level::info, spdlog::level::debug,
                                                   spdlog::level::trace};
  spdlog::set_level(kLevels[static_cast<int>(level)]);
  // Workers log at their daemon's level.
  setenv("GPURUN_LOG", name.c_str(), 1);
}

// The next configuration: the changeable settings of `config`. All others stay until a restart.
Config Reloader::next(const Config& config, ConfigChanges* changes) const {
  Config next = running_;
  next.user_limits = config.user_limits;
  next.tls_certificate = config.tls_certificate;
  next.tls_key = config.tls_key;
  next.insecure_plaintext = config.insecure_plaintext;
  next.log = config.log;
  // Keep a secret that was made for this run, because this user's gpurun and gpuctl have found it.
  if (running_.secret_file.empty() == config.secret_file.empty()) {
    next.secret_file = config.secret_file;
  } else {
    std::erase(changes->heeded, "secret-file");
    changes->at_restart.emplace_back("secret-file");
  }
  return next;
}

Result<ConfigChanges> Reloader::adopt_file(Daemon& daemon) {
  Config config;
  CommandLine words;
  const auto over = read_command_line(started_.argc, started_.argv, &config, &words);
  if (!over.ok()) return over.status();
  GPURUN_RETURN_IF_ERROR(choose_log_level(words, started_, &config));
  ConfigChanges changes = changes_between(running_, config);
  Config adopted = next(config, &changes);

  const std::shared_ptr<const LiveSettings> before = daemon.live();
  LiveSettings live = *before;
  live.insecure_plaintext = adopted.insecure_plaintext;
  if (!adopted.secret_file.empty()) {
    Result<Bytes> secret = read_secret(adopted);
    if (!secret.ok()) return secret.status();
    if (*secret != before->secret) changes.heeded.emplace_back("the operator's secret");
    live.secret = *std::move(secret);
  }
  Config strict = adopted;  // So that a mistake in its file does not lose a certificate that
                            // clients know.
  if (before->identity != nullptr) strict.insecure_plaintext = false;
  Result<SharedIdentity> identity = identity_for(daemon.listener(), strict);
  if (!identity.ok()) return identity.status();
  live.identity = *std::move(identity);
  if (!is_same(before->identity, live.identity)) {
    changes.heeded.emplace_back("the server's certificate");
    leave_fingerprint_for(adopted, live.identity.get());
  }

  set_log_level(adopted.log);
  daemon.adopt(std::move(live), adopted.user_limits);
  running_ = std::move(adopted);
  return changes;
}

bool Reloader::reload(Daemon& daemon) {
  const Result<ConfigChanges> changes = adopt_file(daemon);
  if (!changes.ok()) {
    spdlog::error("nothing is changed by SIGHUP: {}", changes.status().message());
    return false;
  }
  const std::string heeded = listed(changes->heeded);
  spdlog::info("the configuration was read again; changed: {}",
               heeded.empty() ? "nothing" : heeded);
  if (!changes->at_restart.empty()) {
    spdlog::warn("the configuration was read again; needs a restart: {}",
                 listed(changes->at_restart));
  }
  return true;
}

}  // namespace gpurun::server
