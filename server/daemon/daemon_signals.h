// Signals of the process gpurund. SIGTERM, SIGINT and SIGQUIT stop it, and SIGHUP makes it read its
// configuration again. Other signals that end a process by default do not end it, except SIGKILL
// and those of a fault.
#pragma once

namespace gpurun::server {

class Daemon;

// Call before there is a daemon. Ignores the signals that must not end it.
void ignore_stray_signals();
// Directs signals to `daemon`. nullptr: they do nothing, because it has ended.
void direct_signals(Daemon* daemon);

}  // namespace gpurun::server
