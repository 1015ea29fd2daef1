// Timeline: events become slices, and sequence numbers become flows.
#include "tools/gpuctl/timeline.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "driver_abi/row.h"
#include "protocol/control/control.h"
#include "protocol/log/record.h"

namespace gpurun::tools {
namespace {

using protocol::ClockSample;
using protocol::Recorded;
using protocol::RecordedEvent;

std::string function_name(std::uint16_t opcode) {
  const driver_abi::Row* row = driver_abi::find_row(opcode);
  return row == nullptr ? "function " + std::to_string(opcode) : row->symbol;
}

// A peer may send any time. A time outside of this run is moved to the farthest number.
std::int64_t signed_time(std::uint64_t nanoseconds) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / 4);
  return static_cast<std::int64_t>(std::min(nanoseconds, kMost));
}

std::string hexadecimal(std::uint64_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

// Microseconds, as the format needs them.
std::string microseconds(std::int64_t nanoseconds) {
  const bool negative = nanoseconds < 0;
  const std::int64_t size = negative ? -nanoseconds : nanoseconds;
  char text[48];
  std::snprintf(text, sizeof text, "%s%lld.%03lld", negative ? "-" : "",
                static_cast<long long>(size / 1000), static_cast<long long>(size % 1000));
  return text;
}

struct Slice {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::string arguments;       // JSON members.
  std::uint64_t sequence = 0;  // 0: joined to nothing.
};

const ClockSample& best_of(std::vector<ClockSample>::const_iterator begin,
                           std::vector<ClockSample>::const_iterator end) {
  return *std::min_element(begin, end, [](const ClockSample& left, const ClockSample& right) {
    return left.round_trip_ns < right.round_trip_ns;
  });
}

double offset_of(const ClockSample& sample) {
  return static_cast<double>(sample.client_ns) - static_cast<double>(sample.worker_ns);
}

// Numbers of rows (tid) and flows are below 2^53, unique in the file, and no row has the number of
// a process (pid). Perfetto takes a row with its process's number for the main thread, cuts a
// longer number of a row, and refuses a flow with an id that is not a number.
class Writer {
 public:
  Writer(std::FILE* to, std::uint64_t first_row) : to_(to), next_row_(first_row) {}

  std::uint64_t new_row() { return next_row_++; }
  std::uint64_t new_flow() { return next_flow_++; }

  void raw(const std::string& text) { std::fwrite(text.data(), 1, text.size(), to_); }
  void event(const std::string& members) {
    raw((first_ ? "\n{" : ",\n{") + members + "}");
    first_ = false;
  }
  static std::string place(unsigned pid, std::uint64_t tid) {
    return "\"pid\":" + std::to_string(pid) + ",\"tid\":" + std::to_string(tid);
  }
  void name_process(unsigned pid, const std::string& name) {
    event("\"ph\":\"M\",\"name\":\"process_name\",\"pid\":" + std::to_string(pid) +
          ",\"args\":{\"name\":" + json_text(name) + "}");
  }
  void name_row(unsigned pid, std::uint64_t tid, const std::string& name) {
    event("\"ph\":\"M\",\"name\":\"thread_name\"," + place(pid, tid) +
          ",\"args\":{\"name\":" + json_text(name) + "}");
    event("\"ph\":\"M\",\"name\":\"thread_sort_index\"," + place(pid, tid) +
          ",\"args\":{\"sort_index\":" + std::to_string(tid) + "}");
  }
  void slice(unsigned pid, std::uint64_t tid, const char* category, const Slice& slice) {
    event("\"ph\":\"X\",\"cat\":\"" + std::string(category) + "\",\"name\":" +
          json_text(slice.name) + "," + place(pid, tid) + ",\"ts\":" + microseconds(slice.begin) +
          ",\"dur\":" + microseconds(std::max<std::int64_t>(slice.end - slice.begin, 0)) +
          ",\"args\":{" + slice.arguments + "}");
  }
  // `phase`: s begins, t passes, f ends. Attached to the slice at that time.
  void flow(char phase, unsigned pid, std::uint64_t tid, std::int64_t when, std::uint64_t id) {
    event("\"ph\":\"" + std::string(1, phase) + "\",\"cat\":\"call\",\"name\":\"call\",\"id\":" +
          std::to_string(id) + (phase == 'f' ? ",\"bp\":\"e\"," : ",") + place(pid, tid) +
          ",\"ts\":" + microseconds(when));
  }

 private:
  std::FILE* const to_;
  std::uint64_t next_row_;
  std::uint64_t next_flow_ = 1;
  bool first_ = true;
};

// One process of the program, with its worker and the worker's report of the device.
class ProcessWriter {
 public:
  ProcessWriter(const Traced& traced, unsigned index, std::int64_t zero, Writer* writer)
      : traced_(traced),
        clock_(traced.file.clocks),
        zero_(zero),
        client_pid_(3 * index + 1),
        worker_pid_(3 * index + 2),
        device_pid_(3 * index + 3),
        writer_(*writer) {}

  void write() {
    note_launches();
    write_client();
    if (!traced_.worker.events.empty()) write_worker();
  }

 private:
  std::int64_t client_time(std::uint64_t nanoseconds) const {
    return signed_time(nanoseconds) - zero_;
  }
  std::int64_t worker_time(std::uint64_t nanoseconds) const {
    return clock_.client_time(nanoseconds) - zero_;
  }
  std::uint64_t flow_of(std::uint64_t sequence) {
    std::uint64_t& flow = flows_[sequence];
    if (flow == 0) flow = writer_.new_flow();
    return flow;
  }
  std::uint64_t row_of(std::uint32_t thread) {
    const auto [row, added] = thread_rows_.emplace(thread, 0);
    if (!added) return row->second;
    row->second = writer_.new_row();
    writer_.name_row(client_pid_, row->second, "thread " + std::to_string(thread));
    return row->second;
  }

  // The kernel that a call launched, by the program's name for it, else by the device's.
  void note_launches() {
    for (const RecordedEvent& event : traced_.worker.events) {
      if (event.kind != Recorded::kKernel || event.value != 0) continue;
      kernels_.emplace(event.sequence, kernel_name(event));
      on_device_.emplace(event.sequence);
    }
    for (const RecordedEvent& event : traced_.worker.events) {
      if (event.kind == Recorded::kIssue) issued_.emplace(event.sequence);
    }
    const auto is_launch = static_cast<std::uint8_t>(protocol::Form::kLaunch);
    for (const RecordedEvent& event : traced_.client.events) {
      if (event.kind != Recorded::kAppend || event.form != is_launch) continue;
      const auto name = traced_.client.names.find(event.subject);
      if (name != traced_.client.names.end()) kernels_[event.sequence] = name->second;
    }
  }

  std::string kernel_name(const RecordedEvent& event) const {
    const auto name = traced_.worker.names.find(event.subject);
    return name == traced_.worker.names.end() ? "a kernel" : name->second;
  }

  std::string arguments_of(std::uint64_t sequence) const {
    std::string text = "\"call\":" + std::to_string(sequence);
    const auto kernel = kernels_.find(sequence);
    if (kernel != kernels_.end()) text += ",\"kernel\":" + json_text(kernel->second);
    return text;
  }

  void write_append(const RecordedEvent& event, const Slice* within) {
    if (within == nullptr) {
      Slice slice{function_name(event.opcode), client_time(event.begin_ns),
                  client_time(event.end_ns), arguments_of(event.sequence), 0};
      writer_.slice(client_pid_, row_of(event.thread), "call", slice);
    }
    if (issued_.count(event.sequence) == 0) return;
    writer_.flow('s', client_pid_, row_of(event.thread), client_time(event.end_ns),
                 flow_of(event.sequence));
  }

  // Appended calls come before their entry in the thread's events, because an entry is recorded at
  // its end.
  void write_entry(const RecordedEvent& entry, std::vector<RecordedEvent>* appended) {
    Slice slice{function_name(entry.opcode), client_time(entry.begin_ns), client_time(entry.end_ns),
                "", 0};
    std::vector<RecordedEvent> within;
    for (const RecordedEvent& event : *appended) {
      if (event.end_ns < entry.begin_ns) {
        write_append(event, nullptr);  // Its entry is not recorded.
      } else {
        within.push_back(event);
      }
    }
    appended->clear();
    if (!within.empty()) slice.arguments = arguments_of(within.front().sequence);
    if (within.size() > 1) {
      slice.arguments += ",\"last_call\":" + std::to_string(within.back().sequence);
    }
    writer_.slice(client_pid_, row_of(entry.thread), "call", slice);
    for (const RecordedEvent& event : within) write_append(event, &slice);
  }

  void write_client() {
    writer_.name_process(client_pid_, traced_.file.program + " (process " +
                                          std::to_string(traced_.file.process) + ")");
    std::map<std::uint32_t, std::vector<RecordedEvent>> appended;
    std::uint64_t batches = 0;
    for (const RecordedEvent& event : traced_.client.events) {
      Slice slice{"", client_time(event.begin_ns), client_time(event.end_ns),
                  "\"call\":" + std::to_string(event.sequence), 0};
      switch (event.kind) {
        case Recorded::kEntry:
          write_entry(event, &appended[event.thread]);
          break;
        case Recorded::kAppend:
          appended[event.thread].push_back(event);
          break;
        case Recorded::kFence:
          slice.name = "waits for the reply";
          writer_.slice(client_pid_, row_of(event.thread), "fence", slice);
          break;
        case Recorded::kWait:
          slice.name = "waits for an event's end";
          writer_.slice(client_pid_, row_of(event.thread), "wait", slice);
          break;
        case Recorded::kBatch:
          if (batches == 0) {
            batches = writer_.new_row();
            writer_.name_row(client_pid_, batches, "batches sent");
          }
          slice.name = std::to_string(event.subject - event.sequence + 1) + " calls";
          slice.arguments = "\"first_call\":" + std::to_string(event.sequence) +
                            ",\"last_call\":" + std::to_string(event.subject) +
                            ",\"bytes\":" + std::to_string(event.value);
          writer_.slice(client_pid_, batches, "batch", slice);
          break;
        case Recorded::kIssue:
        case Recorded::kRest:
        case Recorded::kKernel:
          break;  // A client has no events of these kinds.
      }
    }
    for (const auto& each : appended) {
      for (const RecordedEvent& event : each.second) write_append(event, nullptr);
    }
  }

  using Rows = std::map<std::string, std::vector<Slice>>;

  // Slices of one row must not overlap, so overlapping slices get further rows. A flow passes each
  // slice, or ends there.
  void write_rows(unsigned pid, const char* category, Rows& rows, char phase) {
    for (auto& [name, slices] : rows) {
      std::stable_sort(slices.begin(), slices.end(), [](const Slice& left, const Slice& right) {
        return left.begin < right.begin;
      });
      struct Row {
        std::uint64_t tid;
        std::int64_t end;
      };
      std::vector<Row> same_name;
      for (const Slice& slice : slices) {
        auto row = std::find_if(same_name.begin(), same_name.end(),
                                [&slice](const Row& each) { return each.end <= slice.begin; });
        if (row == same_name.end()) {
          row = same_name.insert(row, {writer_.new_row(), 0});
          const std::size_t count = same_name.size();
          writer_.name_row(pid, row->tid,
                           count == 1 ? name : name + " (" + std::to_string(count) + ")");
        }
        row->end = slice.end;
        writer_.slice(pid, row->tid, category, slice);
        if (slice.sequence == 0) continue;
        const bool last = phase == 't' && on_device_.count(slice.sequence) == 0;
        writer_.flow(last ? 'f' : phase, pid, row->tid, slice.begin, flow_of(slice.sequence));
      }
    }
  }

  static std::string issue_row(const RecordedEvent& event) {
    if (event.kind == Recorded::kRest) return "waits in the driver";
    if (event.subject == static_cast<std::uint64_t>(protocol::Order::kOrderedHost)) {
      return "calls that block";
    }
    if (event.subject != static_cast<std::uint64_t>(protocol::Order::kStream)) {
      return "calls of no stream";
    }
    if (event.stream > protocol::kStreamPerThread) return "stream " + hexadecimal(event.stream);
    return event.stream == protocol::kStreamPerThread
               ? "per-thread stream of thread " + std::to_string(event.thread)
               : "legacy stream";
  }

  void write_worker() {
    Rows issues;
    Rows kernels;
    for (const RecordedEvent& event : traced_.worker.events) {
      Slice slice{"", worker_time(event.begin_ns), worker_time(event.end_ns),
                  arguments_of(event.sequence), 0};
      if (event.kind == Recorded::kKernel) {
        slice.name = kernel_name(event);
        slice.arguments = "\"call\":" + std::to_string(event.sequence) +
                          ",\"level\":" + std::to_string(event.value);
        slice.sequence = event.value == 0 ? event.sequence : 0;
        kernels["device " + std::to_string(event.thread) + ", stream " +
                std::to_string(event.stream)]
            .push_back(std::move(slice));
      } else if (event.kind == Recorded::kIssue || event.kind == Recorded::kRest) {
        slice.name = function_name(event.opcode);
        if (event.kind == Recorded::kIssue) {
          slice.sequence = event.sequence;
          const std::uint64_t queued =
              event.begin_ns > event.value ? event.begin_ns - event.value : 0;
          slice.arguments += ",\"queued_us\":" + microseconds(signed_time(queued));
        }
        issues[issue_row(event)].push_back(std::move(slice));
      }
    }
    writer_.name_process(worker_pid_, "worker on " + traced_.file.server);
    write_rows(worker_pid_, "issue", issues, 't');
    if (kernels.empty()) return;
    writer_.name_process(device_pid_, "device on " + traced_.file.server);
    write_rows(device_pid_, "kernel", kernels, 'f');
  }

  const Traced& traced_;
  const ClockLine clock_;
  const std::int64_t zero_;
  const unsigned client_pid_, worker_pid_, device_pid_;
  Writer& writer_;
  std::map<std::uint64_t, std::uint64_t> flows_;        // By call.
  std::map<std::uint32_t, std::uint64_t> thread_rows_;  // By thread of the program.
  std::map<std::uint64_t, std::string> kernels_;        // By call.
  std::set<std::uint64_t> on_device_;                   // Calls with a kernel on the device.
  std::set<std::uint64_t> issued_;
};

std::string facts_of(const Traced& traced) {
  const ClockLine clock(traced.file.clocks);
  bool kernels = false;
  for (const RecordedEvent& event : traced.worker.events) {
    kernels = kernels || event.kind == Recorded::kKernel;
  }
  std::string text = "{\"program\":" + json_text(traced.file.program);
  text += ",\"process\":" + std::to_string(traced.file.process);
  text += ",\"server\":" + json_text(traced.file.server);
  text += ",\"dropped_of_the_program\":" + std::to_string(traced.client.dropped);
  text += ",\"dropped_of_the_worker\":" + std::to_string(traced.worker.dropped);
  text += ",\"worker\":" +
          json_text(traced.file.no_worker.empty() ? "recorded" : traced.file.no_worker);
  text += ",\"clock_error_us\":" +
          (clock.known() ? microseconds(signed_time(clock.error_ns())) : std::string("null"));
  text += ",\"kernels\":";
  text += kernels ? "\"as the device's driver timed them\""
                  : "\"none: the driver does not report when they ran\"";
  return text + "}";
}

std::int64_t first_time(const std::vector<Traced>& processes) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const Traced& traced : processes) {
    for (const RecordedEvent& event : traced.client.events) {
      first = std::min(first, signed_time(event.begin_ns));
    }
  }
  return first == std::numeric_limits<std::int64_t>::max() ? 0 : first;
}

}  // namespace

ClockLine::ClockLine(const std::vector<ClockSample>& samples) {
  if (samples.empty()) return;
  known_ = true;
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>((samples.size() + 1) / 2);
  const ClockSample early = best_of(samples.begin(), middle);
  const ClockSample late = middle == samples.end() ? early : best_of(middle, samples.end());
  const double apart = static_cast<double>(late.worker_ns) - static_cast<double>(early.worker_ns);
  const double moved = offset_of(late) - offset_of(early);
  const std::uint64_t errors[] = {early.round_trip_ns / 2, late.round_trip_ns / 2};
  if (apart > 0 && std::abs(moved) > static_cast<double>(errors[0] + errors[1])) {
    worker_begin_ = static_cast<double>(early.worker_ns);
    offset_begin_ = offset_of(early);
    drift_ = moved / apart;
    error_ns_ = std::max(errors[0], errors[1]);
    return;
  }
  // Without evidence of a drift, a line through the errors would only bend short traces.
  const bool early_is_best = errors[0] <= errors[1];
  offset_begin_ = offset_of(early_is_best ? early : late);
  constexpr double kMost = static_cast<double>(std::numeric_limits<std::int64_t>::max() / 4);
  const auto difference = static_cast<std::uint64_t>(std::min(std::abs(moved), kMost));
  error_ns_ = std::max(
      errors[early_is_best ? 0 : 1],
      difference + std::min(errors[early_is_best ? 1 : 0], static_cast<std::uint64_t>(kMost)));
}

std::int64_t ClockLine::client_time(std::uint64_t worker_ns) const {
  const std::int64_t time = signed_time(worker_ns);
  if (!known_) return time;
  const double offset = offset_begin_ + drift_ * (static_cast<double>(worker_ns) - worker_begin_);
  constexpr double kMost = static_cast<double>(std::numeric_limits<std::int64_t>::max() / 4);
  return time + static_cast<std::int64_t>(std::clamp(offset, -kMost, kMost));
}

std::string json_text(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

Status write_timeline(const std::vector<Traced>& processes, std::FILE* to) {
  Writer writer(to, 3 * processes.size() + 1);  // The processes have 1 to 3 * size.
  writer.raw("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"gpurun\":" +
             json_text(protocol::kRelease) + ",\"processes\":[");
  for (std::size_t i = 0; i < processes.size(); ++i) {
    writer.raw((i == 0 ? "\n" : ",\n") + facts_of(processes[i]));
  }
  writer.raw("]},\n\"traceEvents\":[");
  const std::int64_t zero = first_time(processes);
  for (std::size_t i = 0; i < processes.size(); ++i) {
    ProcessWriter(processes[i], static_cast<unsigned>(i), zero, &writer).write();
  }
  writer.raw("\n]}\n");
  if (std::fflush(to) != 0 || std::ferror(to) != 0) {
    return Status::from_errno(errno, "writing the timeline");
  }
  return {};
}

}  // namespace gpurun::tools
