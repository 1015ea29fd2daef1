// Worker start: workers are exec'ed processes that inherit only a pipe for stderr and two sockets.
// Everything that depends on a lease or a session comes over one of these.
#include "server/daemon/workers/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/injected_fault.h"
#include "base/unique_fd.h"
#include "protocol/control/control.h"
#include "server/daemon/workers/orphans.h"
#include "server/daemon/workers/spawn_process.h"
#include "server/daemon/workers/worker_log_relay.h"
#include "server/handover/spawn_assignment.h"
#include "server/handover/spawn_extra_bulk.h"
#include "server/handover/spawn_hand_over.h"

extern char** environ;

namespace gpurun::server {
namespace {

constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";

// True for a variable of our environment that a worker gets: how to load, log and emulate.
// `for_own_user`: the worker has our user, so its caches may be in our folders. Other users must
// not find files that a stranger's program wrote.
bool inherited(std::string_view entry, bool for_own_user) {
  for (const char* name :
       {"GPURUN_LOG=", "GPURUN_EMULATED=", "GPURUN_STALL_WARNING_MS=", "GPURUN_SPIN_US=", "TMPDIR=",
        "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "TSAN_OPTIONS="}) {
    if (entry.starts_with(name)) return true;
  }
#ifdef GPURUN_INJECTED_FAULTS
  if (entry.starts_with("GPURUN_INJECTED_FAULT=")) return true;
#endif
  return for_own_user && (entry.starts_with("HOME=") || entry.starts_with("XDG_CACHE_HOME="));
}

// The entries of our own CUDA_VISIBLE_DEVICES, which restrict the whole server.
std::vector<std::string> visible_here() {
  std::vector<std::string> entries;
  const char* value = getenv(kVisibleDevices);
  std::string_view rest = value == nullptr ? "" : value;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    entries.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  return entries;
}

std::vector<std::string> environment_for_workers(bool for_own_user) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (inherited(*entry, for_own_user)) entries.emplace_back(*entry);
  }
  return entries;
}

// In the form of CUDA_VISIBLE_DEVICES.
std::string visible_devices(const std::vector<int>& devices) {
  const std::vector<std::string> visible = visible_here();
  std::string list;
  for (const int device : devices) {
    const auto place = static_cast<std::size_t>(device);
    if (!list.empty()) list += ',';
    list += place < visible.size() ? visible[place] : std::to_string(device);
  }
  return list;
}

Status socket_pair(UniqueFd* ours, UniqueFd* theirs) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return Status::from_errno(errno, "socketpair");
  }
  ours->reset(pair[0]);
  theirs->reset(pair[1]);
  return {};
}

// Beside the memory of an emulated driver's devices: payloads in transit, images, compiled kernels,
// threads' stacks, and host memory that programs get from CUDA.
constexpr std::uint64_t kBesideDevices = std::uint64_t{8} << 30;

constexpr std::chrono::seconds kOrphansEnd{2};

// Lends `uid` again once nothing of its worker runs. A confined worker cannot have started a
// process.
void give_back(const ProcessSettings& settings, uid_t uid) {
  reap_orphans();
  if (settings.uids == nullptr) return;
  if (settings.confined || end_orphans(uid, Deadline::in(kOrphansEnd))) {
    settings.uids->take_back(uid);
    return;
  }
  spdlog::error("processes of worker user {} do not end; it is not lent again", uid);
}

// True when a worker has all rights of the daemon's user.
bool as_ourselves(const ProcessSettings& settings) {
  return settings.uids == nullptr && !settings.confined;
}

std::vector<std::string> worker_arguments(const ProcessSettings& settings, uid_t uid) {
  std::vector<std::string> arguments = {settings.worker_path, "--driver", settings.driver_path};
  if (uid != 0) arguments.insert(arguments.end(), {"--user", std::to_string(uid)});
  if (settings.encrypted) arguments.emplace_back("--tls");
  if (settings.confined) arguments.emplace_back("--confine");
  if (settings.numa) arguments.emplace_back("--numa");
  return arguments;
}

// What the daemon keeps for a worker.
struct ProcessParts {
  pid_t process = -1;
  UniqueFd hand_over;                  // For its session, and connections that join it.
  UniqueFd exit;                       // A pidfd.
  UniqueFd log;                        // Its stderr.
  UniqueFd exchange;                   // Invalid: it has none, or broke its rules.
  std::unique_ptr<WorkerGroup> group;  // Empty: it is in our group.
};

class ProcessWorker final : public Worker {
 public:
  ProcessWorker(ProcessParts parts, std::shared_ptr<const ProcessSettings> settings, uid_t uid)
      : parts_(std::move(parts)),
        settings_(std::move(settings)),
        uid_(uid),
        log_relay_(parts_.process, std::move(parts_.log)) {}
  ~ProcessWorker() override {
    if (parts_.process > 0) {
      kill();
      reap(parts_.process);
    }
    log_relay_.pass_on();
    give_back(*settings_, uid_);
  }
  int exit_fd() const noexcept override { return parts_.exit.get(); }
  void kill() noexcept override {
    if (parts_.process > 0) ::kill(parts_.process, SIGKILL);
  }
  std::string how_it_failed() override {
    log_relay_.pass_on();
    const std::string how = reap(std::exchange(parts_.process, -1));
    return !how.empty() && parts_.group != nullptr && parts_.group->memory_struck()
               ? kEndedForMemory
               : how;
  }
  Status assign(const std::vector<int>& devices, bool leased) override {
    Assignment assignment;
    assignment.leased = leased;
    assignment.memory_bytes = worker_memory(*settings_, devices);
    assignment.gpus = static_cast<std::uint32_t>(devices.size());
    assignment.visible = visible_devices(devices);
    for (const int device : devices) {
      if (settings_->ledgers == nullptr) break;
      Result<UniqueFd> ledger = settings_->ledgers->open(device);
      if (!ledger.ok()) return ledger.status();
      assignment.ledgers.push_back(*std::move(ledger));
    }
    if (parts_.group != nullptr) {
      GPURUN_RETURN_IF_ERROR(parts_.group->limit_memory(assignment.memory_bytes));
    }
    return send_assignment(parts_.hand_over.get(), assignment);
  }
  Status hand_over(WorkerOrder& order) override {
    if (has_session_) return Status(Code::kInternal, "a worker has one session only");
    std::vector<int> connections;
    for (const auto& connection : order.connections) connections.push_back(connection->fd());
    GPURUN_RETURN_IF_ERROR(send_hand_over(parts_.hand_over.get(), order, connections));
    order.connections.clear();  // The worker has its own copies of the descriptors.
    has_session_ = true;
    // From now on a stranger's program may have the other end, so nothing that it sends may wait
    // here.
    shutdown(parts_.hand_over.get(), SHUT_RD);
    return Status();
  }
  Status join(ExtraBulkConnection& joining) override {
    GPURUN_RETURN_IF_ERROR(send_joining(parts_.hand_over.get(), {joining.index, joining.key},
                                        joining.connection->fd()));
    joining.connection.reset();
    return Status();
  }
  int log_fd() const noexcept override { return log_relay_.fd(); }
  void relay_log() override { log_relay_.pass_on(); }
  int exchange_fd() const noexcept override { return parts_.exchange.get(); }
  void serve_exchange(ExchangeRegistry& book, const protocol::Id& lease) override {
    UniqueFd& exchange = parts_.exchange;
    if (exchange.valid() && !book.serve(exchange.get(), this, lease)) exchange.reset();
  }

 private:
  ProcessParts parts_;
  const std::shared_ptr<const ProcessSettings> settings_;
  const uid_t uid_;  // settings_->uids empty: our own user.
  bool has_session_ = false;
  WorkerLogRelay log_relay_;
};

class ProcessSpawner final : public WorkerSpawner {
 public:
  explicit ProcessSpawner(ProcessSettings settings)
      : settings_(std::make_shared<const ProcessSettings>(std::move(settings))) {}

  Result<std::unique_ptr<Worker>> start(WorkerOrder& order) override {
    Result<std::unique_ptr<Worker>> worker = prepare(order.devices);
    if (!worker.ok()) return worker;
    if (const Status given = (*worker)->hand_over(order); !given.ok()) return given;
    return worker;
  }

  Result<std::unique_ptr<Worker>> prepare(const std::vector<int>& devices) override {
    Result<std::unique_ptr<Worker>> worker = start_worker({});
    if (!worker.ok()) return worker;
    GPURUN_RETURN_IF_ERROR((*worker)->assign(devices, true));
    return worker;
  }

  Result<std::unique_ptr<Worker>> spare() override { return start_worker({kSpareWord}); }

 private:
  Result<std::unique_ptr<Worker>> start_worker(const std::vector<std::string>& words) {
    if (settings_->uids == nullptr) return start_as(0, words);
    const Result<uid_t> uid = settings_->uids->lend();
    if (!uid.ok()) return uid.status();
    Result<std::unique_ptr<Worker>> worker = start_as(*uid, words);
    if (!worker.ok()) give_back(*settings_, *uid);
    return worker;
  }

  // 0: our own user.
  Result<std::unique_ptr<Worker>> start_as(uid_t uid, const std::vector<std::string>& words) {
    ProcessParts parts;
    UniqueFd their_hand_over, their_log, their_exchange;
    GPURUN_RETURN_IF_ERROR(socket_pair(&parts.hand_over, &their_hand_over));
    GPURUN_RETURN_IF_ERROR(socket_pair(&parts.exchange, &their_exchange));
    int said[2];
    if (pipe2(said, O_CLOEXEC) != 0) return Status::from_errno(errno, "pipe");
    parts.log.reset(said[0]);
    their_log.reset(said[1]);
    fcntl(said[0], F_SETFL, O_NONBLOCK);
    std::vector<std::string> arguments = worker_arguments(*settings_, uid);
    if (!settings_->images_path.empty()) {
      arguments.insert(arguments.end(), {"--images", settings_->images_path, "--images-bytes",
                                         std::to_string(settings_->images_bytes)});
    }
    for (const std::string& port : settings_->trusted_fabrics) {
      arguments.insert(arguments.end(), {"--fabric", port});
    }
    if (!settings_->trusted_fabrics.empty()) {
      arguments.insert(arguments.end(),
                       {"--service-level", std::to_string(settings_->service_level),
                        "--traffic-class", std::to_string(settings_->traffic_class)});
    }
    if (!settings_->gpudirect) arguments.emplace_back("--no-gpudirect");
    arguments.insert(arguments.end(), {"--exchange", std::to_string(kHandOverFd + 1)});
    arguments.insert(arguments.end(), words.begin(), words.end());
    const Result<pid_t> process =
        start_process(std::move(arguments), environment_for_workers(as_ourselves(*settings_)),
                      {-1, their_log.get(), {their_hand_over.get(), their_exchange.get()}});
    if (!process.ok()) return process.status();
    parts.process = *process;
    const auto give_up = [&](const Status& failure) {
      ::kill(*process, SIGKILL);
      reap(*process);
      return failure;
    };
    // The worker does nothing for a stranger before the hand-over, which comes after it is in its
    // group.
    if (settings_->groups != nullptr) {
      Result<std::unique_ptr<WorkerGroup>> made = settings_->groups->add(*process);
      if (!made.ok()) return give_up(made.status());
      parts.group = *std::move(made);
    }
    parts.exit.reset(static_cast<int>(syscall(SYS_pidfd_open, *process, 0)));
    if (!parts.exit.valid()) return give_up(Status::from_errno(errno, "pidfd_open"));
    return std::unique_ptr<Worker>(new ProcessWorker(std::move(parts), settings_, uid));
  }

  const std::shared_ptr<const ProcessSettings> settings_;
};

// Parses "2\n", a line "BYTES NAME" for each device, "emulated\n" when they are, and then "confined
// " with the active confinement.
bool parse_facts(std::string_view text, ServerFacts* facts) {
  std::vector<DeviceFacts>* devices = &facts->devices;
  const auto take = [&text](std::uint64_t* number) {
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), *number);
    text.remove_prefix(static_cast<std::size_t>(parsed.ptr - text.data()));
    if (!text.empty()) text.remove_prefix(1);
    return parsed.ec == std::errc();
  };
  std::uint64_t count = 0;
  if (!take(&count) || count > protocol::kListedGpusMax) return false;
  devices->resize(count);
  for (DeviceFacts& device : *devices) {
    if (!take(&device.memory_bytes)) return false;
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return false;
    device.name = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  constexpr std::string_view kEmulated = "emulated\n";
  constexpr std::string_view kConfined = "confined ";
  const bool emulated = text.starts_with(kEmulated);
  if (emulated) text.remove_prefix(kEmulated.size());
  for (DeviceFacts& device : *devices) device.emulated = emulated;
  if (!text.starts_with(kConfined) || text.back() != '\n') return false;
  facts->confinement = text.substr(kConfined.size(), text.size() - kConfined.size() - 1);
  return true;
}

// Reads what the process writes until it closes its end, at most 256 KiB.
Result<std::string> read_all(int fd, Deadline deadline) {
  std::string text;
  while (text.size() < 256 * 1024) {
    pollfd ready = {fd, POLLIN, 0};
    const int count = poll(&ready, 1, deadline.poll_timeout_ms());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Status(Code::kDeadline, "gpurun-worker --count did not answer in time");
    char piece[512];
    const ssize_t got = read(fd, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, "reading from gpurun-worker");
    if (got == 0) break;
    text.append(piece, static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

std::uint64_t worker_memory(const ProcessSettings& settings, const std::vector<int>& devices) {
  if (!settings.confined) return 0;
  if (settings.worker_memory_bytes != 0) return settings.worker_memory_bytes;
  if (settings.device_bytes.empty()) return 0;
  std::uint64_t bytes = kBesideDevices;
  for (const int device : devices) {
    const auto place = static_cast<std::size_t>(device);
    if (place < settings.device_bytes.size()) bytes += settings.device_bytes[place];
  }
  return bytes;
}

std::unique_ptr<WorkerSpawner> make_process_spawner(ProcessSettings settings) {
  return std::make_unique<ProcessSpawner>(std::move(settings));
}

Result<ServerFacts> find_devices(const ProcessSettings& settings, Deadline deadline) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status::from_errno(errno, "pipe");
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const Result<uid_t> uid = settings.uids == nullptr ? Result<uid_t>(0) : settings.uids->lend();
  if (!uid.ok()) return uid.status();
  std::vector<std::string> arguments = worker_arguments(settings, *uid);
  arguments.insert(arguments.end(),
                   {"--count", "--memory-bytes", std::to_string(settings.worker_memory_bytes)});
  std::vector<std::string> environment = environment_for_workers(as_ourselves(settings));
  if (const char* visible = getenv(kVisibleDevices); visible != nullptr) {
    environment.push_back(std::string(kVisibleDevices) + "=" + visible);
  }
  const Result<pid_t> process =
      start_process(std::move(arguments), std::move(environment), {writing.get(), -1, {}});
  writing.reset();
  Result<std::string> text = Status(Code::kUnavailable, "no gpurun-worker");
  std::string failure;
  if (process.ok()) {
    text = read_all(reading.get(), deadline);
    if (!text.ok()) ::kill(*process, SIGKILL);
    failure = reap(*process);
  }
  give_back(settings, *uid);
  if (!process.ok()) return process.status();
  if (!text.ok()) return text.status();
  ServerFacts facts;
  if (failure.empty() && parse_facts(*text, &facts)) return facts;
  return Status(Code::kUnavailable,
                "the driver " + settings.driver_path + " does not start (" + settings.worker_path +
                    " --count: " + (failure.empty() ? "no list of GPUs" : failure) + ")");
}

}  // namespace gpurun::server
