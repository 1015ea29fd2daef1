// The compiler and the engines, created by the settings.
#include "emulated/objects/execution.h"

#include <cstdlib>
#include <string>

#include "base/log.h"
#include "base/user_folders.h"
#include "emulated/objects/device_limits.h"
#include "emulated/settings.h"

namespace gpurun::emulated {
namespace {

// "on" means the user's cache folder (XDG Base Directory Specification).
std::string cache_directory() {
  const std::string& setting = settings().cache;
  if (setting == "off" || setting.empty()) return "";
  if (setting != "on") return setting;
  const std::string folder = xdg_folder("XDG_CACHE_HOME", ".cache");
  return folder.empty() ? folder : folder + "/emulated";
}

}  // namespace

Compiler* compiler() {
  static Compiler* const only = []() -> Compiler* {
    CompilerOptions options;
    options.cache_directory = cache_directory();
    options.tier = settings().tier == "fibers"    ? Tier::kFibers
                   : settings().tier == "regions" ? Tier::kRegions
                                                  : Tier::kAuto;
    // A device with an LLVM of its own needs and gets no exit handler (api/exit_handlers.cc).
    options.before_background = [] { std::atexit([] { compiler()->stop_background(); }); };
    auto made = Compiler::create(runtime_functions(), options);
    if (made.ok()) return std::move(*made).release();
    GPURUN_LOG(kError, "emulated device: no compiler: %s", made.status().to_string().c_str());
    return nullptr;
  }();
  return only;
}

std::unique_ptr<Engine> make_engine() {
  EngineOptions options;
  options.threads = settings().threads;
  options.sm_count = static_cast<std::uint32_t>(settings().multiprocessors);
  options.resident_threads =
      options.sm_count *
      static_cast<std::uint32_t>(threads_per_multiprocessor(settings().capability));
  options.watchdog_ms = static_cast<std::uint32_t>(settings().watchdog_s) * 1000;
  options.watchdog_kills = settings().watchdog_kills;
  auto made = Engine::create(options);
  if (made.ok()) return std::move(*made);
  GPURUN_LOG(kError, "emulated device: no engine: %s", made.status().to_string().c_str());
  return nullptr;
}

}  // namespace gpurun::emulated
