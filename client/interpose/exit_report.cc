// Prints the statistics when the program ends, for GPURUN_STATS=1.
//
// A destructor of the library runs after the program's own exit handlers and those of CUDA's
// runtime, whose calls count too. A program that ends by _exit or a signal prints nothing.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/unique_fd.h"
#include "client/interpose/process.h"
#include "client/stats.h"
#include "client/stats_report.h"

namespace gpurun::client::interpose {
namespace {

void write_all(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // Nobody is left to tell.
    done += static_cast<std::size_t>(written);
  }
}

void report() {
  const Process* process = connected_already();
  if (process == nullptr || !process->session->stats().enabled()) return;
  StatsSubject subject;
  subject.program = program_invocation_short_name;
  subject.process = getpid();
  subject.server = process->server;
  subject.attach_round_trips = process->attach_round_trips;
  const auto rows = process->session->stats().rows();
  const char* path = getenv("GPURUN_STATS_FILE");
  if (path == nullptr || *path == '\0') {
    write_all(STDERR_FILENO, statistics_table(subject, rows));
    return;
  }
  // Several processes of a run append to one file: a line each, in one write.
  const UniqueFd file(open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (file.get() >= 0) write_all(file.get(), statistics_json(subject, rows));
}

[[gnu::destructor]] void report_at_exit() {
  try {
    report();
  } catch (...) {
    // Memory ran out while the program ended: it goes without a report.
  }
}

}  // namespace
}  // namespace gpurun::client::interpose
