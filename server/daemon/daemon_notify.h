// Service notifications: tells systemd the daemon's state, where systemd asked for it. This is
// sd_notify(3)'s protocol, a datagram to the socket that NOTIFY_SOCKET names. It needs no
// libsystemd, and does nothing elsewhere.
#pragma once

#include <string>

namespace gpurun::server {

// `state` has lines of NAME=value: "READY=1\nSTATUS=2 GPUs". Errors are ignored.
void notify_service_manager(const std::string& state);
// Reports that the daemon reads its configuration again, until the next READY=1.
void notify_reloading();

}  // namespace gpurun::server
