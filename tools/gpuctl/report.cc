// gpuctl report: reads only files that every user may read. Omits the value of a variable when its
// name or the value looks like a secret.
#include "tools/gpuctl/report.h"

#include <fcntl.h>
#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/deadline.h"
#include "base/file_io.h"
#include "base/unique_fd.h"
#include "protocol/auth/secret_text.h"
#include "protocol/control/version_line.h"
#include "tools/gpuctl/child.h"
#include "tools/gpuctl/complain.h"
#include "tools/gpurun/lease.h"
#include "tools/gpurun/options.h"
#include "tools/gpurun/places.h"

extern char** environ;

namespace gpurun::tools {
namespace {

constexpr std::size_t kPieceBytesMax = 64 * 1024;
constexpr std::chrono::seconds kCommandDeadline{10};

void heading(std::string* report, const char* title) {
  report->append("\n== ").append(title).append("\n");
}

std::string read_file(const char* path) {
  const Result<std::string> text = read_text_file(path, kPieceBytesMax);
  return text.ok() ? *text : text.status().message() + "\n";
}

// What a command prints on either output until the deadline: the last kChildTextMax bytes.
std::string output_of(std::vector<std::string> command) {
  const std::string name = command[0];
  ChildOptions order;
  order.command = std::move(command);
  order.joined = true;
  order.deadline = Deadline::in(kCommandDeadline);
  const Result<ChildEnd> end = run_child(order);
  if (!end.ok()) return name + ": " + end.status().message() + "\n";
  return end->output + (end->timed_out ? "(does not end)\n" : "");
}

void add_versions(std::string* report, const Places& places) {
  heading(report, "versions");
  utsname kernel = {};
  uname(&kernel);
  char when[32];
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  std::strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&now, &utc));
  *report += protocol::version_line("gpuctl") + "\nmade " + when + "\n" + kernel.sysname + " " +
             kernel.release + " " + kernel.machine + ", glibc " + gnu_get_libc_version() + "\n";
  // These may be of another build than this program.
  for (const std::string& program : {places.command, places.daemon}) {
    if (access(program.c_str(), X_OK) == 0) *report += output_of({program, "--version"});
  }
  *report += read_file("/etc/os-release");
}

void add_parts(std::string* report, const Places& places) {
  heading(report, "parts");
  for (const std::string& path : {places.client_library(), places.nvml_library(), places.daemon,
                                  places.client_folder + "/../emulated/libcuda.so.1"}) {
    struct stat what = {};
    const bool there = stat(path.c_str(), &what) == 0;
    *report += path + ": " +
               (there ? std::to_string(what.st_size) + " bytes" : std::string("missing")) + "\n";
  }
}

void add_environment(std::string* report) {
  heading(report, "environment (only what may matter; what could be a secret is hidden)");
  std::vector<std::string> lines;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (!is_reported_variable(name)) continue;
    const std::string_view value = text.substr(std::min(name.size() + 1, text.size()));
    const bool hidden = holds_a_secret(name) || is_a_secret(value) || is_misplaced(name, value);
    lines.push_back(hidden ? std::string(name) + "=(hidden)" : std::string(text));
  }
  std::sort(lines.begin(), lines.end());
  for (const std::string& line : lines) *report += line + "\n";
}

void add_limits(std::string* report) {
  heading(report, "limits");
  const std::pair<const char*, int> kinds[] = {{"open files", RLIMIT_NOFILE},
                                               {"locked memory", RLIMIT_MEMLOCK},
                                               {"address space", RLIMIT_AS},
                                               {"processes", RLIMIT_NPROC}};
  for (const auto& [name, kind] : kinds) {
    rlimit limit = {};
    getrlimit(static_cast<__rlimit_resource_t>(kind), &limit);
    *report += std::string(name) + ": " +
               (limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur)) +
               "\n";
  }
}

void add_devices(std::string* report) {
  heading(report, "this machine's GPUs");
  *report += has_nvidia_device() ? "an NVIDIA device node is there\n" : "no NVIDIA device node\n";
  if (access("/proc/driver/nvidia/version", R_OK) == 0) {
    *report += read_file("/proc/driver/nvidia/version");
  }
}

void add_servers(std::string* report, const ServerChoice& choice) {
  heading(report, "servers");
  for (const std::string& server : choice.servers) {
    auto link = connect_to_server(server, choice.credential, choice.security, choice.security.say);
    if (!link.ok()) {
      *report += link.status().message() + "\n";
      continue;
    }
    const Result<protocol::Listing> listing = (*link)->list();
    if ((*link)->server_is_known()) {
      *report += server + ": gpurun " + (*link)->server_release() + ", protocol " +
                 std::to_string(protocol::kVersion) + "\n";
    }
    *report += listing.ok() ? listing_heading() + listing_rows(server, *listing)
                            : advised(listing.status(), server, choice.credential).message() + "\n";
  }
}

void add_log(std::string* report) {
  heading(report, "log of gpurund (its last 200 lines in the journal)");
  *report += output_of({"journalctl", "--unit=gpurund", "--lines=200", "--no-pager"});
}

}  // namespace

bool is_reported_variable(std::string_view name) {
  constexpr std::string_view kPrefixes[] = {"GPURUN_", "CUDA_",  "NVIDIA_", "LD_",    "NCCL_",
                                            "UCX_",    "XLA_",   "TF_",     "JAX_",   "PYTORCH_",
                                            "TORCH_",  "SLURM_", "CONDA_",  "NUMBA_", "CUPY_"};
  constexpr std::string_view kNames[] = {"PATH",        "LANG",         "LC_ALL",        "TMPDIR",
                                         "VIRTUAL_ENV", "ASAN_OPTIONS", "XDG_CACHE_HOME"};
  for (const std::string_view prefix : kPrefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool holds_a_secret(std::string_view name) {
  if (name.ends_with("_FILE")) return false;  // The path of a secret file is not a secret.
  for (const std::string_view word : {"SECRET", "TOKEN", "PASSW", "KEY", "CREDENTIAL", "AUTH"}) {
    if (name.find(word) != std::string_view::npos) return true;
  }
  return false;
}

bool is_a_secret(std::string_view value) {
  std::string lower(value);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char each) { return std::tolower(each); });
  const std::size_t scheme = lower.find("://");
  if (scheme != std::string::npos && lower.find('@', scheme) != std::string::npos) return true;
  for (const char* word : {"key=", "token=", "secret=", "password=", "passwd=", "auth="}) {
    if (lower.find(word) != std::string::npos) return true;
  }
  // A user's token (protocol/auth/token.h) anywhere in the text.
  for (std::size_t at = 0; (at = lower.find("gpurun1_", at)) != std::string::npos; ++at) {
    if (lower.find_first_not_of("0123456789abcdef", at + 8) >= at + 8 + 12) return true;
  }
  return false;
}

bool is_misplaced(std::string_view name, std::string_view value) {
  constexpr std::string_view kFile = "_FILE";
  return name.ends_with(kFile) && holds_a_secret(name.substr(0, name.size() - kFile.size())) &&
         access(std::string(value).c_str(), F_OK) != 0 && protocol::may_be_secret(value);
}

int write_report(const std::string& path, const ServerChoice& choice) {
  const Result<Places> places = find_places();
  if (!places.ok()) {
    complain(places.status().message());
    return kExitOwnFailure;
  }
  std::string report = "gpurun report. Read it before you pass it on: it names files and hosts.\n";
  add_versions(&report, *places);
  add_parts(&report, *places);
  add_devices(&report);
  add_servers(&report, choice);
  add_environment(&report);
  add_limits(&report);
  add_log(&report);
  UniqueFd file;
  if (path != "-") {
    file.reset(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file.valid()) {
      complain(path + ": " + std::strerror(errno));
      return kExitOwnFailure;
    }
  }
  const Status written =
      write_whole(file.valid() ? file.get() : STDOUT_FILENO, report, "writing " + path);
  if (!written.ok()) {
    complain(written.message());
    return kExitOwnFailure;
  }
  if (path != "-") std::printf("%s\n", path.c_str());
  return 0;
}

}  // namespace gpurun::tools
