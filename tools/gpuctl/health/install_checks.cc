// Install checks: the loader itself reports what a library lacks, and no code of it runs.
#include "tools/gpuctl/health/install_checks.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/system_files.h"
#include "tools/gpuctl/child.h"
#include "tools/gpurun/credential.h"

namespace gpurun::tools {
namespace {

constexpr std::chrono::seconds kCommandPatience{10};
constexpr const char* kWhole = "install gpurun-client whole";
constexpr const char* kOtherBuild =
    "install the gpurun-client of this system, or use a system with a newer C library";

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Check check_program(const std::string& path) {
  const char* name = "programs";
  ChildOptions order;
  order.command = {path, "--version"};
  order.joined = true;
  order.deadline = Deadline::in(kCommandPatience);
  const Result<ChildEnd> end = run_child(order);
  if (end.ok() && end->succeeded()) return ok(name, path + " starts: " + first_line(end->output));
  const std::string why = !end.ok()        ? end.status().message()
                          : end->timed_out ? "it does not end"
                                           : first_line(end->output);
  return failed(name, path + " does not start: " + why, kOtherBuild);
}

// The first complaint of the loader.
std::string complaint_of(const std::string& output) {
  for (const std::string& line : lines_of(output)) {
    for (const char* word :
         {"not found", "undefined symbol", "cannot be preloaded", "rror while loading"}) {
      if (line.find(word) == std::string::npos) continue;
      return line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
    }
  }
  return "";
}

// The loader lists what gpurun would load with the library, and starts nothing.
Check check_library(const Places& places, const std::string& path, const std::string& loss) {
  const char* name = "libraries";
  if (access(path.c_str(), R_OK) != 0) return failed(name, path + " is missing: " + loss, kWhole);
  ChildOptions order;
  order.command = {places.command};
  order.environment = {"LD_TRACE_LOADED_OBJECTS=1", "LD_WARN=yes", "LD_BIND_NOW=yes",
                       "LD_PRELOAD=" + path};
  order.joined = true;
  order.deadline = Deadline::in(kCommandPatience);
  const Result<ChildEnd> end = run_child(order);
  const std::string output = end.ok() ? end->output : end.status().message() + " (not found)";
  const std::string complaint = complaint_of(output);
  if (!complaint.empty()) return failed(name, path + " does not load: " + complaint, kOtherBuild);
  if (output.find(path + " (") != std::string::npos) return ok(name, path + " loads");
  return failed(name, path + " does not load: the loader leaves it out", kWhole);
}

std::vector<std::string> token_files() {
  std::vector<std::string> files;
  const std::string folder = config_folder();
  if (!folder.empty()) {
    files.push_back(folder + "/token");
    for (const std::string& name : SystemFiles().entries(folder + "/tokens")) {
      files.push_back(folder + "/tokens/" + name);
    }
  }
  const char* named = getenv(kTokenFileVariable);
  if (named != nullptr && *named != '\0') files.emplace_back(named);
  return files;
}

}  // namespace

Checks part_checks(const Places& places) {
  Checks checks;
  if (access(places.command.c_str(), X_OK) != 0) {
    return {failed("programs", places.command + " is missing", kWhole)};
  }
  checks.push_back(check_program(places.command));
  const bool starts = checks.back().verdict == Verdict::kOk;
  if (access(places.daemon.c_str(), X_OK) == 0) {
    checks.push_back(check_program(places.daemon));
  } else {
    checks.push_back(not_applicable("programs", "gpurund is not installed, so this is no server"));
  }
  if (!starts) return checks;
  const std::pair<std::string, const char*> libraries[] = {
      {places.client_library(), "no program gets a GPU"},
      {places.nvml_library(), "programs that use NVML (nvidia-smi, pynvml, gpustat) find no GPU"},
      {places.device_files(), "programs that look for device files (JAX) find no GPU"},
      {places.cuda_tools(),
       "programs that compile with ptxas (JAX, Triton) fail on emulated devices"},
      {places.nvjitlink_stand_in(),
       "programs that link with nvJitLink (Numba) fail on emulated devices"}};
  for (const auto& [path, loss] : libraries) checks.push_back(check_library(places, path, loss));
  return checks;
}

Checks token_file_checks() {
  const char* name = "token-file";
  Checks checks;
  for (const std::string& path : token_files()) {
    struct stat about = {};
    if (stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) continue;
    if ((about.st_mode & 077) == 0) {
      checks.push_back(ok(name, "no other user may read the token in " + path));
    } else {
      checks.push_back(failed(name,
                              "others may read the token in " + path + ", so gpurun refuses it",
                              "chmod 600 '" + path + "'"));
    }
  }
  if (checks.empty()) checks.push_back(not_applicable(name, "this user has stored no token"));
  return checks;
}

Check servers_check(const std::string& origin, std::size_t servers, bool needed) {
  const char* name = "servers";
  if (servers > 0) {
    return ok(name, std::to_string(servers) + (servers == 1 ? " server" : " servers") +
                        ", named by " + origin);
  }
  if (!origin.empty()) {
    return ok(name, "none, by " + origin + ": programs use this machine's GPU or its processor");
  }
  const std::string fix = "gpurun login HOST, or a line HOST[:PORT] in /etc/gpurun/servers";
  if (needed) return failed(name, "no server is named", fix);
  return warning(name, "no server is named, so programs use this machine's GPU or its processor",
                 fix);
}

}  // namespace gpurun::tools
