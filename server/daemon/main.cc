// gpurund: lends this machine's GPUs. Settings, secret and signals; daemon.h does the rest.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/planted_flaw.h"
#include "base/standard_descriptors.h"
#include "base/unique_fd.h"
#include "base/user_folders.h"
#include "protocol/limits.h"
#include "protocol/run_secret.h"
#include "server/daemon/audit.h"
#include "server/daemon/config.h"
#include "server/daemon/daemon.h"
#include "server/daemon/daemon_notify.h"
#include "server/daemon/driver_path.h"
#include "server/daemon/run_secret.h"
#include "server/daemon/server_identity.h"
#include "server/daemon/spawn.h"
#include "server/daemon/tokens.h"
#include "server/images/image_folder.h"
#include "transport/tcp/address.h"
#include "transport/transport.h"

namespace gpurun::server {
namespace {

// A longer file is no secret but a mistake.
constexpr std::size_t kSecretBytesMax = 4096;
constexpr std::size_t kSecretBytesMin = 16;
// A real driver with many GPUs takes seconds for its cuInit.
constexpr std::chrono::seconds kCountDeadline{60};

// Words or settings that mean nothing: starting again does not help, and service managers need not.
constexpr int kExitWrongUsage = 2;

Daemon* serving = nullptr;  // For the signal handler; set before the handler is.

extern "C" void stop_serving(int) { serving->stop(); }

struct CommandLine {
  std::string config_file;
  std::string worker_uids;
  bool verbose = false;
  bool fingerprint = false;
};

void add_options(CLI::App& app, Config& config, CommandLine& words) {
  app.add_option("--config", words.config_file,
                 "TOML file with these settings; options override it");
  app.add_option("--listen", config.listen, "address and port to listen on: HOST[:PORT]")
      ->capture_default_str();
  app.add_option("--driver", config.driver,
                 "real, emulated, or a CUDA driver library by absolute path")
      ->capture_default_str();
  app.add_option("--worker", config.worker, "gpurun-worker; beside this program by default");
  auto* file = app.add_option("--secret-file", config.secret_file,
                              "file (mode 0600) with the secret that users must know");
  app.add_option("--secret-fd", config.secret_fd, "descriptor to read the secret from")
      ->excludes(file);
  app.add_option("--ready-fd", config.ready_fd,
                 "descriptor to write the address to, once this server listens");
  app.add_flag("--insecure-plaintext", config.insecure_plaintext,
               "let clients beyond this machine do without TLS, if they say so, too");
  app.add_flag("--tls", config.tls, "speak TLS only, also within this machine");
  app.add_option("--tls-certificate", config.tls_certificate,
                 "PEM file with this server's certificate; else it makes one");
  app.add_option("--tls-key", config.tls_key, "PEM file (mode 0600) with its private key");
  app.add_flag("--fingerprint", words.fingerprint,
               "print the fingerprint of this server's key, by which clients know it, and end");
  app.add_option("--tokens", config.tokens, "file of users' tokens (gpuctl token); or none");
  app.add_option("--audit", config.audit,
                 "who did what, a line each: syslog, none, or a file by absolute path")
      ->capture_default_str();
  app.add_option("--worker-uids", words.worker_uids,
                 "users that workers run as when this is root: FIRST-LAST, or none");
  app.add_option("--confinement", config.confinement,
                 "full, or none: workers can do what this daemon's user can")
      ->capture_default_str();
  app.add_option("--worker-memory", config.worker_memory,
                 "main memory that one worker may have, such as 16GiB; 0: by its GPUs")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--spare-workers", config.spare_workers,
                 "workers that are started before there is a lease for them; 1 by default");
  app.add_option("--spare-level", config.spare_level,
                 "what they have done: mapped (the driver), or initialised (after cuInit)")
      ->capture_default_str();
  app.add_option("--cache", config.cache,
                 "folder for code images, so that none is sent twice; or none");
  app.add_option("--cache-bytes", config.cache_bytes, "bytes that they may take, such as 4GiB")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--log", config.log, "error, warning, info, debug or trace; else GPURUN_LOG");
  app.add_flag("--for-one-run", config.for_one_run)->group("");  // gpurun's, for its private one.
  app.add_flag("--verbose", words.verbose, "log every connection: --log info");
  app.set_version_flag("--version", std::string("gpurund ") + protocol::kRelease);
}

// The file's settings first, so that parsing the command line leaves them where it says nothing.
Status read_config_file_of(int argc, const char* const* argv, Config* config) {
  for (int index = 1; index < argc; ++index) {
    const std::string_view word = argv[index];
    if (word == "--config" && index + 1 < argc) return read_config_file(argv[index + 1], config);
    if (word.starts_with("--config=")) {
      return read_config_file(std::string(word.substr(std::strlen("--config="))), config);
    }
  }
  return Status();
}

// `origin`: what said so, for the message.
Status set_log_level(const std::string& name, const char* origin) {
  log::Level level = log::Level::kWarning;
  if (!log::parse_level(name.c_str(), &level)) {
    return Status(Code::kInvalidArgument, std::string(origin) + " is '" + name +
                                              "'; it may be error, warning, info, debug or trace");
  }
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::err, spdlog::level::warn,
                                                   spdlog::level::info, spdlog::level::debug,
                                                   spdlog::level::trace};
  spdlog::set_level(kLevels[static_cast<int>(level)]);
  // Workers log as their daemon does.
  setenv("GPURUN_LOG", name.c_str(), 1);
  return Status();
}

Result<Bytes> read_secret_from(int fd, const std::string& name) {
  Bytes secret(kSecretBytesMax + 1);
  std::size_t bytes = 0;
  while (bytes < secret.size()) {
    const ssize_t got = read(fd, secret.data() + bytes, secret.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, name);
    if (got == 0) break;
    bytes += static_cast<std::size_t>(got);
  }
  // An editor's line end is not part of it.
  while (bytes > 0 &&
         (secret[bytes - 1] == std::byte{'\n'} || secret[bytes - 1] == std::byte{'\r'})) {
    --bytes;
  }
  secret.resize(bytes);
  if (bytes < kSecretBytesMin || bytes > kSecretBytesMax) {
    return Status(Code::kInvalidArgument, name + ": a secret has " +
                                              std::to_string(kSecretBytesMin) + " to " +
                                              std::to_string(kSecretBytesMax) + " bytes");
  }
  return secret;
}

Result<Bytes> read_secret(const Config& config) {
  if (config.secret_fd >= 0) {
    const UniqueFd fd(config.secret_fd);
    return read_secret_from(fd.get(), "--secret-fd");
  }
  if (config.secret_file.empty()) return Bytes();
  const UniqueFd fd(open(config.secret_file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Status::from_errno(errno, config.secret_file);
  struct stat about;
  if (fstat(fd.get(), &about) != 0) return Status::from_errno(errno, config.secret_file);
  if ((about.st_mode & 077) != 0) {
    return Status(Code::kRefused, config.secret_file + ": others may read it; make it mode 0600");
  }
  return read_secret_from(fd.get(), config.secret_file);
}

Result<std::shared_ptr<const transport::tls::Identity>> this_servers_identity(
    const Config& config) {
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

// Who we are to clients that speak TLS; empty: there is no need within this machine.
Result<std::shared_ptr<const transport::tls::Identity>> identity_for(
    const transport::Listener& listener, const Config& config) {
  const Result<transport::tcp::SocketAddress> address =
      transport::tcp::local_address(listener.fd());
  if (!address.ok()) return address.status();
  const bool told = config.tls || !config.tls_certificate.empty() || !config.tls_key.empty();
  if (address->is_loopback() && !told) return std::shared_ptr<const transport::tls::Identity>();
  auto identity = this_servers_identity(config);
  if (identity.ok() || told || !config.insecure_plaintext) return identity;
  spdlog::warn("no client can speak {}", identity.status().message());
  return std::shared_ptr<const transport::tls::Identity>();
}

// Beside this program, or where packages put what nobody starts by hand.
std::string default_worker() {
  const std::string beside = own_folder() + "gpurun-worker";
  if (access(beside.c_str(), X_OK) == 0) return beside;
  return own_folder() + "../libexec/gpurun/gpurun-worker";
}

Status announce(const std::string& address, int fd) {
  if (fd < 0) return Status();
  const UniqueFd ready(fd);
  const std::string line = address + "\n";
  if (write(ready.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return Status::from_errno(errno, "--ready-fd");
  }
  return Status();
}

// Connections, and descriptors that workers share (server/exchange/), may come to more than the
// 1,024 that a shell allows a process before it says that it needs more.
void raise_descriptor_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void handle_signals() {
  signal(SIGPIPE, SIG_IGN);
  struct sigaction action = {};
  action.sa_handler = stop_serving;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

// Root lends each worker a user of its own, unless told otherwise: strangers' code never runs as
// root by accident. Whoever else runs this has only one user to give; empty then. All that can fail
// fails here, and not when the first client attaches.
Result<std::shared_ptr<WorkerUids>> usable_uids(const Config& config) {
  if (config.worker_uids.none()) return std::shared_ptr<WorkerUids>();
  if (geteuid() != 0) {
    if (!config.worker_uids_told) return std::shared_ptr<WorkerUids>();
    return Status(Code::kRefused, "worker-uids: only root can give workers users of their own");
  }
  const auto advised = [](const Status& status) {
    return Status(status.code(), "workers cannot have users of their own: " + status.message() +
                                     "; name others by worker-uids, or let workers run as root by "
                                     "worker-uids = \"none\" (--worker-uids none)");
  };
  if (const Status status = can_become(config.worker_uids); !status.ok()) return advised(status);
  Result<std::shared_ptr<WorkerUids>> uids = WorkerUids::open(config.worker_uids);
  if (!uids.ok()) return advised(uids.status());
  return uids;
}

// For a server that was told no secret: one that this machine's other users cannot read.
Result<std::unique_ptr<RunSecret>> make_run_secret(const transport::Listener& listener) {
  const auto advised = [](Code code, const std::string& why) {
    return Status(code, "no secret can be made for this run: " + why +
                            "; name a file with a secret by --secret-file");
  };
  const std::string folder = protocol::run_secret_folder();
  if (folder.empty()) return advised(Code::kUnavailable, "XDG_RUNTIME_DIR names no folder for it");
  const Result<transport::tcp::HostPort> place =
      transport::tcp::parse_host_port(listener.address(), 0);
  if (!place.ok()) return place.status();
  Result<std::unique_ptr<RunSecret>> secret = RunSecret::create(folder, place->port);
  if (!secret.ok()) return advised(secret.status().code(), secret.status().message());
  return secret;
}

// Where workers keep images, each user's in a folder of its own; empty: nowhere. All who know the
// secret count as one user, the operator.
Result<std::string> images_folder(const Config& config) {
  if (config.cache_bytes == 0) return std::string();
  if (config.cache_told && (config.cache.empty() || config.cache == "none")) return std::string();
  const std::string cache = config.cache_told ? config.cache : default_cache();
  if (cache.empty()) return std::string();
  const Result<std::unique_ptr<ImageFolder>> folder =
      ImageFolder::open(cache + "/images/" + images_of(User()), config.cache_bytes);
  if (folder.ok()) return cache + "/images";
  if (config.cache_told)
    return Status(folder.status().code(), "cache: " + folder.status().message());
  spdlog::warn("no code image is kept on disk: {}", folder.status().message());
  return std::string();
}

// Users' tokens; empty: there are none. A file that is there must be good; it may come later.
Result<std::shared_ptr<TokenStore>> open_tokens(const Config& config,
                                                const transport::tls::Identity* identity) {
  const std::string path = config.tokens_told ? config.tokens : protocol::default_token_file();
  if (path.empty() || path == "none") return std::shared_ptr<TokenStore>();
  if (path[0] != '/') {
    return Status(Code::kInvalidArgument, "tokens: '" + path + "' is no absolute path");
  }
  const auto read = protocol::read_token_file(path);
  if (!read.ok()) return Status(read.status().code(), "tokens: " + read.status().message());
  const Status left = leave_fingerprint(path, identity);
  if (!left.ok()) spdlog::warn("gpuctl token cannot tell the fingerprint: {}", left.message());
  return std::make_shared<TokenStore>(path);
}

// The bytes of an audit log that nobody asked for; what is older is kept once.
constexpr std::uint64_t kOwnAuditBytesMax = std::uint64_t{64} << 20;

// Who is told nothing takes the system's log, and where there is none (a container) a file of its
// own, so that there is a record; without a folder for it none is kept.
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
  if (!folder.empty()) mkdir(folder.c_str(), 0700);  // What is wrong with it, opening says.
  auto own = AuditLog::open(folder.empty() ? "none" : folder + "/audit.log", kOwnAuditBytesMax);
  if (own.ok() && !folder.empty()) spdlog::info("the audit log is {}/audit.log", folder);
  if (own.ok()) return own;
  spdlog::warn("no audit log is kept: {}", own.status().message());
  return AuditLog::open("none");
}

Result<ProcessSettings> worker_settings(const Config& config) {
  const Result<std::string> driver = find_driver(config.driver);
  if (!driver.ok()) return driver.status();
  Result<std::shared_ptr<WorkerUids>> uids = usable_uids(config);
  if (!uids.ok()) return uids.status();
  Result<std::string> images = images_folder(config);
  if (!images.ok()) return images.status();
  if (config.confinement != "full" && config.confinement != "none") {
    return Status(Code::kInvalidArgument,
                  "confinement is '" + config.confinement + "'; it may be full or none");
  }
  ProcessSettings settings;
  settings.confined = config.confinement == "full";
  settings.worker_memory_bytes = config.worker_memory;
  settings.images_path = *std::move(images);
  settings.images_bytes = config.cache_bytes;
  settings.worker_path = config.worker.empty() ? default_worker() : config.worker;
  settings.driver_path = *driver;
  settings.uids = *std::move(uids);
  return settings;
}

Result<SpareOptions> spare_options(const Config& config) {
  SpareOptions options;
  if (config.spare_workers > SpareOptions::kCountMax) {
    return Status(Code::kInvalidArgument,
                  "spare-workers is " + std::to_string(config.spare_workers) + "; it may be 0 to " +
                      std::to_string(SpareOptions::kCountMax));
  }
  if (config.spare_level != "mapped" && config.spare_level != "initialised") {
    return Status(Code::kInvalidArgument,
                  "spare-level is '" + config.spare_level + "'; it may be mapped or initialised");
  }
  // Of one run the first lease comes at once, and mostly it is the last.
  const bool wanted = config.spare_workers_told || !config.for_one_run;
  options.count = wanted ? config.spare_workers : 0;
  if (config.spare_level == "initialised") options.level = SpareLevel::kInitialised;
  return options;
}

// Says what keeps strangers' code in its worker: here, and to whom it concerns (gpuctl list).
void say_confinement(const ProcessSettings& settings, const ServerFacts& facts) {
  const std::string& parts = facts.confinement;
  spdlog::info("workers are confined by: {}", parts.empty() ? "nothing" : parts);
  const std::uint64_t memory = worker_memory(settings, {0});
  if (memory != 0) spdlog::info("a worker of one GPU may have {} MiB of memory", memory >> 20);
  if (settings.confined && settings.uids == nullptr &&
      parts.find("user-namespace") == std::string::npos) {
    spdlog::warn(
        "workers run as this daemon's user, for the kernel gives them no namespace of "
        "their own; what else confines them: {}",
        parts.empty() ? "nothing" : parts);
  }
}

// What is the same for every worker, and known once the driver has been asked.
Status add_facts(const ServerFacts& facts, ProcessSettings* settings) {
  if (facts.devices.empty() || !facts.devices.front().emulated) return {};
  Result<std::shared_ptr<const DeviceLedgers>> ledgers =
      DeviceLedgers::create(facts.devices.size());
  if (!ledgers.ok()) return ledgers.status();
  settings->ledgers = *std::move(ledgers);
  for (const DeviceFacts& device : facts.devices) {
    settings->device_bytes.push_back(device.memory_bytes);
  }
  return {};
}

Status serve(const Config& config) {
  Result<Bytes> secret = read_secret(config);
  if (!secret.ok()) return secret.status();
  const Result<transport::tcp::HostPort> place =
      transport::tcp::parse_host_port(config.listen, limits::kDefaultPort);
  if (!place.ok()) return place.status();
  Result<std::unique_ptr<transport::Listener>> listener =
      transport::listen("tcp://" + transport::tcp::format_host_port(*place));
  if (!listener.ok()) return listener.status();
  auto identity = identity_for(**listener, config);
  if (!identity.ok()) return identity.status();
  Result<ProcessSettings> settings = worker_settings(config);
  if (!settings.ok()) return settings.status();
  settings->encrypted = *identity != nullptr;
  const Result<SpareOptions> spares = spare_options(config);
  if (!spares.ok()) return spares.status();
  if (settings->confined) {
    Result<std::shared_ptr<WorkerGroups>> groups = WorkerGroups::create();
    if (groups.ok()) settings->groups = *std::move(groups);
    if (!groups.ok()) spdlog::info("no control groups: {}", groups.status().message());
  }
  Result<ServerFacts> facts = find_devices(*settings, Deadline::in(kCountDeadline));
  if (!facts.ok()) return facts.status();
  GPURUN_RETURN_IF_ERROR(add_facts(*facts, &*settings));
  say_confinement(*settings, *facts);

  Result<std::shared_ptr<TokenStore>> tokens = open_tokens(config, identity->get());
  if (!tokens.ok()) return tokens.status();
  Result<std::unique_ptr<AuditLog>> audit = open_audit(config);
  if (!audit.ok()) return audit.status();
  std::unique_ptr<RunSecret> run_secret;  // Its file goes with it.
  if (secret->empty()) {
    Result<std::unique_ptr<RunSecret>> made = make_run_secret(**listener);
    if (!made.ok()) return made.status();
    run_secret = *std::move(made);
    *secret = run_secret->bytes();
  }
  DaemonOptions options;
  options.secret = *std::move(secret);
  options.tokens = *std::move(tokens);
  options.user_limits = config.user_limits;
  options.audit = *std::move(audit);
  const std::shared_ptr<AuditLog> audit_log = options.audit;
  options.identity = *std::move(identity);
  options.tls_only = config.tls;
  options.insecure_plaintext = config.insecure_plaintext;
  options.devices = static_cast<unsigned>(facts->devices.size());
  options.device_facts = std::move(facts->devices);
  options.confinement = facts->confinement;
  options.for_one_run = config.for_one_run;
  options.spares = *spares;
  const unsigned count = options.devices;
  const std::unique_ptr<WorkerSpawner> spawner = make_process_spawner(*settings);
  Result<std::unique_ptr<Daemon>> daemon =
      Daemon::create(*std::move(listener), std::move(options), *spawner);
  if (!daemon.ok()) return daemon.status();
  serving = daemon->get();
  handle_signals();
  const std::string what =
      std::to_string(count) + " GPUs of " + settings->driver_path + " on " + serving->address();
  spdlog::info("{}", what);
  GPURUN_RETURN_IF_ERROR(announce(serving->address(), config.ready_fd));
  notify_service_manager("READY=1\nSTATUS=" + what);
  planted_flaw("daemon");
  audit_log->write("gpurund.started", {{"address", serving->address()}});
  const Status status = serving->run();
  audit_log->write("gpurund.ended", {{"address", serving->address()}});
  notify_service_manager("STOPPING=1");
  return status;
}

Status run_daemon(Config config, const CommandLine& words, bool log_told) {
  if (words.verbose) config.log = "info";
  const char* variable = getenv("GPURUN_LOG");
  const char* origin = log_told ? "--log" : "log";  // An option, or a line of the file.
  if (!log_told && !words.verbose && variable != nullptr && *variable != '\0') {
    config.log = variable;
    origin = "GPURUN_LOG";
  }
  GPURUN_RETURN_IF_ERROR(set_log_level(config.log, origin));
  if (!words.worker_uids.empty()) {
    const Result<UidRange> range = parse_uid_range(words.worker_uids);
    if (!range.ok())
      return Status(range.status().code(), "--worker-uids: " + range.status().message());
    config.worker_uids = *range;
    config.worker_uids_told = true;
  }
  if (words.fingerprint) {
    const auto identity = this_servers_identity(config);
    if (!identity.ok()) return identity.status();
    std::printf("%s\n", transport::tls::to_string((*identity)->fingerprint()).c_str());
    return Status();
  }
  return serve(config);
}

// The exit status.
int run_gpurund(int argc, char** argv) {
  Config config;
  CommandLine words;
  Status status = read_config_file_of(argc, argv, &config);
  if (status.ok()) {
    CLI::App app("gpurund lends this machine's GPUs to programs on other machines.", "gpurund");
    add_options(app, config, words);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version.
      std::fprintf(stderr, "gpurund: %s; gpurund --help shows what there is\n", error.what());
      return kExitWrongUsage;
    }
    config.cache_told = config.cache_told || app.count("--cache") > 0;
    config.spare_workers_told = config.spare_workers_told || app.count("--spare-workers") > 0;
    config.tokens_told = config.tokens_told || app.count("--tokens") > 0;
    status = run_daemon(std::move(config), words, app.count("--log") > 0);
  }
  if (status.ok()) return 0;
  spdlog::error("{}", status.message());
  return status.code() == Code::kInvalidArgument ? kExitWrongUsage : 1;
}

}  // namespace
}  // namespace gpurun::server

int main(int argc, char** argv) {
  gpurun::keep_standard_descriptors(0);  // Workers have them, too.
  gpurun::server::raise_descriptor_limit();
  spdlog::set_default_logger(spdlog::stderr_color_mt("gpurund"));
  return gpurun::server::run_gpurund(argc, argv);
}
