// gpuctl: the user's and operator's tool. One file for each command. This file parses the command
// line.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "base/command_suggestion.h"
#include "client/attach/transports.h"
#include "protocol/control/version_line.h"
#include "tools/gpuctl/complain.h"
#include "tools/gpuctl/health/health.h"
#include "tools/gpuctl/info/info.h"
#include "tools/gpuctl/list.h"
#include "tools/gpuctl/netperf/netperf.h"
#include "tools/gpuctl/report.h"
#include "tools/gpuctl/token.h"
#include "tools/gpuctl/topo/topo.h"
#include "tools/gpuctl/trace.h"
#include "tools/gpurun/default_servers.h"
#include "tools/gpurun/options.h"

namespace gpurun::tools {
namespace {

// Words that mean nothing, apart from servers that do not answer (kExitOwnFailure).
constexpr int kExitWrongUsage = 2;

struct ParsedArgs {
  std::optional<std::string> servers, servers_file;
  std::string secret_file, token_file, output;
  TokenOptions token;
  std::vector<std::string> traces;
  Options link;  // Only the link's security is used.
  bool as_json = false, local = false, need_servers = false;
  double seconds = 4, link_mbit = 0;
  std::string trusted_fabrics;  // "true": without a value.
};

void add_server_options(CLI::App* command, ParsedArgs* args) {
  auto* list = command
                   ->add_option("-l", args->servers,
                                "servers; else the default ones, else that of this machine")
                   ->type_name("HOST[:PORT][,...]");
  command->add_option("-s", args->servers_file, "a file with one HOST[:PORT] a line")
      ->type_name("FILE")
      ->excludes(list);
  command
      ->add_option("--secret-file", args->secret_file,
                   "file (mode 0600) with the servers' secret; else GPURUN_SECRET_FILE names it")
      ->type_name("FILE");
  command
      ->add_option("--token-file", args->token_file,
                   "file (mode 0600) with your token for them; else GPURUN_TOKEN_FILE names it, or "
                   "~/.config/gpurun has it")
      ->type_name("FILE");
  command->add_flag("--insecure-plaintext", args->link.insecure_plaintext,
                    "reach servers beyond this machine without TLS; they must allow it, too");
  command->add_flag("--tls", args->link.always_tls, "speak TLS within this machine, too");
  command
      ->add_option("--tls-ca", args->link.authorities_file,
                   "PEM file with the authorities that sign servers' certificates")
      ->type_name("FILE");
  command
      ->add_option("--server-fingerprint", args->link.server_fingerprint,
                   "the server's key, as its gpurund --fingerprint prints it")
      ->type_name("sha256:HEX");
}

// As add_server_options(), and a server as the command's own word.
void add_host_options(CLI::App* command, ParsedArgs* args) {
  add_server_options(command, args);
  command->add_option("host", args->servers, "servers, as for -l")
      ->type_name("HOST[:PORT][,...]")
      ->excludes(command->get_option("-l"))
      ->excludes(command->get_option("-s"));
  command->add_flag("--trust-fabric", args->trusted_fabrics,
                    "sessions may go over RDMA, which encrypts nothing; =mlx5_0:1,... names ports");
}

// gpurun's words for the credential and the security of the links.
std::vector<std::string> link_options(const ParsedArgs& args) {
  std::vector<std::string> options;
  const auto add = [&](const char* option, const std::string& value) {
    if (value.empty()) return;
    options.emplace_back(option);
    options.push_back(value);
  };
  add("--secret-file", args.secret_file);
  add("--token-file", args.token_file);
  add("--tls-ca", args.link.authorities_file);
  add("--server-fingerprint", args.link.server_fingerprint);
  if (args.link.insecure_plaintext) options.emplace_back("--insecure-plaintext");
  if (args.link.always_tls) options.emplace_back("--tls");
  return options;
}

// Adds the command, and the one by which it starts itself as a program of gpurun.
std::pair<CLI::App*, CLI::App*> add_netperf(CLI::App* app, ParsedArgs* args) {
  CLI::App* command =
      app->add_subcommand("netperf", "what sessions to a server can do, over each transport");
  add_host_options(command, args);
  command->add_option("--seconds", args->seconds, "how long each transport is measured")
      ->type_name("NUMBER")
      ->check(CLI::Range(0.1, 600.0));
  command
      ->add_option("--link-mbit", args->link_mbit,
                   "the speed of the link in Mbit/s, if that of the network device is not it")
      ->type_name("NUMBER")
      ->check(CLI::Range(1.0, 1e7));
  command->add_flag("--json", args->as_json, "a line of JSON for each server");
  CLI::App* session = app->add_subcommand(kSessionCommand, "")->group("");
  session->add_option("seconds", args->seconds)->check(CLI::Range(0.1, 600.0));
  return {command, session};
}

// `*origin`: the option, variable or file that names servers, or "none". Empty: none does.
Status choose_servers(const ParsedArgs& args, ServerChoice* choice, std::string* origin) {
  Result<ServerList> list = named_servers(args.servers, args.servers_file);
  if (!list.ok()) return list.status();
  *origin = args.servers ? "the command line" : args.servers_file.value_or("");
  if (list->empty()) {
    Result<DefaultServers> defaults = default_servers();
    if (!defaults.ok()) return defaults.status();
    *list = std::move(defaults->list);
    *origin = std::move(defaults->origin);
  }
  if (list->empty()) origin->clear();
  for (const Address& address : list->servers) choice->servers.push_back(address.to_string());
  return {};
}

Status choose_security(const ParsedArgs& args, ServerChoice* choice) {
  Result<Credential> named = named_credential(args.token_file, args.secret_file);
  if (!named.ok()) return named.status();
  choice->credential = *std::move(named);
  const char* accepted = getenv("GPURUN_INSECURE_PLAINTEXT");
  Result<client::LinkSecurity> security =
      link_security(args.link, accepted != nullptr && std::string(accepted) == "1");
  if (!security.ok()) return security.status();
  choice->security = *std::move(security);
  choice->security.say = complain;
  return {};
}

// `*none`: the place that names no server, by the word none. Empty: there is no such place.
Result<ServerChoice> choose(const ParsedArgs& args, std::string* none) {
  ServerChoice choice;
  std::string origin;
  GPURUN_RETURN_IF_ERROR(choose_servers(args, &choice, &origin));
  if (choice.servers.empty()) *none = origin;
  if (choice.servers.empty() && origin.empty()) choice.servers.push_back(kOwnServer);
  GPURUN_RETURN_IF_ERROR(choose_security(args, &choice));
  return choice;
}

// For the variable that gpurun sets, too (client/attach/transports.h).
void trust_fabrics(const std::string& ports) {
  if (ports.empty()) return;
  setenv(client::kTrustFabricVariable, ports == "true" ? "*" : ports.c_str(), 1);
}

// A wrong list of servers or credential is a failed check, and the other checks run.
int run_health(const ParsedArgs& args) {
  ServerChoice choice;
  HealthOptions options;
  options.as_json = args.as_json;
  options.local = args.local;
  options.need_servers = args.need_servers;
  options.servers_fault = choose_servers(args, &choice, &options.origin);
  options.credential_fault = choose_security(args, &choice);
  return check_health(std::move(choice), options);
}

CLI::App* add_health(CLI::App* app, ParsedArgs* args) {
  CLI::App* command = app->add_subcommand(
      "health", "checks this machine and servers, with a remedy for each fault");
  add_host_options(command, args);
  command->add_flag("--local", args->local, "check this machine only, and no server");
  command->add_flag("--need-server", args->need_servers,
                    "a machine for which no server is named fails");
  command->add_flag("--json", args->as_json, "one object of JSON");
  return command;
}

CLI::App* add_info(CLI::App* app, ParsedArgs* args) {
  CLI::App* command = app->add_subcommand(
      "info", "transports, devices and limits, and which transport a session would use");
  add_host_options(command, args);
  command->add_flag("--json", args->as_json, "one object of JSON");
  return command;
}

CLI::App* add_topo(CLI::App* app, ParsedArgs* args) {
  CLI::App* command =
      app->add_subcommand("topo", "how far this machine's GPUs and network devices are apart");
  command->add_flag("--json", args->as_json, "one object of JSON");
  return command;
}

CLI::App* add_token_command(CLI::App* app, const char* name, const char* what, TokenOptions* args) {
  CLI::App* command = app->add_subcommand(name, what);
  command
      ->add_option("--tokens", args->file, "gpurund's file of tokens, if it is not the default one")
      ->type_name("FILE");
  return command;
}

// The function of the chosen command.
using TokenCommand = int (*)(const TokenOptions&);
std::vector<std::pair<CLI::App*, TokenCommand>> add_token_commands(CLI::App* token,
                                                                   TokenOptions* args) {
  token->require_subcommand(1);
  CLI::App* create = add_token_command(token, "create", "makes one, and prints it once", args);
  create->add_option("user", args->user, "the user that it belongs to")
      ->type_name("USER")
      ->required();
  create->add_option("--expires", args->expires, "how long it opens anything: 12h, 90d, 2w")
      ->type_name("DURATION");
  create->add_option("--note", args->note, "a line about it, for the list")->type_name("TEXT");
  create
      ->add_option(
          "--server-fingerprint", args->fingerprint,
          "the server's key (own: that of this machine's gpurund), for the user's first link")
      ->type_name("sha256:HEX|own");
  create->add_option("-o", args->output, "a new file for it (mode 0600), instead of stdout")
      ->type_name("FILE");
  CLI::App* list = add_token_command(token, "list", "all tokens, without their secrets", args);
  list->add_flag("--json", args->as_json, "a line of JSON for each");
  CLI::App* revoke = add_token_command(token, "revoke", "they open nothing any more", args);
  auto* ids = revoke->add_option("id", args->ids, "as the list names them")->type_name("ID");
  revoke->add_option("--user", args->user, "all of that user's")->type_name("USER")->excludes(ids);
  revoke->add_flag("--keep-running", args->keep_running, "leases that they hold may go on");
  return {{create, create_token}, {list, list_tokens}, {revoke, revoke_tokens}};
}

std::string default_report_name() {
  char name[64];
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  std::strftime(name, sizeof name, "gpurun-report-%Y%m%d-%H%M%S.txt", gmtime_r(&now, &utc));
  return name;
}

int run_gpuctl(int argc, char** argv) {
  ParsedArgs args;
  CLI::App app("Asks gpurun's servers, and describes this machine.", "gpuctl");
  app.set_version_flag("--version", protocol::version_line("gpuctl"));
  app.require_subcommand(1);
  CLI::App* list = app.add_subcommand("list", "the servers' GPUs and their holders");
  add_server_options(list, &args);
  list->add_flag("--json", args.as_json,
                 "a line of JSON for each server, with what gpurund itself holds");
  CLI::App* report = app.add_subcommand("report", "one file with what a bug report needs");
  add_server_options(report, &args);
  report->add_option("-o", args.output, "where to write it; - is stdout")->type_name("FILE");
  CLI::App* trace = app.add_subcommand("trace", "a timeline of what gpurun --trace has recorded");
  trace->add_option("traces", args.traces, "files that it has left, or folders of such")
      ->type_name("FOLDER|FILE")
      ->required();
  trace->add_option("-o", args.output, "where to write it; - is stdout")->type_name("FILE");
  const auto [netperf_command, netperf_program] = add_netperf(&app, &args);
  CLI::App* health = add_health(&app, &args);
  CLI::App* info = add_info(&app, &args);
  CLI::App* topo = add_topo(&app, &args);
  CLI::App* token = app.add_subcommand("token", "tokens of the users of this machine's GPUs");
  const auto token_commands = add_token_commands(token, &args.token);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version.
    complain(error.what() + did_you_mean(app, argc, argv) + "; gpuctl --help lists the options");
    return kExitWrongUsage;
  }
  trust_fabrics(args.trusted_fabrics);
  for (const auto& [command, run] : token_commands) {
    if (command->parsed()) return run(args.token);
  }
  if (trace->parsed()) {
    return write_trace(args.traces, args.output.empty() ? "gpurun-trace.json" : args.output);
  }
  if (netperf_program->parsed()) return netperf_session(args.seconds);
  if (health->parsed()) return run_health(args);
  if (topo->parsed()) return show_topo(args.as_json);
  std::string none;
  const Result<ServerChoice> choice = choose(args, &none);
  if (!choice.ok()) {
    complain(choice.status().message());
    return choice.status().code() == Code::kInvalidArgument ? kExitWrongUsage : kExitOwnFailure;
  }
  if (info->parsed()) return show_info(*choice, args.as_json);
  if (!none.empty() && !report->parsed()) {
    complain(none + " names no server, by the word none; name one by -l");
    return kExitWrongUsage;
  }
  if (list->parsed()) return list_servers(*choice, args.as_json);
  if (netperf_command->parsed()) {
    return netperf(*choice, {link_options(args), args.seconds, args.as_json, args.link_mbit});
  }
  return write_report(args.output.empty() ? default_report_name() : args.output, *choice);
}

}  // namespace
}  // namespace gpurun::tools

int main(int argc, char** argv) { return gpurun::tools::run_gpuctl(argc, argv); }
