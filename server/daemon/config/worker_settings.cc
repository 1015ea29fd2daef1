// Worker settings: the driver, users, images and memory of workers.
#include "server/daemon/config/worker_settings.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "base/user_folders.h"
#include "server/daemon/config/config_file.h"
#include "server/daemon/workers/driver_path.h"
#include "server/daemon/workers/orphans.h"
#include "server/images/image_folder.h"

namespace gpurun::server {
namespace {

// Beside this program, or where packages install programs that users do not start.
std::string default_worker() {
  const std::string beside = own_folder() + "gpurun-worker";
  if (access(beside.c_str(), X_OK) == 0) return beside;
  return own_folder() + "../libexec/gpurun/gpurun-worker";
}

// Root lends each worker a user of its own, unless configured otherwise, so that a stranger's
// program never runs as root by accident. Another user has only itself to give, so the result is
// empty. Everything that can fail fails here, and not when the first client attaches.
Result<std::shared_ptr<WorkerUids>> usable_uids(const Config& config) {
  if (config.worker_uids.none()) return std::shared_ptr<WorkerUids>();
  if (geteuid() != 0) {
    if (!config.worker_uids_given) return std::shared_ptr<WorkerUids>();
    return Status(Code::kRefused, "worker-uids: only root can give workers users of their own");
  }
  const auto advised = [](const Status& status) {
    return Status(status.code(), "workers cannot have users of their own: " + status.message() +
                                     "; name others by worker-uids, or let workers run as root by "
                                     "worker-uids = \"none\" (--worker-uids none)");
  };
  if (const Status status = can_become(config.worker_uids); !status.ok()) return advised(status);
  Result<std::shared_ptr<WorkerUids>> uids = WorkerUids::open(config.worker_uids);
  if (!uids.ok()) return advised(uids.status());
  return uids;
}

// Where workers keep images, each user's in a folder of its own. Empty: nowhere. All users of the
// server's secret count as one user, the operator.
Result<std::string> images_folder(const Config& config) {
  if (config.cache_bytes == 0) return std::string();
  if (config.cache_given && (config.cache.empty() || config.cache == "none")) return std::string();
  const std::string cache = config.cache_given ? config.cache : default_cache();
  if (cache.empty()) return std::string();
  const Result<std::unique_ptr<ImageFolder>> folder =
      ImageFolder::open(cache + "/images/" + images_of(User()), config.cache_bytes);
  if (folder.ok()) return cache + "/images";
  if (config.cache_given)
    return Status(folder.status().code(), "cache: " + folder.status().message());
  spdlog::warn("no code image is kept on disk: {}", folder.status().message());
  return std::string();
}

}  // namespace

Result<ProcessSettings> worker_settings(const Config& config) {
  const Result<std::string> driver = find_driver(config.driver);
  if (!driver.ok()) return driver.status();
  Result<std::shared_ptr<WorkerUids>> uids = usable_uids(config);
  if (!uids.ok()) return uids.status();
  Result<std::string> images = images_folder(config);
  if (!images.ok()) return images.status();
  ProcessSettings settings;
  settings.confined = config.confinement == "full";
  settings.worker_memory_bytes = config.worker_memory;
  settings.numa = config.worker_numa == "auto";
  settings.trusted_fabrics = config.trusted_fabrics;
  settings.service_level = config.service_level;
  settings.traffic_class = config.traffic_class;
  settings.gpudirect = config.gpudirect == "auto";
  settings.images_path = *std::move(images);
  settings.images_bytes = config.cache_bytes;
  settings.worker_path = config.worker.empty() ? default_worker() : config.worker;
  settings.driver_path = *driver;
  settings.uids = *std::move(uids);
  // Processes that an unconfined worker has started must end before its user is lent again.
  if (settings.uids != nullptr && !settings.confined) GPURUN_RETURN_IF_ERROR(adopt_orphans());
  return settings;
}

SpareOptions spare_options(const Config& config) {
  SpareOptions options;
  // In a server of one run the first lease comes at once, and is mostly the last.
  const bool wanted = config.spare_workers_given || !config.for_one_run;
  options.count = wanted ? config.spare_workers : 0;
  if (config.spare_level == "initialised") options.level = SpareLevel::kInitialised;
  return options;
}

Status add_facts(const ServerFacts& facts, ProcessSettings* settings) {
  if (facts.devices.empty() || !facts.devices.front().emulated) return {};
  Result<std::shared_ptr<const DeviceLedgers>> ledgers =
      DeviceLedgers::create(facts.devices.size());
  if (!ledgers.ok()) return ledgers.status();
  settings->ledgers = *std::move(ledgers);
  for (const DeviceFacts& device : facts.devices) {
    settings->device_bytes.push_back(device.memory_bytes);
  }
  return {};
}

void say_confinement(const ProcessSettings& settings, const ServerFacts& facts) {
  const std::string& parts = facts.confinement;
  spdlog::info("workers are confined by: {}", parts.empty() ? "nothing" : parts);
  const std::uint64_t memory = worker_memory(settings, {0});
  if (memory != 0) spdlog::info("a worker of one GPU may have {} MiB of memory", memory >> 20);
  if (settings.confined && settings.uids == nullptr &&
      parts.find("user-namespace") == std::string::npos) {
    spdlog::warn(
        "workers run as this daemon's user, for the kernel gives them no namespace of "
        "their own; what else confines them: {}",
        parts.empty() ? "nothing" : parts);
  }
}

}  // namespace gpurun::server
