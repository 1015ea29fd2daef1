// Tells systemd how the daemon fares, where systemd asked for it (sd_notify(3)'s protocol: a
// datagram to the socket that NOTIFY_SOCKET names). Without libsystemd, and a no-op elsewhere.
#pragma once

#include <string>

namespace gpurun::server {

// `state` is lines of NAME=value: "READY=1\nSTATUS=2 GPUs". Errors are nobody's business.
void notify_service_manager(const std::string& state);
// That it reads its configuration again, until READY=1 comes anew.
void notify_reloading();

}  // namespace gpurun::server
