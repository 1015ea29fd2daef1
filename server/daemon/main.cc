// gpurund: lends this machine's GPUs. What it needs is put together here, and signals end it;
// daemon.h does the rest.
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/planted_flaw.h"
#include "base/standard_descriptors.h"
#include "base/thread_stacks.h"
#include "base/unique_fd.h"
#include "base/write_whole.h"
#include "protocol/limits.h"
#include "protocol/local_address.h"
#include "protocol/secret_text.h"
#include "server/daemon/command_line.h"
#include "server/daemon/daemon.h"
#include "server/daemon/daemon_files.h"
#include "server/daemon/daemon_notify.h"
#include "server/daemon/process_limits.h"
#include "server/daemon/spawn_process.h"
#include "server/daemon/worker_settings.h"
#include "transport/tcp/address.h"
#include "transport/transport.h"

namespace gpurun::server {
namespace {

// A real driver with many GPUs takes seconds for its cuInit.
constexpr std::chrono::seconds kCountDeadline{60};

Daemon* serving = nullptr;  // For the signal handler; set before the handler is.

extern "C" void stop_serving(int) { serving->stop(); }

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

Status announce(const std::string& address, int fd) {
  if (fd < 0) return Status();
  const UniqueFd ready(fd);
  return write_whole(ready.get(), address + "\n", "--ready-fd");
}

void handle_signals() {
  signal(SIGPIPE, SIG_IGN);
  struct sigaction action = {};
  action.sa_handler = stop_serving;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

// Nobody else can have its name, which /proc/net/unix shows to everybody on this machine.
std::shared_ptr<transport::Listener> listen_locally() {
  const Result<protocol::Id> name = protocol::random_array<protocol::Id>();
  Result<std::unique_ptr<transport::Listener>> listener =
      name.ok() ? transport::listen(protocol::local_address(*name))
                : name.status();
  if (listener.ok()) return *std::move(listener);
  spdlog::info("no process shares memory with its worker: {}", listener.status().message());
  return nullptr;
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
  if (!config.tls) options.local = listen_locally();
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

Status run_daemon(Config config, const CommandLine& words) {
  if (config.for_one_run) lift_limits();
  GPURUN_RETURN_IF_ERROR(check_limits());
  if (words.verbose) config.log = "info";
  const char* variable = getenv("GPURUN_LOG");
  const char* origin = words.log_told ? "--log" : "log";  // An option, or a line of the file.
  if (!words.log_told && !words.verbose && variable != nullptr && *variable != '\0') {
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
  const Result<std::optional<int>> over = read_command_line(argc, argv, &config, &words);
  if (over.ok() && over->has_value()) return **over;
  const Status status = over.ok() ? run_daemon(std::move(config), words) : over.status();
  if (status.ok()) return 0;
  spdlog::error("{}", protocol::hide_tokens(status.message()));
  return status.code() == Code::kInvalidArgument ? kExitWrongUsage : 1;
}

}  // namespace
}  // namespace gpurun::server

int main(int argc, char** argv) {
  gpurun::keep_standard_descriptors(0);  // Workers have them, too.
  gpurun::server::raise_limits();
  gpurun::server::keep_memory_private();
  spdlog::set_default_logger(spdlog::stderr_color_mt("gpurund"));
  return gpurun::with_ordinary_stacks(&gpurun::server::run_gpurund, argc, argv);
}
