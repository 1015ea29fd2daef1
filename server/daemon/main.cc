// gpurund: lends this machine's GPUs. This file puts its parts together, and daemon.h does the
// rest.
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/file_io.h"
#include "base/injected_fault.h"
#include "base/random.h"
#include "base/standard_descriptors.h"
#include "base/thread_stacks.h"
#include "base/unique_fd.h"
#include "protocol/auth/secret_text.h"
#include "protocol/control/local_address.h"
#include "protocol/control/version_line.h"
#include "protocol/limits.h"
#include "server/daemon/config/command_line.h"
#include "server/daemon/config/daemon_files.h"
#include "server/daemon/config/worker_settings.h"
#include "server/daemon/daemon.h"
#include "server/daemon/daemon_notify.h"
#include "server/daemon/daemon_signals.h"
#include "server/daemon/process_limits.h"
#include "server/daemon/ready_line.h"
#include "server/daemon/reload.h"
#include "server/daemon/workers/spawn_process.h"
#include "transport/sockets/address.h"
#include "transport/transport.h"

namespace gpurun::server {
namespace {

// A real driver with many GPUs takes seconds for its cuInit.
constexpr std::chrono::seconds kCountDeadline{60};

Status announce(const std::string& address, int fd) {
  if (fd < 0) return Status();
  const UniqueFd ready(fd);
  return write_whole(ready.get(), address + "\n", "--ready-fd");
}

// The name is random, so no other socket has it. It is public: /proc/net/unix shows it to every
// user.
std::shared_ptr<transport::Listener> listen_locally() {
  const Result<protocol::Id> name = random_array<protocol::Id>();
  Result<std::unique_ptr<transport::Listener>> listener =
      name.ok() ? transport::listen(protocol::local_address(*name)) : name.status();
  if (listener.ok()) return *std::move(listener);
  spdlog::info("no process shares memory with its worker: {}", listener.status().message());
  return nullptr;
}

// The parts of a daemon, in the order in which they need each other.
struct Parts {
  std::unique_ptr<transport::Listener> listener;
  SharedIdentity identity;
  ProcessSettings settings;
  ServerFacts facts;
  std::unique_ptr<RunSecret> run_secret;  // Removes its file.
  DaemonOptions options;
};

Status prepare_workers(const Config& config, Parts* parts) {
  Result<ProcessSettings> settings = worker_settings(config);
  if (!settings.ok()) return settings.status();
  GPURUN_RETURN_IF_ERROR(hold_program(settings->worker_path));
  settings->encrypted = parts->identity != nullptr;
  if (settings->confined) {
    Result<std::shared_ptr<WorkerGroups>> groups = WorkerGroups::create();
    if (groups.ok()) settings->groups = *std::move(groups);
    if (!groups.ok()) spdlog::info("no control groups: {}", groups.status().message());
  }
  Result<ServerFacts> facts = find_devices(*settings, Deadline::in(kCountDeadline));
  if (!facts.ok()) return facts.status();
  GPURUN_RETURN_IF_ERROR(add_facts(*facts, &*settings));
  say_confinement(*settings, *facts);
  parts->settings = *std::move(settings);
  parts->facts = *std::move(facts);
  return {};
}

Status prepare_access(const Config& config, Bytes secret, Parts* parts) {
  DaemonOptions& options = parts->options;
  Result<std::shared_ptr<TokenStore>> tokens = open_tokens(config, parts->identity.get());
  if (!tokens.ok()) return tokens.status();
  Result<std::unique_ptr<AuditLog>> audit = open_audit(config);
  if (!audit.ok()) return audit.status();
  options.secret = std::move(secret);
  if (options.secret.empty()) {
    Result<std::unique_ptr<RunSecret>> made = make_run_secret(*parts->listener);
    if (!made.ok()) return made.status();
    parts->run_secret = *std::move(made);
    options.secret = parts->run_secret->bytes();
  }
  options.tokens = *std::move(tokens);
  options.user_limits = config.user_limits;
  options.audit = *std::move(audit);
  options.identity = parts->identity;
  options.tls_only = config.tls;
  if (!config.tls) options.local = listen_locally();
  options.insecure_plaintext = config.insecure_plaintext;
  options.devices = static_cast<unsigned>(parts->facts.devices.size());
  options.device_facts = parts->facts.devices;
  options.confinement = parts->facts.confinement;
  options.ledgers = parts->settings.ledgers;
  options.for_one_run = config.for_one_run;
  options.spares = spare_options(config);
  return {};
}

Status prepare(const Config& config, Parts* parts) {
  Result<Bytes> secret = read_secret(config);
  if (!secret.ok()) return secret.status();
  const Result<transport::sockets::HostPort> place =
      transport::sockets::parse_host_port(config.listen, limits::kDefaultPort);
  if (!place.ok()) return place.status();
  Result<std::unique_ptr<transport::Listener>> listener =
      transport::listen("tcp://" + transport::sockets::format_host_port(*place));
  if (!listener.ok()) return listener.status();
  parts->listener = *std::move(listener);
  Result<SharedIdentity> identity = identity_for(*parts->listener, config);
  if (!identity.ok()) return identity.status();
  parts->identity = *std::move(identity);
  GPURUN_RETURN_IF_ERROR(prepare_workers(config, parts));
  return prepare_access(config, *std::move(secret), parts);
}

std::string describe(const Config& config, const Parts& parts) {
  ReadyFacts facts;
  facts.address = parts.listener->address();
  facts.server = parts.facts;
  facts.driver_path = parts.settings.driver_path;
  facts.tls_only = config.tls;
  facts.speaks_tls = parts.identity != nullptr;
  facts.insecure_plaintext = config.insecure_plaintext;
  const auto here = transport::sockets::local_address(parts.listener->fd());
  facts.within_machine = here.ok() && here->is_loopback();
  return ready_line(facts);
}

Status serve(const Config& config, const StartedWith& started) {
  Parts parts;
  GPURUN_RETURN_IF_ERROR(prepare(config, &parts));
  const std::string what = describe(config, parts);
  const std::shared_ptr<AuditLog> audit = parts.options.audit;
  const std::unique_ptr<WorkerSpawner> spawner = make_process_spawner(parts.settings);
  Reloader reloader(started, config);
  Daemon* serving = nullptr;
  parts.options.on_reload = [&] {
    notify_reloading();
    if (reloader.reload(*serving)) {
      audit->write("gpurund.reloaded", {{"address", serving->address()}});
    }
    notify_service_manager("READY=1\nSTATUS=" + what);
  };
  Result<std::unique_ptr<Daemon>> daemon =
      Daemon::create(std::move(parts.listener), std::move(parts.options), *spawner);
  if (!daemon.ok()) return daemon.status();
  serving = daemon->get();
  direct_signals(serving);
  GPURUN_RETURN_IF_ERROR(announce(serving->address(), config.ready_fd));
  if (!config.for_one_run) print_ready_line(what);
  notify_service_manager("READY=1\nSTATUS=" + what);
  injected_fault("daemon");
  audit->write("gpurund.started",
               {{"address", serving->address()}, {"version", protocol::version_line("gpurund")}});
  spdlog::info("{} serves on {}", protocol::version_line("gpurund"), serving->address());
  const Status status = serving->run();
  direct_signals(nullptr);
  audit->write("gpurund.ended", {{"address", serving->address()}});
  notify_service_manager("STOPPING=1");
  return status;
}

// Passes the file's devices on to workers' drivers. The variable's value has priority.
void tell_emulated_devices(const Config& config) {
  if (config.emulated.empty()) return;
  const char* told = getenv("GPURUN_EMULATED");
  const std::string over = told == nullptr ? "" : told;
  setenv("GPURUN_EMULATED", (config.emulated + ";" + over).c_str(), 1);
}

Status run_daemon(Config config, const CommandLine& words, StartedWith started) {
  if (config.for_one_run) lift_limits();
  GPURUN_RETURN_IF_ERROR(check_limits());
  const char* variable = getenv("GPURUN_LOG");
  if (variable != nullptr && *variable != '\0') started.log_variable = variable;
  GPURUN_RETURN_IF_ERROR(choose_log_level(words, started, &config));
  set_log_level(config.log);
  if (words.fingerprint) {
    const auto identity = this_servers_identity(config);
    if (!identity.ok()) return identity.status();
    std::printf("%s\n", transport::tls::to_string((*identity)->fingerprint()).c_str());
    return Status();
  }
  tell_emulated_devices(config);
  return serve(config, started);
}

// Returns the exit status.
int run_gpurund(int argc, char** argv) {
  Config config;
  CommandLine words;
  const Result<std::optional<int>> over = read_command_line(argc, argv, &config, &words);
  if (over.ok() && over->has_value()) return **over;
  const Status status =
      over.ok() ? run_daemon(std::move(config), words, {argc, argv, {}}) : over.status();
  if (status.ok()) return 0;
  spdlog::error("{}", protocol::hide_tokens(status.message()));
  return status.code() == Code::kInvalidArgument ? kExitWrongUsage : 1;
}

}  // namespace
}  // namespace gpurun::server

int main(int argc, char** argv) {
  gpurun::keep_standard_descriptors(0);  // For the workers, too.
  gpurun::server::ignore_stray_signals();
  gpurun::server::raise_limits();
  gpurun::server::keep_memory_private();
  spdlog::set_default_logger(spdlog::stderr_color_mt("gpurund"));
  return gpurun::with_ordinary_stacks(&gpurun::server::run_gpurund, argc, argv);
}
