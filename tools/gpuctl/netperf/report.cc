// Report of netperf: figures are rounded for the table only.
#include "tools/gpuctl/netperf/report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace gpurun::tools {
namespace {

using nlohmann::json;

std::string number(const std::optional<double>& value, int digits) {
  if (!value) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, *value);
  return text;
}

std::string thousands(const std::optional<double>& value) {
  if (!value) return "-";
  std::string text = number(value, 0);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), ",");
  }
  return text;
}

json or_null(const std::optional<double>& value) { return value ? json(*value) : json(); }
json or_null(const std::string& text) { return text.empty() ? json() : json(text); }

json json_of(const std::optional<Percentiles>& found) {
  if (!found) return nullptr;
  return {{"p50", found->p50},
          {"p90", found->p90},
          {"p99", found->p99},
          {"max", found->max},
          {"count", found->count}};
}

json json_of(const TransportReport& one, const Route& route) {
  const Figures& figures = one.figures;
  return {{"transport", one.name},
          {"available", one.unavailable.empty()},
          {"reason", or_null(one.unavailable)},
          {"port", or_null(one.port)},
          {"session", or_null(one.session)},
          {"gpudirect", one.gpudirect},
          {"round_trip_us", json_of(figures.round_trip)},
          {"result_us", json_of(figures.result)},
          {"calls_per_second", or_null(figures.calls_per_second)},
          {"to_device_gb_per_second",
           {{"pinned", or_null(figures.to_device_pinned)},
            {"pageable", or_null(figures.to_device_pageable)}}},
          {"from_device_gb_per_second",
           {{"pinned", or_null(figures.from_device_pinned)},
            {"pageable", or_null(figures.from_device_pageable)}}},
          {"verdict",
           {{"round_trip", or_null(round_trip_verdict(figures))},
            {"link", or_null(link_verdict(one, route))}}}};
}

constexpr const char* kRow = "%-16s %8s %8s %8s %9s %10s %12s  %7s %8s  %7s %8s\n";

std::string table_row(const TransportReport& one) {
  const Figures& figures = one.figures;
  const auto part = [&](double Percentiles::*which) -> std::optional<double> {
    if (!figures.round_trip) return std::nullopt;
    return (*figures.round_trip).*which;
  };
  std::optional<double> result;
  if (figures.result) result = figures.result->p50;
  char line[256];
  std::snprintf(
      line, sizeof line, kRow, one.what.c_str(), number(part(&Percentiles::p50), 1).c_str(),
      number(part(&Percentiles::p90), 1).c_str(), number(part(&Percentiles::p99), 1).c_str(),
      number(part(&Percentiles::max), 1).c_str(), number(result, 1).c_str(),
      thousands(figures.calls_per_second).c_str(), number(figures.to_device_pinned, 2).c_str(),
      number(figures.to_device_pageable, 2).c_str(), number(figures.from_device_pinned, 2).c_str(),
      number(figures.from_device_pageable, 2).c_str());
  return line;
}

std::string link_text(const Route& route) {
  if (route.device.empty()) return "an unknown network device";
  if (route.mbit <= 0) return route.device + ", of unknown speed";
  return route.device + ", " + number(route.mbit, 0) + " Mbit/s";
}

// The share of the link's speed that the best copy of one direction reaches.
std::optional<double> link_share(const std::optional<double>& pinned,
                                 const std::optional<double>& pageable, const Route& route) {
  if (route.mbit <= 0 || !pinned) return std::nullopt;
  return std::max(*pinned, pageable.value_or(0)) / (route.mbit / 8000);
}

struct LinkShares {
  std::optional<double> to_device, from_device;
};
LinkShares link_shares(const Figures& figures, const Route& route) {
  return {link_share(figures.to_device_pinned, figures.to_device_pageable, route),
          link_share(figures.from_device_pinned, figures.from_device_pageable, route)};
}

// The link that the transport uses.
const Route& link_of(const TransportReport& one, const Route& route) {
  return one.port.empty() ? route : one.port_link;
}

std::string percent(const std::optional<double>& share) {
  return share ? number(100 * *share, 0) + " %" : "an unknown part";
}

std::string verdict_lines(const TransportReport& one, const Route& route) {
  if (!one.unavailable.empty()) {
    return one.what + ": not measured: " + printable(one.unavailable) + "\n";
  }
  std::string text;
  if (!one.port.empty()) {
    text += one.what + ": " + printable(one.session) + (one.gpudirect ? ", GPUDirect\n" : "\n");
  }
  const std::string quick = round_trip_verdict(one.figures);
  if (!quick.empty()) {
    text += one.what + ": " + quick + ": half of the round trips take at most " +
            number(one.figures.round_trip->p50, 1) + " us, and the goal is " +
            number(kRoundTripGoalUs, 0) + " us\n";
  }
  const std::string link = link_verdict(one, route);
  const Route& own = link_of(one, route);
  if (link == "unknown") {
    text += one.what + ": unknown share of the link: " + link_text(own) + "\n";
  } else if (!link.empty()) {
    const LinkShares shares = link_shares(one.figures, own);
    text += one.what + ": " + link + ": copies to the GPU reach " + percent(shares.to_device) +
            ", and those from it " + percent(shares.from_device) + ", of " + link_text(own) +
            ". The goal of both is " + number(100 * kLinkShareGoal, 0) + " %\n";
  }
  return text;
}

}  // namespace

bool take_line(std::string_view line, Figures* figures) {
  const json parsed = json::parse(line, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("what") || !parsed["what"].is_string()) return false;
  const auto value = [&](const char* name) -> std::optional<double> {
    const auto found = parsed.find(name);
    if (found == parsed.end() || !found->is_number()) return std::nullopt;
    return found->get<double>();
  };
  const std::string what = parsed["what"];
  if (what == "round_trip" || what == "result") {
    if (!value("p50") || !value("p90") || !value("p99") || !value("max")) return false;
    (what == "result" ? figures->result : figures->round_trip) =
        Percentiles{*value("p50"), *value("p90"), *value("p99"), *value("max"),
                    static_cast<std::size_t>(value("count").value_or(0))};
    return true;
  }
  if (what == "calls") {
    figures->calls_per_second = value("per_second");
    return figures->calls_per_second.has_value();
  }
  const std::pair<const char*, std::optional<double> Figures::*> kCopies[] = {
      {"to_device_pinned", &Figures::to_device_pinned},
      {"to_device_pageable", &Figures::to_device_pageable},
      {"from_device_pinned", &Figures::from_device_pinned},
      {"from_device_pageable", &Figures::from_device_pageable}};
  for (const auto& [name, member] : kCopies) {
    if (what != name) continue;
    figures->*member = value("gb_per_second");
    return (figures->*member).has_value();
  }
  return false;
}

std::string round_trip_verdict(const Figures& figures) {
  if (!figures.round_trip) return "";
  return figures.round_trip->p50 <= kRoundTripGoalUs ? "ok" : "slow";
}

std::string link_verdict(const TransportReport& transport, const Route& route) {
  if (!transport.over_link || !transport.figures.to_device_pinned) return "";
  const LinkShares shares = link_shares(transport.figures, link_of(transport, route));
  if (!shares.to_device && !shares.from_device) return "unknown";
  const double least = std::min(shares.to_device.value_or(1), shares.from_device.value_or(1));
  return least >= kLinkShareGoal ? "ok" : "below";
}

std::string netperf_table(const NetperfReport& report) {
  std::string text = printable(report.server) + ", gpurun " + printable(report.release) + ", by " +
                     link_text(report.route) + "\n\n";
  char line[256];
  std::snprintf(line, sizeof line, kRow, "", "ROUND", "TRIP us", "", "", "RESULT us", "CALLS",
                "TO GPU", "GB/s", "FROM", "GPU GB/s");
  text += line;
  std::snprintf(line, sizeof line, kRow, "TRANSPORT", "p50", "p90", "p99", "max", "p50", "each s",
                "pinned", "pageable", "pinned", "pageable");
  text += line;
  for (const TransportReport& one : report.transports) {
    if (one.unavailable.empty()) text += table_row(one);
  }
  text += "\n";
  for (const TransportReport& one : report.transports) text += verdict_lines(one, report.route);
  return text;
}

std::string netperf_json(const NetperfReport& report) {
  json transports = json::array();
  for (const TransportReport& one : report.transports) {
    transports.push_back(json_of(one, report.route));
  }
  const json all = {
      {"server", report.server},
      {"release", report.release},
      {"network_device", or_null(report.route.device)},
      {"network_device_mbit", report.route.mbit > 0 ? json(report.route.mbit) : json()},
      {"seconds", report.seconds},
      {"round_trip_goal_us", kRoundTripGoalUs},
      {"transports", transports}};
  return all.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

}  // namespace gpurun::tools
