// The table that a run ends with, and the reasons why it was slower than local.
#include "client/stats_report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "driver_abi/row.h"

namespace gpurun::client {
namespace {

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

const char* function_name(std::uint16_t opcode) {
  const driver_abi::Row* row = driver_abi::find_row(opcode);
  return row == nullptr ? "(other)" : row->symbol;
}

Stats::Row sum_of(std::span<const Stats::Row> rows) {
  Stats::Row sum;
  for (const Stats::Row& row : rows) {
    sum.calls += row.calls;
    sum.fences += row.fences;
    sum.waits += row.waits;
    sum.bytes += row.bytes;
    sum.waited += row.waited;
  }
  return sum;
}

double microseconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) / 1000.0;
}

// File and host names may hold anything.
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

}  // namespace

std::string statistics_table(const StatsSubject& subject, std::span<const Stats::Row> rows) {
  std::string text;
  append(&text, "gpurun: %.200s (process %d) on %.200s\n", subject.program.c_str(), subject.process,
         subject.server.c_str());
  append(&text, "%-44s %10s %8s %14s %12s\n", "function", "calls", "fences", "bytes", "waited ms");
  const auto line = [&text](const char* name, const Stats::Row& row) {
    append(&text, "%-44s %10llu %8llu %14llu %12.3f\n", name,
           static_cast<unsigned long long>(row.calls), static_cast<unsigned long long>(row.fences),
           static_cast<unsigned long long>(row.bytes), microseconds(row.waited) / 1000.0);
  };
  for (const Stats::Row& row : rows) {
    if (row.calls != 0) line(function_name(row.opcode), row);
  }
  const Stats::Row sum = sum_of(rows);
  line("all", sum);
  append(&text, "blocking round trips: %llu, of them %u to attach\n",
         static_cast<unsigned long long>(sum.fences) + subject.attach_round_trips,
         subject.attach_round_trips);
  append(&text,
         "waits for an event's completion, each up to a round trip, but nothing sent: %llu\n",
         static_cast<unsigned long long>(sum.waits));
  return text;
}

std::string statistics_json(const StatsSubject& subject, std::span<const Stats::Row> rows) {
  const Stats::Row sum = sum_of(rows);
  std::string text = "{\"program\":" + json_string(subject.program);
  append(&text, ",\"process\":%d,\"server\":", subject.process);
  text += json_string(subject.server);
  append(&text, ",\"attach_round_trips\":%u,\"blocking_round_trips\":%llu",
         subject.attach_round_trips,
         static_cast<unsigned long long>(sum.fences) + subject.attach_round_trips);
  append(&text, ",\"completion_waits\":%llu", static_cast<unsigned long long>(sum.waits));
  append(&text, ",\"calls\":%llu,\"bytes\":%llu,\"waited_us\":%.3f,\"functions\":[",
         static_cast<unsigned long long>(sum.calls), static_cast<unsigned long long>(sum.bytes),
         microseconds(sum.waited));
  const char* separator = "";
  for (const Stats::Row& row : rows) {
    append(&text,
           "%s{\"name\":\"%s\",\"entries\":%llu,\"calls\":%llu,\"fences\":%llu,\"waits\":%llu,"
           "\"bytes\":%llu,\"waited_us\":%.3f}",
           separator, function_name(row.opcode), static_cast<unsigned long long>(row.entries),
           static_cast<unsigned long long>(row.calls), static_cast<unsigned long long>(row.fences),
           static_cast<unsigned long long>(row.waits), static_cast<unsigned long long>(row.bytes),
           microseconds(row.waited));
    separator = ",";
  }
  return text + "]}\n";
}

}  // namespace gpurun::client
