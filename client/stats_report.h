// The report of a session's statistics: what `gpurun --stats` prints for each process, and what
// tests read.
#pragma once

#include <span>
#include <string>

#include "client/stats.h"

namespace gpurun::client {

// Who is reported, and what happened besides calls.
struct StatsSubject {
  std::string program;  // File name of the program.
  int process = 0;      // Its id on this machine.
  std::string server;   // "host:port"
  // Round trips between the first connect and the session's start: the connects, made at once,
  // and the worker's answer.
  unsigned attach_round_trips = 0;
};

// A table for people: one line per function of which something was sent, longest wait first, and
// the sum.
std::string statistics_table(const StatsSubject& subject, std::span<const Stats::Row> rows);
// One line of JSON, ended by a newline:
//   {"program":"x","process":1,"server":"h:p","attach_round_trips":3,"blocking_round_trips":5,
//    "completion_waits":2,"calls":9,"bytes":1,"waited_us":1,"functions":[{"name":"cuMemFree",
//    "entries":..,"calls":..,"fences":..,"waits":..,"bytes":..,"waited_us":..}, ...]}
// `entries`: how often the program called it; `calls`: how often something was sent for it.
// `blocking_round_trips` is the fences of all functions and those of the attach. `waits` sent
// nothing: the thread waited for the news, under way unasked, that an event is complete; beyond the
// device's own time that is at most a round trip.
std::string statistics_json(const StatsSubject& subject, std::span<const Stats::Row> rows);

}  // namespace gpurun::client
