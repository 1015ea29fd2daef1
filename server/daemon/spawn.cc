// Workers are exec'ed processes with nothing inherited but a pipe for stderr, one socket, and the
// ledgers of emulated devices. Between fork and exec the child makes only calls that are safe in a
// process that had threads.
#include "server/daemon/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/planted_flaw.h"
#include "base/unique_fd.h"
#include "protocol/control.h"
#include "server/daemon/spawn_hand_over.h"
#include "server/daemon/worker_ends.h"

extern char** environ;

namespace gpurun::server {
namespace {

constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";
constexpr const char* kForbiddenCall = "a forbidden system call";
constexpr const char* kMemoryLimit = "its memory limit (worker-memory)";

// What a worker gets of our environment: how to load, log and emulate. `for_own_user`: it is as we
// are, so that its caches may lie in our folders; what strangers' code wrote must not be found by
// others.
bool inherited(std::string_view entry, bool for_own_user) {
  for (const char* name : {"GPURUN_LOG=", "GPURUN_EMULATED=", "GPURUN_STANDING_MS=", "TMPDIR=",
                           "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "TSAN_OPTIONS="}) {
    if (entry.starts_with(name)) return true;
  }
#ifdef GPURUN_PLANTED_FLAWS
  if (entry.starts_with("GPURUN_PLANTED_FLAW=")) return true;
#endif
  return for_own_user && (entry.starts_with("HOME=") || entry.starts_with("XDG_CACHE_HOME="));
}

// The entries of our own CUDA_VISIBLE_DEVICES, which confine the whole server.
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

std::vector<std::string> environment_for(const std::vector<int>* devices, bool for_own_user) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (inherited(*entry, for_own_user)) entries.emplace_back(*entry);
  }
  const char* all = getenv(kVisibleDevices);
  if (devices == nullptr) {
    if (all != nullptr) entries.push_back(std::string(kVisibleDevices) + "=" + all);
    return entries;
  }
  const std::vector<std::string> visible = visible_here();
  std::string list;
  for (const int device : *devices) {
    const auto place = static_cast<std::size_t>(device);
    if (!list.empty()) list += ',';
    list += place < visible.size() ? visible[place] : std::to_string(device);
  }
  entries.push_back(std::string(kVisibleDevices) + "=" + list);
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

// What is open in a child besides.
struct Descriptors {
  int output = -1;          // stdout; -1: /dev/null.
  int errors = -1;          // stderr; -1: ours.
  std::vector<int> handed;  // From kHandOverFd on.
};

// In the child.
[[noreturn]] void become(char* const* arguments, char* const* environment, Descriptors& open_there,
                         pid_t parent) {
  std::vector<int>& handed = open_there.handed;
  const int output = open_there.output;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  // A worker never outlives its daemon. The daemon may have died before the call.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(125);
  setsid();  // Out of reach of the terminal's Ctrl-C.
  const int null = open("/dev/null", O_RDWR);
  if (null < 0 || dup2(null, 0) < 0 || dup2(output >= 0 ? output : null, 1) < 0) _exit(125);
  if (open_there.errors >= 0 && dup2(open_there.errors, 2) < 0) _exit(125);
  const int end = kHandOverFd + static_cast<int>(handed.size());
  for (int& fd : handed) {  // First out of the way of each other.
    if ((fd = fcntl(fd, F_DUPFD_CLOEXEC, end)) < 0) _exit(125);
  }
  int place = kHandOverFd;
  for (const int fd : handed) {
    if (dup2(fd, place++) < 0) _exit(125);
  }
  // Everything is close-on-exec already, where the kernel is too old for this.
  syscall(SYS_close_range, static_cast<unsigned>(end), ~0U, 0);
  execve(arguments[0], arguments, environment);
  _exit(127);
}

Result<pid_t> start_process(std::vector<std::string> arguments,
                            std::vector<std::string> environment, Descriptors open_there) {
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> environment_pointers = pointers(environment);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return Status::from_errno(errno, "fork");
  if (child == 0) {
    become(argument_pointers.data(), environment_pointers.data(), open_there, parent);
  }
  return child;
}

std::string describe(int status) {
  if (WIFSIGNALED(status)) {
    if (WTERMSIG(status) == SIGSYS) return kForbiddenCall;
    const char* name = strsignal(WTERMSIG(status));
    return "signal " + std::to_string(WTERMSIG(status)) + " (" + (name ? name : "?") + ")";
  }
  const int code = WEXITSTATUS(status);
  if (code == kExitForbiddenCall) return kForbiddenCall;
  if (code == kExitMemoryLimit) return kMemoryLimit;
  return code == 0 ? std::string() : "exit status " + std::to_string(code);
}

std::string reap(pid_t process) {
  int status = 0;
  pid_t got = 0;
  do {
    got = waitpid(process, &status, 0);
  } while (got < 0 && errno == EINTR);
  return got == process ? describe(status) : std::string();
}

// Beside what the devices of an emulated driver hold: payloads on their way, images, compiled
// kernels, threads' stacks, memory of the host's that programs ask of CUDA.
constexpr std::uint64_t kBesideDevices = std::uint64_t{8} << 30;

// Whether a worker is the daemon's user in all that this user may do.
bool as_ourselves(const ProcessSettings& settings) {
  return settings.uids == nullptr && !settings.confined;
}

std::vector<std::string> worker_arguments(const ProcessSettings& settings, uid_t uid,
                                          std::uint64_t memory_bytes) {
  std::vector<std::string> arguments = {settings.worker_path, "--driver", settings.driver_path};
  if (uid != 0) arguments.insert(arguments.end(), {"--user", std::to_string(uid)});
  if (!settings.confined) return arguments;
  arguments.insert(arguments.end(), {"--confine", "--memory-bytes", std::to_string(memory_bytes)});
  return arguments;
}

// What a worker says of itself, which may be a stranger's code that says it.
class Words {
 public:
  Words(pid_t process, UniqueFd fd)
      : prefix_(kPrefix + std::to_string(process) + "]: "), fd_(std::move(fd)) {}

  int fd() const noexcept { return fd_.get(); }
  void pass_on() {
    char piece[4096];
    while (fd_.valid()) {
      const ssize_t got = read(fd_.get(), piece, sizeof piece);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) break;
      if (got <= 0) return end();
      take({piece, static_cast<std::size_t>(got)});
      said_ += static_cast<std::size_t>(got);
      if (said_ > kWordsMax) {
        take("\n(more is not logged)\n");
        return end();
      }
    }
  }

 private:
  static constexpr const char* kPrefix = "gpurun-worker[";
  // A sanitizer's report has some tens of KiB.
  static constexpr std::size_t kWordsMax = std::size_t{256} << 10;

  void end() {
    if (!line_.empty()) take("\n");
    fd_.reset();
  }
  void take(std::string_view text) {
    for (const char character : text) {
      if (character == '\n' || line_.size() == kLineMax) flush();
      if (character == '\n') continue;
      // Nothing that a terminal would obey.
      const auto byte = static_cast<unsigned char>(character);
      line_ += byte < 32 && byte != '\t' ? '?' : character;
    }
  }
  void flush() {
    std::fprintf(stderr, "%s%s\n", prefix_.c_str(), line_.c_str());
    line_.clear();
  }

  static constexpr std::size_t kLineMax = 4096;
  const std::string prefix_;
  UniqueFd fd_;
  std::string line_;
  std::size_t said_ = 0;
};

class ProcessWorker final : public Worker {
 public:
  ProcessWorker(pid_t process, UniqueFd exit, std::shared_ptr<WorkerUids> uids, uid_t uid,
                UniqueFd words, UniqueFd exchange, std::unique_ptr<WorkerGroup> group)
      : process_(process),
        exit_(std::move(exit)),
        uids_(std::move(uids)),
        uid_(uid),
        words_(process, std::move(words)),
        exchange_(std::move(exchange)),
        group_(std::move(group)) {}
  ~ProcessWorker() override {
    if (process_ > 0) {
      kill();
      reap(process_);
    }
    words_.pass_on();
    if (uids_ != nullptr) uids_->take_back(uid_);
  }
  int exit_fd() const noexcept override { return exit_.get(); }
  void kill() noexcept override {
    if (process_ > 0) ::kill(process_, SIGKILL);
  }
  std::string how_it_failed() override {
    words_.pass_on();
    const std::string how = reap(std::exchange(process_, -1));
    return !how.empty() && group_ != nullptr && group_->memory_struck() ? kMemoryLimit : how;
  }
  int words_fd() const noexcept override { return words_.fd(); }
  void pass_on_words() override { words_.pass_on(); }
  int exchange_fd() const noexcept override { return exchange_.get(); }
  void serve_exchange(ExchangeBook& book, const protocol::Id& lease) override {
    if (exchange_.valid() && !book.serve(exchange_.get(), this, lease)) exchange_.reset();
  }

 private:
  pid_t process_;
  const UniqueFd exit_;                     // A pidfd.
  const std::shared_ptr<WorkerUids> uids_;  // Empty: its user is ours.
  const uid_t uid_;
  Words words_;
  UniqueFd exchange_;                         // Not valid: it has none, or broke its rules.
  const std::unique_ptr<WorkerGroup> group_;  // Empty: it is in ours.
};

class ProcessSpawner final : public WorkerSpawner {
 public:
  explicit ProcessSpawner(ProcessSettings settings) : settings_(std::move(settings)) {}

  Result<std::unique_ptr<Worker>> start(WorkerOrder& order) override {
    if (settings_.uids == nullptr) return start_as(order, 0);
    const Result<uid_t> uid = settings_.uids->lend();
    if (!uid.ok()) return uid.status();
    Result<std::unique_ptr<Worker>> worker = start_as(order, *uid);
    if (!worker.ok()) settings_.uids->take_back(*uid);
    return worker;
  }

 private:
  // 0: as ourselves.
  Result<std::unique_ptr<Worker>> start_as(WorkerOrder& order, uid_t uid) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
      return Status::from_errno(errno, "socketpair");
    }
    const UniqueFd ours(pair[0]);
    const UniqueFd theirs(pair[1]);
    int words[2];
    if (pipe2(words, O_CLOEXEC) != 0) return Status::from_errno(errno, "pipe");
    UniqueFd reading(words[0]);
    const UniqueFd writing(words[1]);
    fcntl(reading.get(), F_SETFL, O_NONBLOCK);
    int exchange[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, exchange) != 0) {
      return Status::from_errno(errno, "socketpair");
    }
    UniqueFd our_exchange(exchange[0]);
    const UniqueFd their_exchange(exchange[1]);
    std::vector<int> connections;
    for (const auto& connection : order.connections) connections.push_back(connection->fd());
    const std::uint64_t memory_bytes = worker_memory(settings_, order.devices);
    std::vector<std::string> arguments = worker_arguments(settings_, uid, memory_bytes);
    if (!settings_.images_path.empty()) {
      arguments.insert(arguments.end(), {"--images", images_of(order.user, settings_.images_path),
                                         "--images-bytes", std::to_string(settings_.images_bytes)});
    }
    std::vector<std::string> environment = environment_for(&order.devices, as_ourselves(settings_));
    Descriptors open_there = {-1, writing.get(), {theirs.get()}};
    std::vector<UniqueFd> ledgers;
    for (const int device : order.devices) {
      if (settings_.ledgers == nullptr) break;
      Result<UniqueFd> ledger = settings_.ledgers->open(device);
      if (!ledger.ok()) return ledger.status();
      open_there.handed.push_back(ledger->get());
      ledgers.push_back(*std::move(ledger));
    }
    if (!ledgers.empty()) DeviceLedgers::tell(environment, kHandOverFd + 1, ledgers.size());
    arguments.insert(
        arguments.end(),
        {"--exchange", std::to_string(kHandOverFd + static_cast<int>(open_there.handed.size()))});
    open_there.handed.push_back(their_exchange.get());
    const Result<pid_t> process =
        start_process(std::move(arguments), std::move(environment), std::move(open_there));
    if (!process.ok()) return process.status();
    const auto give_up = [&](const Status& failure) {
      ::kill(*process, SIGKILL);
      reap(*process);
      return failure;
    };
    // It does nothing for a stranger before the hand-over, and that comes when it is in its group.
    std::unique_ptr<WorkerGroup> group;
    if (settings_.groups != nullptr) {
      Result<std::unique_ptr<WorkerGroup>> made = settings_.groups->add(*process, memory_bytes);
      if (!made.ok()) return give_up(made.status());
      group = *std::move(made);
    }
    UniqueFd exit(static_cast<int>(syscall(SYS_pidfd_open, *process, 0)));
    if (!exit.valid()) return give_up(Status::from_errno(errno, "pidfd_open"));
    if (const Status sent = send_hand_over(ours.get(), order, connections); !sent.ok()) {
      return give_up(sent);
    }
    order.connections.clear();  // The worker has its own copies of the descriptors.
    return std::unique_ptr<Worker>(new ProcessWorker(*process, std::move(exit), settings_.uids, uid,
                                                     std::move(reading), std::move(our_exchange),
                                                     std::move(group)));
  }

  const ProcessSettings settings_;
};

// "2\n" and then a line "BYTES NAME" for each device; "emulated\n" where they are; then "confined "
// and what is in force.
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

// What the process writes until it closes its end, at most 256 KiB.
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

// A user's name is a name for a folder, too (protocol::check_user()).
std::string images_of(const User& user, const std::string& images_path) {
  return images_path + (user.is_operator() ? "/default" : "/users/" + user.name);
}

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
  std::vector<std::string> arguments =
      worker_arguments(settings, *uid, settings.worker_memory_bytes);
  arguments.emplace_back("--count");
  const Result<pid_t> process =
      start_process(std::move(arguments), environment_for(nullptr, as_ourselves(settings)),
                    {writing.get(), -1, {}});
  writing.reset();
  Result<std::string> text = Status(Code::kUnavailable, "no gpurun-worker");
  std::string failure;
  if (process.ok()) {
    text = read_all(reading.get(), deadline);
    if (!text.ok()) ::kill(*process, SIGKILL);
    failure = reap(*process);
  }
  if (settings.uids != nullptr) settings.uids->take_back(*uid);
  if (!process.ok()) return process.status();
  if (!text.ok()) return text.status();
  ServerFacts facts;
  if (failure.empty() && parse_facts(*text, &facts)) return facts;
  return Status(Code::kUnavailable,
                "the driver " + settings.driver_path + " does not start (" + settings.worker_path +
                    " --count: " + (failure.empty() ? "no list of GPUs" : failure) + ")");
}

}  // namespace gpurun::server
