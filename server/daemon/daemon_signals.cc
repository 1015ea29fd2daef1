// Signals: the handlers only set flags of the daemon and wake it.
#include "server/daemon/daemon_signals.h"

#include <signal.h>

#include <atomic>

#include "server/daemon/daemon.h"

namespace gpurun::server {
namespace {

constexpr int kStops[] = {SIGTERM, SIGINT, SIGQUIT};
constexpr int kStray[] = {SIGHUP,    SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM,
                          SIGVTALRM, SIGPROF, SIGIO,   SIGPWR,  SIGSTKFLT};

std::atomic<Daemon*> serving = nullptr;
static_assert(std::atomic<Daemon*>::is_always_lock_free);

extern "C" void stop_serving(int) {
  if (Daemon* const daemon = serving.load()) daemon->stop();
}

extern "C" void read_again(int) {
  if (Daemon* const daemon = serving.load()) daemon->reload();
}

void handle(int number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigaction(number, &action, nullptr);
}

}  // namespace

void ignore_stray_signals() {
  for (const int number : kStray) handle(number, SIG_IGN);
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) handle(number, SIG_IGN);
}

void direct_signals(Daemon* daemon) {
  serving = daemon;
  for (const int number : kStops) handle(number, stop_serving);
  handle(SIGHUP, read_again);
}

}  // namespace gpurun::server
