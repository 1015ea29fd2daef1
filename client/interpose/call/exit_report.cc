// Exit report: prints the statistics when the program ends, for GPURUN_STATS=1, and writes its
// trace, for GPURUN_TRACE.
//
// A destructor of the library runs after the exit handlers of the program and of CUDA's runtime, so
// their calls are counted too. A program that ends by _exit or a signal prints nothing.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "base/file_io.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "client/bulk/bulk.h"
#include "client/interpose/call/process.h"
#include "client/session/worker_statistics.h"
#include "client/stats/stats.h"
#include "client/stats/stats_report.h"
#include "client/stats/trace.h"
#include "protocol/control/features.h"

namespace gpurun::client::interpose {
namespace {

// The counts so far are the program's. The question to the worker is ours, so it comes last.
void add_worker(const Process& process, Statistics* statistics) {
  if ((process.features & protocol::feature_bit(protocol::Feature::kCounting)) == 0) {
    statistics->no_worker = "the server (gpurun " + process.server_release + ") does not count";
    return;
  }
  const bool large = may_have_refusals(*statistics);
  auto worker = ask_statistics(*process.session, kStatisticsPatience);
  ++statistics->worker_questions;
  if (!worker.ok()) {
    statistics->no_worker = worker.status().message();
    return;
  }
  statistics->worker = *std::move(worker);
  if (!large) return;
  auto refusals = ask_refusals(*process.session, kStatisticsPatience);
  ++statistics->worker_questions;
  if (refusals.ok()) statistics->refusals = *std::move(refusals);
}

void print_statistics(const Process& process) {
  StatsSubject subject;
  subject.program = program_invocation_short_name;
  subject.process = getpid();
  subject.server = process.server;
  subject.attach_round_trips = process.attach_round_trips;
  subject.transport = process.transport;
  subject.rejected = process.rejected;
  subject.left = process.session->connections_that_left();
  subject.socket_transport = process.socket_transport;
  const Session::Pulls pulls = process.session->pulls();
  subject.not_pulled = pulls.refused;
  subject.why_not_pulled = pulls.reason;
  subject.pulls_sent = pulls.sent;
  subject.not_written = pulls.unwritten;
  subject.why_not_written = pulls.why_unwritten;
  subject.direct_bytes = pulls.direct_bytes;
  subject.bulk_connections = process.session->bulk().used().now;
  subject.bulk_connections_most = process.session->bulk().used().most;
  subject.bulk_connections_out = process.session->bulk().used_from_device().now;
  subject.bulk_connections_out_most = process.session->bulk().used_from_device().most;
  Statistics statistics = statistics_of(process.session->stats());
  add_worker(process, &statistics);
  const char* path = getenv("GPURUN_STATS_FILE");
  if (path == nullptr || *path == '\0') {
    // The reader may be gone.
    static_cast<void>(write_whole(STDERR_FILENO, statistics_table(subject, statistics), "stderr"));
    return;
  }
  // Several processes of a run append to one file: one line each, in one write.
  const UniqueFd file(open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (file.valid()) {
    static_cast<void>(write_whole(file.get(), statistics_json(subject, statistics), path));
  }
}

void trace(const Process& process) {
  Recorder& recorder = *process.session->stats().recorder();
  protocol::TraceFile file;
  file.program = program_invocation_short_name;
  file.server = process.server;
  file.process = getpid();
  file.clocks = recorder.clocks();
  file.no_worker = recorder.no_worker();
  // Must come first: from here on the program's threads record nothing.
  file.client = protocol::encode(recorder.take());
  if (file.no_worker.empty()) {
    auto worker = ask_recording(*process.session, kRecordingPatience);
    if (worker.ok()) {
      file.worker = std::move(worker->bytes);
      file.clocks.insert(file.clocks.end(), worker->clocks.begin(), worker->clocks.end());
    } else {
      file.no_worker = worker.status().message();
    }
  }
  const Status written = write_trace_file(recorder.folder(), file);
  if (!written.ok()) {
    GPURUN_LOG(kWarning, "no trace is left of this process: %s", written.message().c_str());
  }
}

void report() {
  const Process* process = connected_already();
  if (process == nullptr) return;
  if (process->session->stats().wanted()) print_statistics(*process);
  if (process->session->stats().recorder() != nullptr) trace(*process);
}

[[gnu::destructor]] void report_at_exit() {
  try {
    report();
  } catch (...) {
    // Memory ran out while the program ended. It ends without a report.
  }
}

}  // namespace
}  // namespace gpurun::client::interpose
