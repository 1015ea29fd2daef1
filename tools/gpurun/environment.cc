// Environment: decides which variables are set, joined or left out.
#include "tools/gpurun/environment.h"

#include <algorithm>

#include "driver_abi/semantics/visible_devices.h"

namespace gpurun::tools {
namespace {

constexpr std::string_view kPreload = "LD_PRELOAD";
constexpr std::string_view kLibraryPath = "LD_LIBRARY_PATH";
// client/attach/session_data.h and client/session/session.h read these.
constexpr std::string_view kSession = "GPURUN_SESSION";
constexpr std::string_view kStats = "GPURUN_STATS";
constexpr std::string_view kTrace = "GPURUN_TRACE";
constexpr std::string_view kTransports = "GPURUN_TRANSPORTS";
constexpr std::string_view kTrustFabric = "GPURUN_TRUST_FABRIC";
constexpr std::string_view kVisibleDevices = "CUDA_VISIBLE_DEVICES";

bool is_named(const std::string& entry, std::string_view name) {
  return entry.size() > name.size() && entry[name.size()] == '=' &&
         entry.compare(0, name.size(), name) == 0;
}

void set(Environment* environment, std::string_view name, std::string_view value) {
  std::erase_if(*environment, [name](const std::string& entry) { return is_named(entry, name); });
  environment->push_back(std::string(name) + "=" + std::string(value));
}

std::string prepended(const std::vector<std::string>& ours, std::string_view theirs) {
  std::string list;
  for (const std::string& entry : ours) list += entry + ":";
  list += theirs;
  if (theirs.empty()) list.pop_back();  // An empty last part would mean the current folder.
  return list;
}

// `list` without the parts for which `is_ours` is true. The loader treats all `separators` alike.
template <typename Predicate>
std::string without(std::string_view list, std::string_view separators, Predicate is_ours) {
  std::string rest;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find_first_of(separators), list.size());
    const std::string_view part = list.substr(0, end);
    if (!is_ours(part)) rest.append(rest.empty() ? "" : ":").append(part);
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return rest;
}

void set_defaults(Environment* program, std::string* said) {
  for (const Default& each : kEmulatedDefaults) {
    const auto is_set = [&](const std::string& entry) { return is_named(entry, each.name); };
    if (std::any_of(program->begin(), program->end(), is_set)) continue;
    set(program, each.name, each.value);
    if (said == nullptr) continue;
    *said += (said->empty() ? "" : ", ") + std::string(each.name) + "=" + std::string(each.value);
  }
}

}  // namespace

std::string_view value_of(const Environment& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (is_named(entry, name)) return std::string_view(entry).substr(name.size() + 1);
  }
  return {};
}

Result<Environment> program_environment(const Environment& user, const ProgramSettings& settings,
                                        std::string* said) {
  std::vector<std::string> preload = settings.preload;
  std::string theirs(value_of(user, kPreload));
  for (const EmulatedLibrary& library : settings.emulated_libraries) {
    if (library.path.empty()) continue;
    // An outer gpurun may have a device of another kind.
    theirs = without(theirs, " :", [&](std::string_view part) { return part == library.path; });
    if (!settings.emulated || value_of(user, library.variable) == "off") continue;
    preload.push_back(library.path);
    if (said == nullptr) continue;
    said->append(said->empty() ? "" : ", ").append(library.path).append(library.effect);
  }
  // ld.so(8): LD_PRELOAD is split at spaces and colons, LD_LIBRARY_PATH at colons and semicolons.
  for (const std::string& library : preload) {
    if (library.find_first_of(" :;") != std::string::npos) {
      return Status(Code::kRefused, "gpurun's library " + library +
                                        " cannot be preloaded from a path with a space, a colon "
                                        "or a semicolon; move gpurun to another folder");
    }
  }
  Environment program = user;
  set(&program, kPreload, prepended(preload, theirs));
  set(&program, kLibraryPath, prepended({settings.library_folder}, value_of(user, kLibraryPath)));
  set(&program, kSession, settings.session_file);
  if (settings.stats && value_of(user, kStats).empty()) set(&program, kStats, "1");
  if (!settings.transports.empty()) set(&program, kTransports, settings.transports);
  if (!settings.trusted_fabrics.empty()) set(&program, kTrustFabric, settings.trusted_fabrics);
  if (!settings.trace_folder.empty()) set(&program, kTrace, settings.trace_folder);
  if (settings.emulated) set_defaults(&program, said);
  return program;
}

Result<Environment> container_environment(const Environment& user,
                                          const ProgramSettings& settings) {
  // Files that a variable names are not those of the container.
  constexpr std::string_view kRead[] = {"CUDA_VISIBLE_DEVICES",
                                        "GPURUN_LOG",
                                        "GPURUN_STATS",
                                        "GPURUN_CACHE",
                                        "GPURUN_SYNC",
                                        "GPURUN_SPIN_US",
                                        "GPURUN_TRANSPORTS",
                                        "GPURUN_TRUST_FABRIC",
                                        "GPURUN_NET_DEVICES",
                                        "GPURUN_PACKING",
                                        "GPURUN_BULK_CONNECTIONS",
                                        "GPURUN_NVJITLINK",
                                        "GPURUN_DEVICE_FILES",
                                        "GPURUN_CUDA_TOOLS",
                                        "GPURUN_DEVICE_WINDOWS",
                                        "GPURUN_HOST_MEMORY"};
  Environment read;
  for (const std::string& entry : user) {
    if (std::any_of(std::begin(kRead), std::end(kRead),
                    [&](std::string_view name) { return is_named(entry, name); })) {
      read.push_back(entry);
    }
  }
  Result<Environment> lines = program_environment(read, settings);
  if (lines.ok()) {
    std::erase_if(*lines, [](const std::string& entry) { return is_named(entry, kLibraryPath); });
  }
  return lines;
}

Environment server_environment(const Environment& user, const Places& places) {
  Environment server = user;
  const auto strip = [&](std::string_view name, std::string_view separators, auto is_ours) {
    const std::string_view all = value_of(user, name);
    if (all.empty()) return;
    const std::string rest = without(all, separators, is_ours);
    std::erase_if(server, [name](const std::string& entry) { return is_named(entry, name); });
    if (!rest.empty()) set(&server, name, rest);
  };
  strip(kPreload, " :", [&](std::string_view part) {
    return part == places.client_library() || part == places.nvml_library() ||
           part == places.device_files() || part == places.cuda_tools() ||
           part == places.nvjitlink_stand_in();
  });
  strip(kLibraryPath, ":;", [&](std::string_view part) { return part == places.client_folder; });
  std::erase_if(server, [](const std::string& entry) {
    return is_named(entry, kSession) || is_named(entry, kVisibleDevices);
  });
  return server;
}

std::optional<std::string> visible_devices_of(const Environment& environment) {
  for (const std::string& entry : environment) {
    if (is_named(entry, kVisibleDevices)) return entry.substr(kVisibleDevices.size() + 1);
  }
  return std::nullopt;
}

void show_first_devices(Environment* environment, std::size_t count) {
  const std::optional<std::string> value = visible_devices_of(*environment);
  if (!value.has_value()) return;
  const std::string first = driver_abi::first_visible(*value, count);
  if (first != *value) set(environment, kVisibleDevices, first);
}

}  // namespace gpurun::tools
