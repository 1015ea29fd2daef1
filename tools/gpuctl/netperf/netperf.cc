// gpuctl netperf: one run of gpurun for each transport, with its own statistics as the proof of the
// transport that the session used.
#include "tools/gpuctl/netperf/netperf.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file_io.h"
#include "base/memory_file.h"
#include "protocol/auth/secret_text.h"
#include "tools/gpuctl/child.h"
#include "tools/gpuctl/complain.h"
#include "tools/gpuctl/machine/known_transports.h"
#include "tools/gpuctl/machine/verbs.h"
#include "tools/gpuctl/netperf/report.h"
#include "tools/gpurun/options.h"
#include "tools/gpurun/places.h"

namespace gpurun::tools {
namespace {

using nlohmann::json;

// A session's begin and end. A real driver with many GPUs takes seconds for its cuInit.
constexpr double kStartSeconds = 60;
constexpr std::size_t kStatisticsMax = std::size_t{1} << 20;

Result<std::string> own_path() {
  char path[PATH_MAX];
  const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path);
  if (bytes <= 0) return Status::from_errno(errno, "/proc/self/exe");
  return std::string(path, static_cast<std::size_t>(bytes));
}

// Shows on a terminal what is measured now.
class Progress {
 public:
  explicit Progress(bool wanted) : wanted_(wanted && isatty(STDERR_FILENO) != 0) {}
  ~Progress() { show(""); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text) const {
    if (wanted_) std::fprintf(stderr, "\r\033[K%s", text.c_str());
  }

 private:
  const bool wanted_;
};

struct Parts {
  std::string gpurun, self;
};

// The last line that gpurun or its client library printed, without their name. The measuring
// program prints after them, and knows less. Without such a line it is the last one of all.
std::string last_line(const std::string& errors) {
  const std::string name = "gpurun: ", level = "error: ";
  std::string found, last;
  for (const std::string& line : lines_of(errors)) {
    if (!line.empty()) last = line;
    if (line.compare(0, name.size(), name) == 0) found = line.substr(name.size());
  }
  if (found.compare(0, level.size(), level) == 0) found.erase(0, level.size());
  return protocol::hide_tokens(found.empty() ? last : found);
}

struct SessionWords {
  std::string transport;  // Empty: there are no statistics.
  bool left = false;      // A connection left the transport while it ran.
  bool gpudirect = false;
};

SessionWords session_of(int statistics_file) {
  const Result<std::string> text =
      read_text_from_start(statistics_file, kStatisticsMax, "statistics of the session");
  if (!text.ok()) return {};
  const std::string first = text->substr(0, text->find('\n'));
  const json parsed = json::parse(first, nullptr, false);
  const json transport = parsed.is_object() ? parsed.value("transport", json()) : json();
  if (!transport.is_string()) return {};
  const json left = parsed.value("connections_that_left", json());
  const json direct = parsed.value("direct_bytes", json());
  return {transport.get<std::string>(), left.is_number() && left != 0,
          direct.is_number() && direct != 0};
}

// `port`: of RDMA. Empty: the transport has none.
ChildOptions order_of(const Parts& parts, const std::string& server,
                      const KnownTransport& transport, const std::string& port,
                      const NetperfOptions& options, int statistics_file) {
  const bool encrypts = transport.link == LinkNeed::kTls;
  ChildOptions child;
  child.command = {parts.gpurun, "-q", "-l", server};
  for (const std::string& word : options.link_options) {
    if (!encrypts || word != "--insecure-plaintext") child.command.push_back(word);
  }
  const auto asks = std::find(options.link_options.begin(), options.link_options.end(), "--tls");
  if (encrypts && asks == options.link_options.end()) child.command.push_back("--tls");
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3f", options.seconds);
  for (const std::string& word :
       {std::string("--"), parts.self, std::string(kSessionCommand), std::string(seconds)}) {
    child.command.push_back(word);
  }
  child.environment = {std::string(client::kTransportsVariable) + "=" + transport.setting,
                       "GPURUN_STATS=1",
                       "GPURUN_STATS_FILE=/proc/" + std::to_string(getpid()) + "/fd/" +
                           std::to_string(statistics_file),
                       "CUDA_VISIBLE_DEVICES=0"};
  if (!port.empty()) {
    child.environment.push_back(std::string(client::kNetDevicesVariable) + "=" + port);
  }
  const double bound = kStartSeconds + 3 * options.seconds;
  child.deadline = Deadline::in(std::chrono::milliseconds(std::lround(1000 * bound)));
  return child;
}

// Why the run has no figures. Empty: it has all of them, and over that transport.
std::string fault_of(const ChildEnd& end, const KnownTransport& transport, bool left,
                     const TransportReport& report) {
  if (end.timed_out) return "the measurement did not end in time";
  if (!end.succeeded()) {
    const std::string line = last_line(end.errors);
    return line.empty() ? "the measuring program failed and printed no reason" : line;
  }
  if (report.session.empty()) return "the session left no statistics";
  if (report.session.rfind(transport.session, 0) != 0) {
    return "the session used another transport: " + report.session;
  }
  if (left) return "the transport failed, and the session went on over another one";
  return report.figures.from_device_pageable ? "" : "the measuring program printed no figures";
}

void measure(const Parts& parts, const std::string& server, const KnownTransport& transport,
             const NetperfOptions& options, const Progress& progress, TransportReport* report) {
  const Result<UniqueFd> statistics = create_memory_file("gpuctl-netperf");
  if (!statistics.ok()) {
    report->unavailable = statistics.status().message();
    return;
  }
  ChildOptions child = order_of(parts, server, transport, report->port, options, statistics->get());
  int done = 0;
  const auto show = [&] {
    progress.show(report->what + ": measurement " + std::to_string(done + 1) + " of 7");
  };
  child.on_line = [&](std::string_view line) {
    if (!take_line(line, &report->figures)) return;
    if (++done < 7) show();
  };
  show();
  const Result<ChildEnd> end = run_child(child);
  if (!end.ok()) {
    report->unavailable = end.status().message();
    return;
  }
  const SessionWords session = session_of(statistics->get());
  report->session = session.transport;
  report->gpudirect = session.gpudirect;
  report->unavailable = fault_of(*end, transport, session.left, *report);
  if (!report->unavailable.empty()) report->figures = Figures();
}

Status check_free_gpu(const std::string& server, const protocol::Listing& listing) {
  for (const protocol::ListedGpu& gpu : listing.gpus) {
    if (gpu.holder.empty()) return {};
  }
  return Status(Code::kRefused, listing.gpus.empty()
                                    ? "server " + server + " has no GPU, and a session needs one"
                                    : "no GPU of " + server +
                                          " is free, and a session needs one; gpuctl list shows "
                                          "the holders");
}

// The sessions that measure `transport`: one, or over RDMA one for each port of this machine. The
// server chooses its own port.
std::vector<TransportReport> planned(const KnownTransport& transport, const SessionFacts& facts,
                                     const NetperfOptions& options) {
  TransportReport one;
  one.name = transport.name;
  one.what = transport.what;
  one.over_link = !transport.within_machine;
  one.unavailable = why_not(transport, facts, true);
  if (!one.unavailable.empty() || transport.link != LinkNeed::kAny) return {one};
  std::vector<TransportReport> all;
  for (const std::string& port : facts.ports.usable) {
    all.push_back(one);
    all.back().what += " " + port;
    all.back().port = port;
    const double mbit = options.link_mbit > 0 ? options.link_mbit : port_mbit(SystemFiles(), port);
    all.back().port_link = Route{port, mbit};
  }
  return all;
}

Result<NetperfReport> measure_server(const std::string& server, const ServerChoice& choice,
                                     const NetperfOptions& options) {
  const Result<Places> places = find_places();
  if (!places.ok()) return places.status();
  Result<std::string> self = own_path();
  if (!self.ok()) return self.status();
  const Parts parts = {places->command, *std::move(self)};
  const Result<protocol::Listing> listing = ask_for_listing(server, choice);
  if (!listing.ok()) return listing.status();
  GPURUN_RETURN_IF_ERROR(check_free_gpu(server, *listing));
  const Result<SessionFacts> facts = session_facts(server, choice.credential, choice.security);
  if (!facts.ok()) return facts.status();
  NetperfReport report;
  report.server = server;
  report.release = listing->release;
  report.seconds = options.seconds;
  report.route = facts->route;
  if (options.link_mbit > 0) report.route.mbit = options.link_mbit;
  const Progress progress(!options.as_json || isatty(STDOUT_FILENO) == 0);
  for (const KnownTransport& transport : known_transports()) {
    for (TransportReport& one : planned(transport, *facts, options)) {
      if (one.unavailable.empty()) measure(parts, server, transport, options, progress, &one);
      report.transports.push_back(std::move(one));
    }
  }
  return report;
}

bool has_figures(const NetperfReport& report) {
  return std::any_of(report.transports.begin(), report.transports.end(),
                     [](const TransportReport& one) { return one.unavailable.empty(); });
}

}  // namespace

int netperf(const ServerChoice& choice, const NetperfOptions& options) {
  bool failed = false;
  for (const std::string& server : choice.servers) {
    const Result<NetperfReport> report = measure_server(server, choice, options);
    if (!report.ok()) {
      complain(report.status().message());
      failed = true;
      continue;
    }
    const std::string text = options.as_json ? netperf_json(*report) : netperf_table(*report);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    if (has_figures(*report)) continue;
    complain("no transport to " + server + " could be measured");
    failed = true;
  }
  return failed ? kExitOwnFailure : 0;
}

int netperf_session(double seconds) {
  const Status measured = measure_session(std::chrono::milliseconds(std::lround(1000 * seconds)));
  if (measured.ok()) return 0;
  complain(measured.message());
  return kExitOwnFailure;
}

}  // namespace gpurun::tools
