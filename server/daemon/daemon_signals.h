// The signals of the process gpurund. SIGTERM, SIGINT and SIGQUIT stop it, SIGHUP has it read its
// configuration again, and no other signal that ends a process by default does that here, but those
// of a fault and SIGKILL.
#pragma once

namespace gpurun::server {

class Daemon;

// Before there is a daemon: ignores what would not stop it.
void ignore_stray_signals();
// From now on signals are for `daemon`; nullptr: they do nothing, because it has ended.
void direct_signals(Daemon* daemon);

}  // namespace gpurun::server
