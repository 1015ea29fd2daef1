// Worker settings: how gpurund starts its workers. Call from the main thread, before it serves.
#pragma once

#include "base/result.h"
#include "server/daemon/config/config.h"
#include "server/daemon/workers/spare_workers.h"
#include "server/daemon/workers/spawn.h"

namespace gpurun::server {

// Errors name the setting. Everything that can fail fails here, and not when the first client
// attaches.
Result<ProcessSettings> worker_settings(const Config& config);
SpareOptions spare_options(const Config& config);

// Adds the facts that are the same for every worker and that only the driver knows.
Status add_facts(const ServerFacts& facts, ProcessSettings* settings);
// Logs the confinement of workers.
void say_confinement(const ProcessSettings& settings, const ServerFacts& facts);

}  // namespace gpurun::server
