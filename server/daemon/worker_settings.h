// How gpurund starts its workers, by its settings. By the main thread, before it serves.
#pragma once

#include "base/result.h"
#include "server/daemon/config.h"
#include "server/daemon/daemon.h"
#include "server/daemon/spawn.h"

namespace gpurun::server {

// Errors name the setting. All that can fail fails here, and not when the first client attaches.
Result<ProcessSettings> worker_settings(const Config& config);
SpareOptions spare_options(const Config& config);

// What is the same for every worker, and known once the driver has been asked.
Status add_facts(const ServerFacts& facts, ProcessSettings* settings);
// Says what keeps strangers' code in its worker: here, and to whom it concerns (gpuctl list).
void say_confinement(const ProcessSettings& settings, const ServerFacts& facts);

}  // namespace gpurun::server
