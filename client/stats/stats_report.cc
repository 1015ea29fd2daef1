// Statistics report: the table that a run ends with, and the reasons why it was slower than local.
#include "client/stats/stats_report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "driver_abi/opcodes.h"
#include "driver_abi/row.h"

namespace gpurun::client {
namespace {

using Nanoseconds = std::chrono::nanoseconds;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void append(std::string* text, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length > 0) text->append(line, std::min(static_cast<std::size_t>(length), sizeof line - 1));
}

using Number = unsigned long long;  // For printf.

Nanoseconds time_of(std::uint64_t nanoseconds) {
  return Nanoseconds(static_cast<std::int64_t>(nanoseconds));
}

const char* function_name(std::uint16_t opcode) {
  const driver_abi::Row* row = driver_abi::find_row(opcode);
  return row == nullptr ? "(other)" : row->symbol;
}

Stats::Row sum_of(const std::vector<Stats::Row>& rows) {
  Stats::Row sum;
  for (const Stats::Row& row : rows) {
    sum.calls += row.calls;
    sum.fences += row.fences;
    sum.waits += row.waits;
    sum.record_bytes += row.record_bytes;
    sum.sent_bytes += row.sent_bytes;
    sum.received_bytes += row.received_bytes;
    sum.reached_bytes += row.reached_bytes;
    sum.pulled_bytes += row.pulled_bytes;
    sum.written_bytes += row.written_bytes;
    sum.waited += row.waited;
    sum.longest = std::max(sum.longest, row.longest);
  }
  return sum;
}

// Waits of our own threads, until a stream reaches a function of the program. No thread of the
// program waits.
std::uint64_t host_functions(const Statistics& statistics) {
  const auto found = std::find_if(
      statistics.rows.begin(), statistics.rows.end(),
      [](const Stats::Row& row) { return row.opcode == driver_abi::opcode::cuLaunchHostFunc; });
  return found == statistics.rows.end() ? 0 : found->fences;
}

std::uint64_t round_trips(const StatsSubject& subject, const Statistics& statistics,
                          const Stats::Row& sum) {
  return sum.fences - host_functions(statistics) + subject.attach_round_trips +
         statistics.worker_questions;
}

double microseconds(Nanoseconds time) { return static_cast<double>(time.count()) / 1000.0; }
double milliseconds(Nanoseconds time) { return microseconds(time) / 1000.0; }

// File and host names may contain anything.
std::string json_string(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      append(&quoted, "\\u%04x", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::size_t sizes_seen(const Stats::Sizes& sizes) {
  std::size_t seen = sizes.size();
  while (seen > 0 && sizes[seen - 1] == 0) --seen;
  return seen;
}

std::string json_sizes(const Stats::Sizes& sizes) {
  std::string text = "[";
  for (std::size_t i = 0; i < sizes_seen(sizes); ++i) {
    append(&text, "%s%llu", i == 0 ? "" : ",", Number{sizes[i]});
  }
  return text + "]";
}

// "1: 400, 2-3: 12, 64-127: 3", without the empty classes.
std::string shown_sizes(const Stats::Sizes& sizes) {
  std::string text;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) continue;
    const Number least = Number{1} << i;
    text += text.empty() ? "" : ", ";
    if (i + 1 == sizes.size()) {
      append(&text, "from %llu on", least);
    } else if (i == 0) {
      text += "1";
    } else {
      append(&text, "%llu-%llu", least, 2 * least - 1);
    }
    append(&text, ": %llu", Number{sizes[i]});
  }
  return text;
}

void append_batches(std::string* text, const Stats::Batches& batches) {
  if (batches.count == 0) return;
  const auto count = static_cast<double>(batches.count);
  append(text, "batches sent: %llu, on average %.1f calls and %.0f bytes\n", Number{batches.count},
         static_cast<double>(batches.records) / count, static_cast<double>(batches.bytes) / count);
  if (batches.wire_bytes != batches.bytes) {
    append(text, "  %llu bytes, sent in %llu\n", Number{batches.bytes}, Number{batches.wire_bytes});
  }
  *text += "  by calls: " + shown_sizes(batches.by_records) + "\n";
  *text += "  by bytes: " + shown_sizes(batches.by_bytes) + "\n";
  append(text, "the sender slept %llu times and was woken %llu times\n",
         Number{batches.sender_sleeps}, Number{batches.sender_wakes});
}

const protocol::WorkerRow* worker_row(const Statistics& statistics, std::uint16_t opcode) {
  if (!statistics.worker) return nullptr;
  for (const protocol::WorkerRow& row : statistics.worker->rows) {
    if (row.opcode == opcode) return &row;
  }
  return nullptr;
}

void append_worker(std::string* text, const Statistics& statistics) {
  if (!statistics.no_worker.empty()) {
    *text += "no numbers of the worker: " + statistics.no_worker + "\n";
  }
  if (!statistics.worker) return;
  append(text, "%-38s %9s %8s %12s %11s %11s %11s %14s %14s\n", "in the worker", "calls", "failed",
         "driver ms", "longest ms", "queued ms", "longest ms", "bytes in", "bytes out");
  std::vector<protocol::WorkerRow> rows = statistics.worker->rows;
  std::stable_sort(rows.begin(), rows.end(), [](const auto& left, const auto& right) {
    return left.driver_ns > right.driver_ns;
  });
  for (const protocol::WorkerRow& row : rows) {
    append(text, "%-38s %9llu %8llu %12.3f %11.3f %11.3f %11.3f %14llu %14llu\n",
           function_name(row.opcode), Number{row.calls}, Number{row.failures},
           milliseconds(time_of(row.driver_ns)), milliseconds(time_of(row.driver_longest_ns)),
           milliseconds(time_of(row.queue_ns)), milliseconds(time_of(row.queue_longest_ns)),
           Number{row.bytes_in}, Number{row.bytes_out});
  }
  const protocol::WorkerTotals& totals = statistics.worker->totals;
  append(text, "batches that came: %llu, of %llu calls; replies: %llu in %llu frames, %llu bytes\n",
         Number{totals.batches}, Number{totals.batch_records}, Number{totals.reply_items},
         Number{totals.reply_frames}, Number{totals.reply_bytes});
  append(text, "pushed completions of events: %llu\n", Number{totals.events_told});
}

std::string json_batches(const protocol::WorkerTotals& totals) {
  std::string text;
  append(&text,
         "{\"count\":%llu,\"records\":%llu,\"bytes\":%llu,\"by_records\":", Number{totals.batches},
         Number{totals.batch_records}, Number{totals.batch_bytes});
  return text + json_sizes(totals.batches_by_records) + "}";
}

std::string json_worker(const protocol::WorkerStatistics& worker) {
  const protocol::WorkerTotals& totals = worker.totals;
  std::string text = "{\"batches\":" + json_batches(totals);
  append(&text, ",\"replies\":{\"frames\":%llu,\"items\":%llu,\"bytes\":%llu,\"by_items\":",
         Number{totals.reply_frames}, Number{totals.reply_items}, Number{totals.reply_bytes});
  text += json_sizes(totals.frames_by_items) + "}";
  append(&text, ",\"events_told\":%llu,\"functions\":[", Number{totals.events_told});
  const char* separator = "";
  for (const protocol::WorkerRow& row : worker.rows) {
    append(&text,
           "%s{\"name\":\"%s\",\"calls\":%llu,\"failures\":%llu,\"driver_us\":%.3f,"
           "\"driver_longest_us\":%.3f,\"queue_us\":%.3f,\"queue_longest_us\":%.3f,"
           "\"bytes_in\":%llu,\"bytes_out\":%llu}",
           separator, function_name(row.opcode), Number{row.calls}, Number{row.failures},
           microseconds(time_of(row.driver_ns)), microseconds(time_of(row.driver_longest_ns)),
           microseconds(time_of(row.queue_ns)), microseconds(time_of(row.queue_longest_ns)),
           Number{row.bytes_in}, Number{row.bytes_out});
    separator = ",";
  }
  return text + "]}";
}

// The waits that a local run would not have had, longest first.
void append_reasons(std::string* text, const StatsSubject& subject, const Statistics& statistics) {
  constexpr std::size_t kReasonsMax = 5;
  std::vector<std::pair<Nanoseconds, std::string>> reasons;
  for (const Stats::Row& row : statistics.rows) {
    if (row.waited.count() == 0) continue;
    std::string reason;
    append(&reason, "%s waited %.3f ms (%llu round trips, %llu waits; the longest %.3f ms)",
           function_name(row.opcode), milliseconds(row.waited), Number{row.fences},
           Number{row.waits}, milliseconds(row.longest));
    if (const auto* there = worker_row(statistics, row.opcode); there != nullptr) {
      append(&reason, "; there %.3f ms in the driver, %.3f ms queued",
             milliseconds(time_of(there->driver_ns)), milliseconds(time_of(there->queue_ns)));
    }
    reasons.emplace_back(row.waited, std::move(reason));
  }
  const Stats::Batches& batches = statistics.batches;
  if (batches.full_logs != 0) {
    std::string reason;
    append(&reason, "calls waited %.3f ms for room in the log (%llu times): the server is slower",
           milliseconds(batches.full_log_waited), Number{batches.full_logs});
    reasons.emplace_back(batches.full_log_waited, std::move(reason));
  }
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& left, const auto& right) { return left.first > right.first; });
  if (reasons.size() > kReasonsMax) reasons.resize(kReasonsMax);
  if (reasons.empty() && subject.attach_round_trips == 0) return;
  *text += "what it waited for, the device's own work included:\n";
  for (const auto& [time, reason] : reasons) *text += "  " + reason + "\n";
  append(text, "  and %u round trips to attach\n", subject.attach_round_trips);
}

std::string transport_in_the_end(const StatsSubject& subject) {
  if (subject.left.count == 0) return subject.transport;
  if (subject.left.count == subject.left.of) return subject.socket_transport;
  return subject.transport + ", and over " + subject.socket_transport;
}

// Nothing where the session has no RDMA.
void append_pulls(std::string* text, const StatsSubject& subject, std::uint64_t bytes) {
  if (bytes != 0) {
    append(text, "bytes of copies that the server read out of this process's memory: %llu\n",
           Number{bytes});
  }
  if (subject.direct_bytes != 0) {
    append(text, "of these, straight into GPU memory (GPUDirect): %llu\n",
           Number{subject.direct_bytes});
  }
  if (subject.pulls_sent != 0) {
    append(text, "such copies that this process sent after all: %llu\n",
           Number{subject.pulls_sent});
  }
  if (subject.not_pulled != 0) {
    append(text, "large copies that the server could not read: %llu (%.300s)\n",
           Number{subject.not_pulled}, subject.why_not_pulled.c_str());
  }
}

void append_writes(std::string* text, const StatsSubject& subject, std::uint64_t bytes) {
  if (bytes != 0) {
    append(text, "bytes of copies that the server wrote into this process's memory: %llu\n",
           Number{bytes});
  }
  if (subject.not_written != 0) {
    append(text, "large copies that the server could not write: %llu (%.300s)\n",
           Number{subject.not_written}, subject.why_not_written.c_str());
  }
}

void append_refusals(std::string* text, const protocol::WorkerRefusals& refusals) {
  const auto line = [text](const char* what, const std::string& why) {
    if (!why.empty()) append(text, "the server does not %s: %.350s\n", what, why.c_str());
  };
  line("read large copies by itself", refusals.reads);
  line("write large copies by itself", refusals.writes);
  line("read straight into GPU memory", refusals.gpu_memory);
}

}  // namespace

bool may_have_refusals(const Statistics& statistics) {
  const Stats::Row sum = sum_of(statistics.rows);
  return sum.pulled_bytes != 0 || sum.written_bytes != 0;
}

std::string statistics_table(const StatsSubject& subject, const Statistics& statistics) {
  std::string text;
  append(&text, "gpurun: %.200s (process %d) on %.200s\n", subject.program.c_str(), subject.process,
         subject.server.c_str());
  if (!subject.transport.empty()) text += "over " + transport_in_the_end(subject) + "\n";
  if (subject.left.count != 0) {
    append(&text, "at first over %.300s", subject.transport.c_str());
    append(&text, ", until %u of %u connections left it: ", subject.left.count, subject.left.of);
    text += subject.left.why + "\n";
  }
  for (const transport::Rejected& each : subject.rejected) {
    append(&text, "not over %.100s: %.300s\n", each.name.c_str(), each.reason.c_str());
  }
  append(&text, "%-38s %9s %7s %12s %12s %11s %11s\n", "function", "calls", "fences", "bytes there",
         "bytes back", "waited ms", "longest ms");
  const auto line = [&text](const char* name, const Stats::Row& row) {
    append(&text, "%-38s %9llu %7llu %12llu %12llu %11.3f %11.3f\n", name, Number{row.calls},
           Number{row.fences}, Number{row.record_bytes + row.sent_bytes},
           Number{row.received_bytes}, milliseconds(row.waited), milliseconds(row.longest));
  };
  for (const Stats::Row& row : statistics.rows) {
    if (row.calls != 0) line(function_name(row.opcode), row);
  }
  const Stats::Row sum = sum_of(statistics.rows);
  line("all", sum);
  append(&text, "blocking round trips: %llu, of them %u to attach",
         Number{round_trips(subject, statistics, sum)}, subject.attach_round_trips);
  if (statistics.worker_questions != 0) {
    append(&text, ", and %u to ask for the worker's numbers", statistics.worker_questions);
  }
  text += "\n";
  if (const std::uint64_t turns = host_functions(statistics); turns != 0) {
    append(&text, "functions of the program that ran between a stream's work: %llu\n",
           Number{turns});
  }
  append(&text,
         "waits for an event's completion, each up to a round trip, but nothing sent: %llu\n",
         Number{sum.waits});
  append(&text, "bytes of copies that the device moved by itself, which did not travel: %llu\n",
         Number{sum.reached_bytes});
  append_pulls(&text, subject, sum.pulled_bytes);
  append_writes(&text, subject, sum.written_bytes);
  append_refusals(&text, statistics.refusals);
  append(&text, "connections for copies to the device: %u in the end, at most %u\n",
         subject.bulk_connections, subject.bulk_connections_most);
  append(&text, "connections for copies from the device: %u in the end, at most %u\n",
         subject.bulk_connections_out, subject.bulk_connections_out_most);
  append_batches(&text, statistics.batches);
  append_worker(&text, statistics);
  append_reasons(&text, subject, statistics);
  return text;
}

std::string statistics_json(const StatsSubject& subject, const Statistics& statistics) {
  const Stats::Row sum = sum_of(statistics.rows);
  const Stats::Batches& batches = statistics.batches;
  std::string text = "{\"program\":" + json_string(subject.program);
  append(&text, ",\"process\":%d,\"server\":", subject.process);
  text += json_string(subject.server);
  text += ",\"transport\":" + json_string(transport_in_the_end(subject));
  text += ",\"transport_at_first\":" + json_string(subject.transport);
  append(&text, ",\"connections\":%u,\"connections_that_left\":%u", subject.left.of,
         subject.left.count);
  text += ",\"why_left\":" + json_string(subject.left.why) + ",\"rejected\":[";
  for (const transport::Rejected& each : subject.rejected) {
    text += &each == &subject.rejected.front() ? "{" : ",{";
    text +=
        "\"transport\":" + json_string(each.name) + ",\"reason\":" + json_string(each.reason) + "}";
  }
  append(&text, "],\"attach_round_trips\":%u,\"bulk_connections\":%u", subject.attach_round_trips,
         subject.bulk_connections);
  append(&text, ",\"bulk_connections_out\":%u,\"bulk_connections_out_most\":%u",
         subject.bulk_connections_out, subject.bulk_connections_out_most);
  append(&text, ",\"bulk_connections_most\":%u,\"report_round_trips\":%u",
         subject.bulk_connections_most, statistics.worker_questions);
  append(&text, ",\"pulled_bytes\":%llu,\"direct_bytes\":%llu,\"pulls_sent\":%llu",
         Number{sum.pulled_bytes}, Number{subject.direct_bytes}, Number{subject.pulls_sent});
  append(&text, ",\"not_pulled\":{\"copies\":%llu", Number{subject.not_pulled});
  text += ",\"reason\":" + json_string(subject.why_not_pulled) + "}";
  append(&text, ",\"written_bytes\":%llu,\"not_written\":{\"copies\":%llu",
         Number{sum.written_bytes}, Number{subject.not_written});
  text += ",\"reason\":" + json_string(subject.why_not_written) + "}";
  text += ",\"server_refuses\":{\"reads\":" + json_string(statistics.refusals.reads) +
          ",\"writes\":" + json_string(statistics.refusals.writes) +
          ",\"gpu_memory\":" + json_string(statistics.refusals.gpu_memory) + "}";
  append(&text, ",\"blocking_round_trips\":%llu", Number{round_trips(subject, statistics, sum)});
  append(&text, ",\"completion_waits\":%llu,\"host_functions\":%llu", Number{sum.waits},
         Number{host_functions(statistics)});
  append(&text, ",\"calls\":%llu,\"bytes\":%llu,\"waited_us\":%.3f", Number{sum.calls},
         Number{sum.bytes()}, microseconds(sum.waited));
  append(&text, ",\"batches\":{\"count\":%llu,\"records\":%llu,\"bytes\":%llu,\"wire_bytes\":%llu",
         Number{batches.count}, Number{batches.records}, Number{batches.bytes},
         Number{batches.wire_bytes});
  text += ",\"by_records\":" + json_sizes(batches.by_records);
  text += ",\"by_bytes\":" + json_sizes(batches.by_bytes) + "}";
  append(&text, ",\"full_log_waits\":%llu,\"full_log_waited_us\":%.3f", Number{batches.full_logs},
         microseconds(batches.full_log_waited));
  append(&text, ",\"sender_sleeps\":%llu,\"sender_wakes\":%llu,\"functions\":[",
         Number{batches.sender_sleeps}, Number{batches.sender_wakes});
  const char* separator = "";
  for (const Stats::Row& row : statistics.rows) {
    append(&text,
           "%s{\"name\":\"%s\",\"entries\":%llu,\"calls\":%llu,\"fences\":%llu,\"waits\":%llu,"
           "\"bytes\":%llu,\"record_bytes\":%llu,\"sent_bytes\":%llu,\"received_bytes\":%llu,"
           "\"reached_bytes\":%llu,\"waited_us\":%.3f,\"longest_us\":%.3f}",
           separator, function_name(row.opcode), Number{row.entries}, Number{row.calls},
           Number{row.fences}, Number{row.waits}, Number{row.bytes()}, Number{row.record_bytes},
           Number{row.sent_bytes}, Number{row.received_bytes}, Number{row.reached_bytes},
           microseconds(row.waited), microseconds(row.longest));
    separator = ",";
  }
  text += "]";
  if (statistics.worker) text += ",\"worker\":" + json_worker(*statistics.worker);
  return text + "}\n";
}

}  // namespace gpurun::client
