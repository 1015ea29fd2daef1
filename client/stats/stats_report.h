// Statistics report: what `gpurun --stats` prints for each process, and what tests read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/stats/connections_that_left.h"
#include "client/stats/stats.h"
#include "protocol/statistics/worker_refusals.h"
#include "protocol/statistics/worker_statistics.h"
#include "transport/rejected.h"

namespace gpurun::client {

// The process that is reported, and what happened besides calls.
struct StatsSubject {
  std::string program;  // File name of the program.
  int process = 0;      // Its id on this machine.
  std::string server;   // "host:port"
  // Round trips from the first connect to the session's start: the connects (made at once), any TLS
  // handshakes, and the worker's answer.
  unsigned attach_round_trips = 0;
  // Connections that copies to the device used in the end, and the most that were tried.
  unsigned bulk_connections = 0;
  unsigned bulk_connections_most = 0;
  // Connections that copies from the device used in the end, and the most that were tried.
  unsigned bulk_connections_out = 1;
  unsigned bulk_connections_out_most = 1;
  std::string transport = {};  // With which the session began: Attached::transport.
  // The transports and ports that would have come first.
  std::vector<transport::Rejected> rejected = {};
  // Those that have left this transport, and what carries their bytes since.
  ConnectionsThatLeft left = {};
  std::string socket_transport = {};
  // As Session::pulls(): large copies that the worker was not to read, and the last reason. Of the
  // others, those that this process sent after all.
  std::uint64_t not_pulled = 0;
  std::string why_not_pulled = {};
  std::uint64_t pulls_sent = 0;
  // Large results that the worker was not to write, and the last reason.
  std::uint64_t not_written = 0;
  std::string why_not_written = {};
  std::uint64_t direct_bytes = 0;  // Of pulled bytes, those that went straight into GPU memory.
};

// What is reported.
struct Statistics {
  std::vector<Stats::Row> rows;
  Stats::Batches batches;
  // The worker was asked so often at the end. Each question cost a round trip whether or not an
  // answer came.
  unsigned worker_questions = 0;
  std::optional<protocol::WorkerStatistics> worker;
  std::string no_worker;  // The reason why the worker sent no numbers. Empty: not requested.
  protocol::WorkerRefusals refusals;  // Empty: none, or not requested.
};
inline Statistics statistics_of(const Stats& stats) {
  Statistics result;
  result.rows = stats.rows();
  result.batches = stats.batches();
  return result;
}

// Whether the worker's device was to move large copies, so that the worker may have refusals.
bool may_have_refusals(const Statistics& statistics);

// Returns a table for people. It has one line per function that sent something, longest wait first,
// and the sum. It also shows how calls were sent, what the worker counted, and what kept the
// program waiting, most first.
std::string statistics_table(const StatsSubject& subject, const Statistics& statistics);
// Returns one line of JSON, ended by a newline:
//   `{"program":"x","process":1,"server":"h:p","transport":"TCP, not encrypted",
//    "transport_at_first":"TCP, not encrypted","connections":2,"connections_that_left":0,
//    "why_left":"","rejected":[{"transport":"shared memory","reason":".."}, ...],
//    "attach_round_trips":3,"bulk_connections":1,
//    "bulk_connections_most":2,"bulk_connections_out":1,"bulk_connections_out_most":1,
//    "pulled_bytes":0,"direct_bytes":0,"pulls_sent":0,"not_pulled":{"copies":0,"reason":""},
//    "written_bytes":0,"not_written":{"copies":0,"reason":""},
//    "server_refuses":{"reads":"","writes":"","gpu_memory":""},
//    "blocking_round_trips":5,
//    "completion_waits":2,"host_functions":0,"calls":9,"bytes":1,"waited_us":1,
//    "batches":{"count":..,"records":..,"bytes":..,"by_records":[..],"by_bytes":[..]},
//    "full_log_waits":..,"full_log_waited_us":..,"sender_sleeps":..,"sender_wakes":..,
//    "functions":[{"name":"cuMemFree","entries":..,"calls":..,"fences":..,"waits":..,"bytes":..,
//    "record_bytes":..,"sent_bytes":..,"received_bytes":..,"waited_us":..,"longest_us":..}, ...],
//    "worker":{"batches":{as above},"replies":{"frames":..,"items":..,"bytes":..,"by_items":[..]},
//    "events_told":..,"functions":[{"name":"cuMemFree","calls":..,"failures":..,"driver_us":..,
//    "driver_longest_us":..,"queue_us":..,"queue_longest_us":..}, ...]}}`
// `entries`: how often the program called it. `calls`: how often something was sent for it.
// `blocking_round_trips` is the fences of all functions, those of the attach, and those for the
// worker's numbers. `host_functions` are not among them, although they are the fences of
// cuLaunchHostFunc: our own thread waits until a stream reaches a function of the program.
// `report_round_trips` are those last ones, and "worker" is missing if no answer
// came. `waits` sent nothing: the thread waited for news that an event is complete, which were
// under way unasked. Beyond the device's own time, such a wait is at most a round trip.
// `by_records`, `by_bytes`: batches of 1, of 2 to 3, of 4 to 7, ... records or bytes, without the
// zeros at the end.
std::string statistics_json(const StatsSubject& subject, const Statistics& statistics);

}  // namespace gpurun::client
