// gpurund: lends this machine's GPUs. Command line, secret and signals; daemon.h does the rest.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "driver_abi/row.h"
#include "protocol/limits.h"
#include "protocol/rows_digest.h"
#include "server/daemon.h"
#include "server/driver_path.h"
#include "server/spawn.h"
#include "transport/tcp/address.h"
#include "transport/transport.h"

namespace gpurun::server {
namespace {

// A longer file is no secret but a mistake.
constexpr std::size_t kSecretBytesMax = 4096;
constexpr std::size_t kSecretBytesMin = 16;
// A real driver with many GPUs takes seconds for its cuInit.
constexpr std::chrono::seconds kCountDeadline{60};

struct Settings {
  std::string listen = "127.0.0.1";
  std::string driver;
  std::string worker;
  std::string secret_file;
  int secret_fd = -1;
  int ready_fd = -1;
  bool insecure_plaintext = false;
  bool verbose = false;
};

Daemon* serving = nullptr;  // For the signal handler; set before the handler is.

extern "C" void stop_serving(int) { serving->stop(); }

void add_options(CLI::App& app, Settings& settings) {
  app.add_option("--listen", settings.listen, "address and port to listen on: HOST[:PORT]")
      ->capture_default_str();
  app.add_option("--driver", settings.driver,
                 "real, emulated, or a CUDA driver library by absolute path")
      ->required();
  app.add_option("--worker", settings.worker, "gpurun-worker; beside this program by default");
  auto* file = app.add_option("--secret-file", settings.secret_file,
                              "file (mode 0600) with the secret that users must know");
  app.add_option("--secret-fd", settings.secret_fd, "descriptor to read the secret from")
      ->excludes(file);
  app.add_option("--ready-fd", settings.ready_fd,
                 "descriptor to write the address to, once this server listens");
  app.add_flag("--insecure-plaintext", settings.insecure_plaintext,
               "listen beyond this machine although nothing is encrypted; needs a secret");
  app.add_flag("--verbose", settings.verbose, "log every connection");
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

Result<Bytes> read_secret(const Settings& settings) {
  if (settings.secret_fd >= 0) {
    const UniqueFd fd(settings.secret_fd);
    return read_secret_from(fd.get(), "--secret-fd");
  }
  if (settings.secret_file.empty()) return Bytes();
  const UniqueFd fd(open(settings.secret_file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Status::from_errno(errno, settings.secret_file);
  struct stat about;
  if (fstat(fd.get(), &about) != 0) return Status::from_errno(errno, settings.secret_file);
  if ((about.st_mode & 077) != 0) {
    return Status(Code::kRefused, settings.secret_file + ": others may read it; make it mode 0600");
  }
  return read_secret_from(fd.get(), settings.secret_file);
}

// Beyond loopback only with a secret, and only when told that nothing is encrypted.
Status check_exposure(const transport::Listener& listener, const Settings& settings,
                      const Bytes& secret) {
  const Result<transport::tcp::SocketAddress> address =
      transport::tcp::local_address(listener.fd());
  if (!address.ok()) return address.status();
  if (address->is_loopback()) {
    if (secret.empty()) spdlog::warn("no secret: every user of this machine may use its GPUs");
    return Status();
  }
  if (!settings.insecure_plaintext) {
    return Status(Code::kRefused, "listening on " + listener.address() +
                                      " would let others read what passes, for nothing is "
                                      "encrypted; say --insecure-plaintext if you accept that");
  }
  if (secret.empty()) {
    return Status(Code::kRefused,
                  "listening on " + listener.address() + " needs --secret-file or --secret-fd");
  }
  return Status();
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

void handle_signals() {
  signal(SIGPIPE, SIG_IGN);
  struct sigaction action = {};
  action.sa_handler = stop_serving;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

Status serve(const Settings& settings) {
  Result<Bytes> secret = read_secret(settings);
  if (!secret.ok()) return secret.status();
  const Result<transport::tcp::HostPort> place =
      transport::tcp::parse_host_port(settings.listen, limits::kDefaultPort);
  if (!place.ok()) return place.status();
  Result<std::unique_ptr<transport::Listener>> listener =
      transport::listen("tcp://" + transport::tcp::format_host_port(*place));
  if (!listener.ok()) return listener.status();
  GPURUN_RETURN_IF_ERROR(check_exposure(**listener, settings, *secret));
  const std::string worker = settings.worker.empty() ? default_worker() : settings.worker;
  const Result<std::string> driver = find_driver(settings.driver);
  if (!driver.ok()) return driver.status();
  const Result<unsigned> devices = count_devices(worker, *driver, Deadline::in(kCountDeadline));
  if (!devices.ok()) return devices.status();

  DaemonOptions options;
  options.secret = *std::move(secret);
  options.devices = *devices;
  options.rows = protocol::rows_digest(driver_abi::rows());
  const std::unique_ptr<WorkerSpawner> spawner = make_process_spawner(worker, *driver);
  Result<std::unique_ptr<Daemon>> daemon =
      Daemon::create(*std::move(listener), std::move(options), *spawner);
  if (!daemon.ok()) return daemon.status();
  serving = daemon->get();
  handle_signals();
  spdlog::info("{} GPUs of {} on {}", *devices, *driver, serving->address());
  GPURUN_RETURN_IF_ERROR(announce(serving->address(), settings.ready_fd));
  return serving->run();
}

}  // namespace
}  // namespace gpurun::server

int main(int argc, char** argv) {
  gpurun::server::Settings settings;
  CLI::App app("gpurund lends this machine's GPUs to programs on other machines.", "gpurund");
  gpurun::server::add_options(app, settings);
  CLI11_PARSE(app, argc, argv);
  spdlog::set_default_logger(spdlog::stderr_color_mt("gpurund"));
  spdlog::set_level(settings.verbose ? spdlog::level::info : spdlog::level::warn);
  const gpurun::Status status = gpurun::server::serve(settings);
  if (status.ok()) return 0;
  spdlog::error("{}", status.message());
  return 1;
}
