// gpuctl health: the order of the checks, and their output.
#include "tools/gpuctl/health/health.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/printable.h"
#include "protocol/auth/secret_text.h"
#include "tools/gpuctl/health/fabric_checks.h"
#include "tools/gpuctl/health/install_checks.h"
#include "tools/gpuctl/health/machine_checks.h"
#include "tools/gpuctl/health/server_checks.h"
#include "tools/gpuctl/machine/known_transports.h"
#include "tools/gpurun/places.h"
#include "transport/transport.h"

namespace gpurun::tools {
namespace {

using nlohmann::json;

constexpr int kExitFailedCheck = 1;

const char* word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kFailed:
      return "failed";
    default:
      return "n/a";
  }
}

long count(const Checks& checks, Verdict verdict) {
  return std::count_if(checks.begin(), checks.end(),
                       [&](const Check& each) { return each.verdict == verdict; });
}

std::string section_of(const Check& check) { return "docs/network.md#" + check.name; }

bool own_server_listens() {
  const auto connected = transport::connect(std::string("tcp://") + kOwnServer,
                                            Deadline::in(std::chrono::seconds(1)), {});
  return connected.ok();
}

// Text of peers and files, for a terminal.
std::string shown(const std::string& text) { return printable(protocol::hide_tokens(text)); }

void add_server_checks(ServerChoice choice, const HealthOptions& options, Checks* checks) {
  if (!options.servers_fault.ok()) {
    checks->push_back(failed("servers", options.servers_fault.message(),
                             "correct that file or variable, or name the servers by -l"));
    return;
  }
  const bool named = !options.origin.empty();
  if (!named && !options.local && own_server_listens()) choice.servers.emplace_back(kOwnServer);
  if (named || choice.servers.empty() || options.need_servers) {
    const std::size_t count = named ? choice.servers.size() : 0;
    checks->push_back(servers_check(options.origin, count, options.need_servers));
  } else {
    checks->push_back(not_applicable("servers", "no server is named, and gpurund runs here"));
  }
  if (!options.credential_fault.ok()) {
    checks->push_back(failed("token", options.credential_fault.message(),
                             remedy_of(options.credential_fault, "token").fix));
    return;
  }
  if (options.local) return;
  for (const std::string& server : choice.servers) append(checks, server_checks(server, choice));
}

Checks all_checks(ServerChoice choice, const HealthOptions& options) {
  Checks checks;
  const Result<Places> places = find_places();
  if (places.ok()) {
    append(&checks, part_checks(*places));
  } else {
    checks.push_back(failed("programs",
                            places.status().message() + ": gpurun finds its parts by /proc",
                            "mount -t proc proc /proc"));
  }
  append(&checks, token_file_checks());
  const SystemFiles files;
  append(&checks, machine_checks(files, this_machine()));
  const auto allowed = allowed_ports_from_environment();  // The check "rdma" reports a failure.
  append(&checks, fabric_checks(files, find_verbs_libraries(),
                                allowed.ok() ? *allowed : transport::rdma::AllowedPorts()));
  add_server_checks(std::move(choice), options, &checks);
  return checks;
}

}  // namespace

std::string health_text(const Checks& checks) {
  std::string text;
  for (const Check& check : checks) {
    char head[64];
    std::snprintf(head, sizeof head, "%-8s %-14s ", word_of(check.verdict), check.name.c_str());
    text += head + shown(check.text) + "\n";
    if (check.fix.empty()) continue;
    text += "         fix: " + shown(check.fix) + " (" + section_of(check) + ")\n";
  }
  const auto warnings = count(checks, Verdict::kWarning);
  return text + std::to_string(count(checks, Verdict::kOk)) + " ok, " + std::to_string(warnings) +
         (warnings == 1 ? " warning, " : " warnings, ") +
         std::to_string(count(checks, Verdict::kFailed)) + " failed, " +
         std::to_string(count(checks, Verdict::kNotApplicable)) + " not applicable\n";
}

std::string health_json(const Checks& checks) {
  json all = json::array();
  for (const Check& check : checks) {
    all.push_back({{"check", check.name},
                   {"verdict", word_of(check.verdict)},
                   {"text", protocol::hide_tokens(check.text)},
                   {"fix", check.fix.empty() ? json() : json(protocol::hide_tokens(check.fix))},
                   {"section", section_of(check)}});
  }
  const json report = {{"checks", all},
                       {"ok", count(checks, Verdict::kOk)},
                       {"warnings", count(checks, Verdict::kWarning)},
                       {"failed", count(checks, Verdict::kFailed)},
                       {"not_applicable", count(checks, Verdict::kNotApplicable)}};
  return report.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

int check_health(ServerChoice choice, const HealthOptions& options) {
  const Checks checks = all_checks(std::move(choice), options);
  std::fputs((options.as_json ? health_json(checks) : health_text(checks)).c_str(), stdout);
  return count(checks, Verdict::kFailed) == 0 ? 0 : kExitFailedCheck;
}

}  // namespace gpurun::tools
