// gpurun: starts a program with our client library in place of the CUDA driver, on a lease of GPUs.
// The lease lasts as long as the program and all its descendants.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/file_io.h"
#include "base/injected_fault.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/standard_descriptors.h"
#include "base/unique_fd.h"
#include "client/attach/transports.h"
#include "driver_abi/semantics/visible_devices.h"
#include "protocol/auth/secret_text.h"
#include "tools/gpurun/connection_broker.h"
#include "tools/gpurun/credential.h"
#include "tools/gpurun/deaths.h"
#include "tools/gpurun/default_servers.h"
#include "tools/gpurun/environment.h"
#include "tools/gpurun/escapes.h"
#include "tools/gpurun/file_limit.h"
#include "tools/gpurun/foreign_words.h"
#include "tools/gpurun/launchers.h"
#include "tools/gpurun/lease.h"
#include "tools/gpurun/login.h"
#include "tools/gpurun/options.h"
#include "tools/gpurun/places.h"
#include "tools/gpurun/private_server.h"
#include "tools/gpurun/program.h"
#include "tools/gpurun/session_folder.h"
#include "tools/gpurun/supervisor.h"
#include "tools/gpurun/trace_folder.h"

extern char** environ;

namespace gpurun::tools {
namespace {

// A real driver with many GPUs takes seconds for its cuInit.
constexpr std::chrono::seconds kServerStartDeadline{90};

void say(const std::string& text) {
  // One write, so that lines of several processes do not mix.
  const std::string line = "gpurun: " + protocol::hide_tokens(text) + "\n";
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
}

int exit_status_of(const Status& status) {
  if (status.code() == Code::kUnavailable) return kExitNotFound;
  return status.code() == Code::kRefused ? kExitNotExecutable : kExitOwnFailure;
}

// A failure, and gpurun's exit status for it.
struct Failure {
  Status status;
  int exit_status = kExitOwnFailure;
};

struct Run {
  Options options;
  Environment user;
  Places places;
  std::string program;  // The file that will be executed.
  std::string trace_folder;
  std::string servers_origin;  // Of default servers: the variable or file that names them.
  std::unique_ptr<PrivateServer> server;
  Credential credential;
  HeldLease lease;
  std::unique_ptr<SessionFolder> session_folder;  // Null: not wanted.
  std::unique_ptr<ConnectionBroker> broker;
  UniqueFd session_file;
  UniqueFd deaths_file;
  client::WorkerExitPage* deaths = nullptr;

  bool talks() const { return !options.quiet && isatty(STDERR_FILENO) != 0; }
};

// A process with an unknown word would only warn, or not start.
Status check_log_level(const Environment& user) {
  const std::string word(value_of(user, "GPURUN_LOG"));
  log::Level level = log::Level::kWarning;
  if (word.empty() || log::parse_level(word.c_str(), &level)) return {};
  return Status(Code::kInvalidArgument,
                "GPURUN_LOG is '" + word + "'; it may be error, warning, info, debug or trace");
}

Status check_transports(const Environment& user) {
  return client::parse_transports(value_of(user, client::kTransportsVariable)).status();
}

// Chooses the default servers when no option names servers or a private one.
Status choose_servers(Run* run) {
  Options& options = run->options;
  if (options.servers.empty() && !options.private_server) {
    Result<DefaultServers> defaults = default_servers();
    if (!defaults.ok()) return defaults.status();
    options.servers = std::move(defaults->list.servers);
    if (!options.servers.empty()) run->servers_origin = std::move(defaults->origin);
  }
  const bool key_named = !options.server_fingerprint.empty() || !options.authorities_file.empty();
  if (!options.servers.empty() || !key_named) return {};
  return Status(Code::kInvalidArgument,
                "--server-fingerprint and --tls-ca are about the key of a server that -l or -s "
                "names; a private server has none");
}

// Finds the file to execute, and checks that our library reaches it.
std::optional<Failure> find_user_program(Run* run) {
  const char* path = getenv("PATH");
  const std::string search_path = path != nullptr ? path : "/bin:/usr/bin";
  const std::vector<std::string>& command = run->options.command;
  Result<std::string> program = find_program(command[0], search_path);
  if (!program.ok()) {
    const Status& why = program.status();
    const bool missing = why.code() == Code::kUnavailable;
    return Failure{Status(why.code(), why.message() + (missing ? instead_of(command) : "")),
                   exit_status_of(why)};
  }
  run->program = *std::move(program);
  const Status preloads = can_be_preloaded(run->program, command, search_path,
                                           std::string(value_of(run->user, "ASAN_OPTIONS")));
  const std::optional<std::string> escape = escape_of(command, run->session_folder != nullptr);
  // The client library need not enter a program that only starts containers.
  if (run->session_folder != nullptr && !escape && escape_of(command)) return std::nullopt;
  // The purpose of such a program says more than how it is linked.
  if (!preloads.ok()) return Failure{escape ? Status(Code::kRefused, *escape) : preloads};
  if (escape) say("warning: " + *escape);
  return std::nullopt;
}

std::optional<Failure> find_parts(Run* run) {
  for (char** entry = environ; *entry != nullptr; ++entry) run->user.emplace_back(*entry);
  if (const Status status = check_log_level(run->user); !status.ok()) return Failure{status};
  if (const Status status = check_transports(run->user); !status.ok()) return Failure{status};
  if (!run->options.trace_folder.empty()) {
    Result<std::string> folder = make_trace_folder(run->options.trace_folder);
    if (!folder.ok()) return Failure{folder.status()};
    run->trace_folder = *std::move(folder);
  }
  if (!run->options.session_folder.empty()) {
    Result<std::unique_ptr<SessionFolder>> folder =
        SessionFolder::open(run->options.session_folder);
    if (!folder.ok()) return Failure{folder.status()};
    run->session_folder = *std::move(folder);
  }
  if (const Status status = choose_servers(run); !status.ok()) return Failure{status};
  Result<Places> places = find_places();
  if (!places.ok()) return Failure{places.status()};
  run->places = *std::move(places);
  if (std::optional<Failure> failure = find_user_program(run)) return failure;
  if (access(run->places.client_library().c_str(), R_OK) != 0) {
    return Failure{Status(Code::kUnavailable, run->places.client_library() +
                                                  " is missing, which programs load in place of "
                                                  "the CUDA driver; install gpurun whole")};
  }
  return std::nullopt;
}

Status find_credential(Run* run) {
  Result<Credential> named = named_credential(run->options.token_file, run->options.secret_file);
  if (!named.ok()) return named.status();
  run->credential = *std::move(named);
  return {};
}

Status start_private_server(Run* run) {
  Result<std::unique_ptr<PrivateServer>> server = PrivateServer::start(
      run->places, run->options.device, run->user, Deadline::in(kServerStartDeadline));
  if (!server.ok()) return server.status();
  run->server = *std::move(server);
  run->credential = Credential();
  run->credential.secret = run->server->secret();
  // Warns, on a terminal or not, because this must not be taken for the speed of a GPU. A user that
  // asked for the emulated device, or for silence, knows.
  if (run->server->is_emulated() && run->options.device == Device::kAutomatic &&
      !run->options.quiet) {
    say("no NVIDIA GPU on this machine: kernels run on the emulated device (the CPU)");
  }
  return {};
}

// "1 GPU, NVIDIA H100". Without names if the server does not know them.
std::string describe_gpus(const HeldLease& lease) {
  const unsigned count = lease.session.device_count;
  std::string text = std::to_string(count) + (count == 1 ? " GPU" : " GPUs");
  const char* before = ", ";
  for (const std::string& model : lease.link->models()) {
    text += before + model;
    before = " and ";
  }
  return text;
}

// The program's own connections have the same as the control link.
std::string encryption(const client::ControlLink& link) {
  return link.encrypted() ? "TLS 1.3" : "not encrypted";
}

// CUDA_VISIBLE_DEVICES numbers all GPUs of a machine. So a private server lends all of them when it
// is set. The program gets those that the variable leaves, at most as many as -n says.
Status order_visible_gpus(Run* run, LeaseOrder* order) {
  if (run->server == nullptr || !visible_devices_of(run->user).has_value()) return {};
  const Result<unsigned> all =
      count_gpus(order->servers.front(), order->credential, order->security);
  if (!all.ok()) return all.status();
  if (run->options.gpu_count_named) show_first_devices(&run->user, order->gpu_count);
  order->gpu_count = std::max(order->gpu_count, *all);
  return {};
}

// Warns that a lease's GPUs are numbered from 0, although CUDA_VISIBLE_DEVICES numbers those of
// this machine. A batch system may have set it.
void warn_of_hidden_gpus(const Run& run) {
  const std::string value = visible_devices_of(run.user).value_or("");
  // An empty list and -1 hide GPUs on purpose. The server's UUIDs are not known here.
  if (run.server != nullptr || run.options.quiet || value.empty() || value[0] == '-' ||
      value.starts_with("GPU-")) {
    return;
  }
  const std::vector<driver_abi::DeviceUuid> leased(run.lease.session.device_count);
  if (!driver_abi::visible_devices(value.c_str(), leased).empty()) return;
  say("CUDA_VISIBLE_DEVICES is '" + value + "', which names no GPU of the lease, so the program " +
      "sees none; unset it, or name GPUs from 0 to " + std::to_string(leased.size() - 1));
}

Status take_lease(Run* run) {
  LeaseOrder order;
  if (run->server != nullptr) order.servers.push_back(run->server->address());
  for (const Address& address : run->options.servers) order.servers.push_back(address.to_string());
  order.credential = run->credential;
  order.gpu_count = static_cast<unsigned>(run->options.gpu_count);
  order.wait = run->options.lease_wait;
  Result<client::LinkSecurity> security =
      link_security(run->options, value_of(run->user, "GPURUN_INSECURE_PLAINTEXT") == "1");
  if (!security.ok()) return security.status();
  order.security = *std::move(security);
  order.security.own_server = run->server != nullptr;
  // The user must compare a key that is new to this machine, also with -q.
  order.security.say = say;
  order.warn = [run](const std::string& text) {
    if (!run->options.quiet) say(text);
  };
  order.program = run->program.substr(run->program.rfind('/') + 1);
  order.on_terminal = isatty(STDERR_FILENO) != 0;
  order.say = order.warn;  // A batch job's log also gets the reason for a wait.
  GPURUN_RETURN_IF_ERROR(order_visible_gpus(run, &order));
  Result<HeldLease> lease = acquire_lease(order);
  if (!lease.ok() && run->server != nullptr) {
    return Status(lease.status().code(), lease.status().message() +
                                             "; it is a private server on this machine, -l or -s "
                                             "names others");
  }
  if (!lease.ok() && !run->servers_origin.empty()) {
    const std::string& why = lease.status().message();
    const bool asks = !why.empty() && why.back() == '?';  // Advice can end with a question.
    return Status(lease.status().code(), why + (asks ? " The" : "; the") +
                                             " servers are those of " + run->servers_origin +
                                             ", and -l none starts a private one");
  }
  if (!lease.ok()) return lease.status();
  run->lease = *std::move(lease);
  warn_of_hidden_gpus(*run);
  if (run->talks()) {
    std::string what = describe_gpus(run->lease);
    if (run->server != nullptr && visible_devices_of(run->user).has_value()) {
      what += " (CUDA_VISIBLE_DEVICES selects)";
    }
    say(run->server != nullptr ? what + " of a private server (" + run->server->device_name() +
                                     "), tcp within this machine, " + encryption(*run->lease.link)
                               : what + " of " + run->lease.session.servers[0] + ", tcp, " +
                                     encryption(*run->lease.link));
  }
  return {};
}

// The path by which the program's processes open it. It is ours as long as this process lives,
// readable only for our user, and gone however we die.
std::string own_descriptor(int fd) {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd);
}

// The session as a file of the session folder.
Result<std::string> write_session_folder(Run* run) {
  run->deaths_file = run->session_folder->take_page();
  run->deaths = client::WorkerExitPage::map(run->deaths_file.get());
  client::SessionData& session = run->lease.session;
  if (run->deaths != nullptr) session.deaths = SessionFolder::kWorkerExits;
  session.broker = SessionFolder::kConnect;
  GPURUN_RETURN_IF_ERROR(
      run->session_folder->write_session(client::serialise_session_data(session)));
  return run->session_folder->session_path();
}

Result<std::string> write_session_file(Run* run) {
  if (run->session_folder != nullptr) return write_session_folder(run);
  Result<UniqueFd> deaths_file = client::WorkerExitPage::create();
  if (!deaths_file.ok()) return deaths_file.status();
  run->deaths_file = *std::move(deaths_file);
  run->deaths = client::WorkerExitPage::map(run->deaths_file.get());
  if (run->deaths != nullptr) run->lease.session.deaths = own_descriptor(run->deaths_file.get());
  Result<UniqueFd> session_file = create_memory_file("gpurun-session");
  if (!session_file.ok()) return session_file.status();
  run->session_file = *std::move(session_file);
  const std::string text = client::serialise_session_data(run->lease.session);
  GPURUN_RETURN_IF_ERROR(write_whole(run->session_file.get(), text, "session file"));
  return own_descriptor(run->session_file.get());
}

// Those that are installed.
std::vector<EmulatedLibrary> emulated_libraries(const Places& places) {
  std::vector<EmulatedLibrary> libraries = {
      {places.nvjitlink_stand_in(), kNvJitLinkVariable, " in front of nvJitLink"},
      {places.cuda_tools(), kCudaToolsVariable, " for each ptxas"}};
  std::erase_if(libraries, [](const EmulatedLibrary& library) {
    return access(library.path.c_str(), R_OK) != 0;
  });
  return libraries;
}

Result<Program> prepare_program(Run* run) {
  Result<std::string> session_file = write_session_file(run);
  if (!session_file.ok()) return session_file.status();
  ProgramSettings settings;
  settings.preload = {run->places.client_library()};
  for (const std::string& library : {run->places.nvml_library(), run->places.device_files()}) {
    if (access(library.c_str(), R_OK) == 0) settings.preload.push_back(library);
  }
  settings.library_folder = run->places.client_folder;
  settings.session_file = *std::move(session_file);
  settings.stats = run->options.stats;
  settings.transports = run->options.transports;
  settings.trusted_fabrics = run->options.trusted_fabrics;
  settings.trace_folder = run->trace_folder;
  settings.emulated = run->lease.link->emulated();
  const std::string missing = missing_part(run->places, settings.emulated);
  if (!missing.empty()) say("warning: " + missing);
  settings.emulated_libraries = emulated_libraries(run->places);
  if (run->session_folder != nullptr) {
    const Result<Environment> lines = container_environment(run->user, settings);
    if (!lines.ok()) return lines.status();
    GPURUN_RETURN_IF_ERROR(run->session_folder->write_environment(*lines));
  }
  std::string said;
  Result<Environment> environment = program_environment(run->user, settings, &said);
  if (!environment.ok()) return environment.status();
  if (!said.empty())
    GPURUN_LOG(kInfo, "the device is emulated, it runs PTX only: %s", said.c_str());
  return Program{run->program, run->options.command, *std::move(environment)};
}

std::string describe(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return "exit status " + std::to_string(WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  return "signal " + std::to_string(number) + ", " + strsignal(number);
}

Result<int> supervise(Run* run, Supervisor* supervisor) {
  Deaths deaths(run->deaths, say);
  Supervisor::Events events;
  events.link_fd = run->lease.link->fd();
  events.on_link = [run, &deaths] {
    const Status ended = run->lease.link->lease_ended();
    for (const protocol::WorkerEnded& death : run->lease.link->take_worker_deaths()) {
      deaths.worker_died(death);
    }
    if (!ended.ok()) {
      const bool own_server = run->server != nullptr;
      deaths.lease_ended(run->lease.session.servers[0], ended, own_server);
    }
    return ended.ok();
  };
  events.on_tick = [&deaths] { return deaths.tick(); };
  if (run->server != nullptr) {
    events.server = run->server->process();
    events.on_server_end = [run, &deaths](int status) {
      run->server->ended();
      deaths.server_ended(describe(status));
    };
  }
  events.on_left_behind = [run] {
    if (run->talks()) say("the program has ended; waiting for processes that it left running");
  };
  Result<int> ended = supervisor->wait(events);
  deaths.finish();
  return ended;
}

std::optional<Failure> run_program(Run* run, int* wait_status) {
  if (const Status status = find_credential(run); !status.ok()) return Failure{status};
  if (run->options.servers.empty()) {
    if (const Status status = start_private_server(run); !status.ok()) return Failure{status};
  }
  if (const Status status = take_lease(run); !status.ok()) return Failure{status};
  Result<Program> program = prepare_program(run);
  if (!program.ok()) return Failure{program.status()};
  Result<std::unique_ptr<Supervisor>> supervisor = Supervisor::create();
  if (!supervisor.ok()) return Failure{supervisor.status()};
  if (run->session_folder != nullptr) {
    // The supervisor has blocked the signals that are for its own thread.
    const client::SessionData& session = run->lease.session;
    Result<std::unique_ptr<ConnectionBroker>> broker = ConnectionBroker::start(
        run->session_folder->take_socket(), session.servers.front(), session.local);
    if (!broker.ok()) return Failure{broker.status()};
    run->broker = *std::move(broker);
  }
  if (const Status status = (*supervisor)->start(*std::move(program)); !status.ok()) {
    return Failure{status, exit_status_of(status)};
  }
  const Result<int> ended = supervise(run, supervisor->get());
  if (!ended.ok()) return Failure{ended.status()};
  *wait_status = *ended;
  return std::nullopt;
}

// For a run of which no process explained the end.
void say_unused(const Run& run) {
  if (!run.talks() || run.deaths == nullptr || run.deaths->somebody_attached()) return;
  say("no process of this run has used the GPU: either the program makes no CUDA call, or it ran "
      "where gpurun does not reach (a server process that was there before, a container, another "
      "machine)");
}

int run_gpurun(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "login") == 0) return log_in(argc, argv);
  Result<Options> options = parse_options(argc, argv);
  if (!options.ok()) {
    say(options.status().message());
    return kExitOwnFailure;
  }
  if (options->action == Options::Action::kShowText) {
    std::fputs(options->text.c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : kExitOwnFailure;
  }
  injected_fault("gpurun");
  if (const Status enough = widen_file_limit(); !enough.ok()) {
    say(enough.message());
    return kExitOwnFailure;
  }
  int wait_status = 0;
  {
    Run run;
    run.options = *std::move(options);
    std::optional<Failure> failure = find_parts(&run);
    if (!failure) failure = run_program(&run, &wait_status);
    if (failure) {
      say(failure->status.message());
      return failure->exit_status;
    }
    say_unused(run);
    // Does not wait for the server to free the GPUs: a later request finds them free, or waits
    // until they are. Closes the lease first, so that our own server ends without a warning.
    run.lease.link.reset();
  }
  end_like(wait_status);
}

}  // namespace
}  // namespace gpurun::tools

int main(int argc, char** argv) {
  gpurun::keep_standard_descriptors(O_CLOEXEC);
  return gpurun::tools::run_gpurun(argc, argv);
}
