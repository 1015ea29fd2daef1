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

struct Words {
  std::optional<std::string> servers, servers_file;
  std::string secret_file, token_file, output;
  TokenWords token;
  std::vector<std::string> traces;
  Options link;  // Only the link's security is used.
  bool as_json = false, local = false, need_servers = false;
  double seconds = 4;
};

void add_server_options(CLI::App* command, Words* words) {
  auto* list = command
                   ->add_option("-l", words->servers,
                                "servers; else the default ones, else that of this machine")
                   ->type_name("HOST[:PORT][,...]");
  command->add_option("-s", words->servers_file, "a file with one HOST[:PORT] a line")
      ->type_name("FILE")
      ->excludes(list);
  command
      ->add_option("--secret-file", words->secret_file,
                   "file (mode 0600) with the servers' secret; else GPURUN_SECRET_FILE names it")
      ->type_name("FILE");
  command
      ->add_option("--token-file", words->token_file,
                   "file (mode 0600) with your token for them; else GPURUN_TOKEN_FILE names it, or "
                   "~/.config/gpurun has it")
      ->type_name("FILE");
  command->add_flag("--insecure-plaintext", words->link.insecure_plaintext,
                    "reach servers beyond this machine without TLS; they must allow it, too");
  command->add_flag("--tls", words->link.always_tls, "speak TLS within this machine, too");
  command
      ->add_option("--tls-ca", words->link.authorities_file,
                   "PEM file with the authorities that sign servers' certificates")
      ->type_name("FILE");
  command
      ->add_option("--server-fingerprint", words->link.server_fingerprint,
                   "the server's key, as its gpurund --fingerprint prints it")
      ->type_name("sha256:HEX");
}

// As add_server_options(), and a server as the command's own word.
void add_host_options(CLI::App* command, Words* words) {
  add_server_options(command, words);
  command->add_option("host", words->servers, "servers, as for -l")
      ->type_name("HOST[:PORT][,...]")
      ->excludes(command->get_option("-l"))
      ->excludes(command->get_option("-s"));
}

// gpurun's words for the credential and the security of the links.
std::vector<std::string> link_options(const Words& words) {
  std::vector<std::string> options;
  const auto add = [&](const char* option, const std::string& value) {
    if (value.empty()) return;
    options.emplace_back(option);
    options.push_back(value);
  };
  add("--secret-file", words.secret_file);
  add("--token-file", words.token_file);
  add("--tls-ca", words.link.authorities_file);
  add("--server-fingerprint", words.link.server_fingerprint);
  if (words.link.insecure_plaintext) options.emplace_back("--insecure-plaintext");
  if (words.link.always_tls) options.emplace_back("--tls");
  return options;
}

// Adds the command, and the one by which it starts itself as a program of gpurun.
std::pair<CLI::App*, CLI::App*> add_netperf(CLI::App* app, Words* words) {
  CLI::App* command =
      app->add_subcommand("netperf", "what sessions to a server can do, over each transport");
  add_host_options(command, words);
  command->add_option("--seconds", words->seconds, "how long each transport is measured")
      ->type_name("NUMBER")
      ->check(CLI::Range(0.1, 600.0));
  command->add_flag("--json", words->as_json, "a line of JSON for each server");
  CLI::App* session = app->add_subcommand(kSessionCommand, "")->group("");
  session->add_option("seconds", words->seconds)->check(CLI::Range(0.1, 600.0));
  return {command, session};
}

// `*origin`: the option, variable or file that names servers, or "none". Empty: none does.
Status choose_servers(const Words& words, ServerChoice* choice, std::string* origin) {
  Result<ServerList> list = named_servers(words.servers, words.servers_file);
  if (!list.ok()) return list.status();
  *origin = words.servers ? "the command line" : words.servers_file.value_or("");
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

Status choose_security(const Words& words, ServerChoice* choice) {
  Result<Credential> named = named_credential(words.token_file, words.secret_file);
  if (!named.ok()) return named.status();
  choice->credential = *std::move(named);
  const char* accepted = getenv("GPURUN_INSECURE_PLAINTEXT");
  Result<client::LinkSecurity> security =
      link_security(words.link, accepted != nullptr && std::string(accepted) == "1");
  if (!security.ok()) return security.status();
  choice->security = *std::move(security);
  choice->security.say = complain;
  return {};
}

Result<ServerChoice> choose(const Words& words) {
  ServerChoice choice;
  std::string origin;
  GPURUN_RETURN_IF_ERROR(choose_servers(words, &choice, &origin));
  if (choice.servers.empty() && (words.servers || words.servers_file)) {
    return Status(Code::kInvalidArgument,
                  origin + " names no server, by the word none; name one, or leave the option out");
  }
  if (choice.servers.empty()) choice.servers.push_back(kOwnServer);
  GPURUN_RETURN_IF_ERROR(choose_security(words, &choice));
  return choice;
}

// A wrong list of servers or credential is a failed check, and the other checks run.
int run_health(const Words& words) {
  ServerChoice choice;
  HealthOptions order;
  order.as_json = words.as_json;
  order.local = words.local;
  order.need_servers = words.need_servers;
  order.servers_fault = choose_servers(words, &choice, &order.origin);
  order.credential_fault = choose_security(words, &choice);
  return check_health(std::move(choice), order);
}

CLI::App* add_health(CLI::App* app, Words* words) {
  CLI::App* command = app->add_subcommand(
      "health", "checks this machine and servers, with a remedy for each fault");
  add_host_options(command, words);
  command->add_flag("--local", words->local, "check this machine only, and no server");
  command->add_flag("--need-server", words->need_servers,
                    "a machine for which no server is named fails");
  command->add_flag("--json", words->as_json, "one object of JSON");
  return command;
}

CLI::App* add_info(CLI::App* app, Words* words) {
  CLI::App* command = app->add_subcommand(
      "info", "transports, devices and limits, and which transport a session would use");
  add_host_options(command, words);
  command->add_flag("--json", words->as_json, "one object of JSON");
  return command;
}

CLI::App* add_topo(CLI::App* app, Words* words) {
  CLI::App* command =
      app->add_subcommand("topo", "how far this machine's GPUs and network devices are apart");
  command->add_flag("--json", words->as_json, "one object of JSON");
  return command;
}

CLI::App* add_token_command(CLI::App* app, const char* name, const char* what, TokenWords* words) {
  CLI::App* command = app->add_subcommand(name, what);
  command
      ->add_option("--tokens", words->file,
                   "gpurund's file of tokens, if it is not the default one")
      ->type_name("FILE");
  return command;
}

// The function of the chosen command.
using TokenCommand = int (*)(const TokenWords&);
std::vector<std::pair<CLI::App*, TokenCommand>> add_token_commands(CLI::App* token,
                                                                   TokenWords* words) {
  token->require_subcommand(1);
  CLI::App* create = add_token_command(token, "create", "makes one, and prints it once", words);
  create->add_option("user", words->user, "the user that it belongs to")
      ->type_name("USER")
      ->required();
  create->add_option("--expires", words->expires, "how long it opens anything: 12h, 90d, 2w")
      ->type_name("DURATION");
  create->add_option("--note", words->note, "a line about it, for the list")->type_name("TEXT");
  create
      ->add_option(
          "--server-fingerprint", words->fingerprint,
          "the server's key (own: that of this machine's gpurund), for the user's first link")
      ->type_name("sha256:HEX|own");
  create->add_option("-o", words->output, "a new file for it (mode 0600), instead of stdout")
      ->type_name("FILE");
  CLI::App* list = add_token_command(token, "list", "all tokens, without their secrets", words);
  list->add_flag("--json", words->as_json, "a line of JSON for each");
  CLI::App* revoke = add_token_command(token, "revoke", "they open nothing any more", words);
  auto* ids = revoke->add_option("id", words->ids, "as the list names them")->type_name("ID");
  revoke->add_option("--user", words->user, "all of that user's")->type_name("USER")->excludes(ids);
  revoke->add_flag("--keep-running", words->keep_running, "leases that they hold may go on");
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
  Words words;
  CLI::App app("Asks gpurun's servers, and describes this machine.", "gpuctl");
  app.set_version_flag("--version", protocol::version_line("gpuctl"));
  app.require_subcommand(1);
  CLI::App* list = app.add_subcommand("list", "the servers' GPUs and their holders");
  add_server_options(list, &words);
  list->add_flag("--json", words.as_json,
                 "a line of JSON for each server, with what gpurund itself holds");
  CLI::App* report = app.add_subcommand("report", "one file with what a bug report needs");
  add_server_options(report, &words);
  report->add_option("-o", words.output, "where to write it; - is stdout")->type_name("FILE");
  CLI::App* trace = app.add_subcommand("trace", "a timeline of what gpurun --trace has recorded");
  trace->add_option("traces", words.traces, "files that it has left, or folders of such")
      ->type_name("FOLDER|FILE")
      ->required();
  trace->add_option("-o", words.output, "where to write it; - is stdout")->type_name("FILE");
  const auto [netperf_command, netperf_program] = add_netperf(&app, &words);
  CLI::App* health = add_health(&app, &words);
  CLI::App* info = add_info(&app, &words);
  CLI::App* topo = add_topo(&app, &words);
  CLI::App* token = app.add_subcommand("token", "tokens of the users of this machine's GPUs");
  const auto token_commands = add_token_commands(token, &words.token);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version.
    complain(error.what() + did_you_mean(app, argc, argv) + "; gpuctl --help lists the options");
    return kExitWrongUsage;
  }
  for (const auto& [command, run] : token_commands) {
    if (command->parsed()) return run(words.token);
  }
  if (trace->parsed()) {
    return write_trace(words.traces, words.output.empty() ? "gpurun-trace.json" : words.output);
  }
  if (netperf_program->parsed()) return netperf_session(words.seconds);
  if (health->parsed()) return run_health(words);
  if (topo->parsed()) return show_topo(words.as_json);
  const Result<ServerChoice> choice = choose(words);
  if (!choice.ok()) {
    complain(choice.status().message());
    return choice.status().code() == Code::kInvalidArgument ? kExitWrongUsage : kExitOwnFailure;
  }
  if (list->parsed()) return list_servers(*choice, words.as_json);
  if (info->parsed()) return show_info(*choice, words.as_json);
  if (netperf_command->parsed()) {
    return netperf(*choice, {link_options(words), words.seconds, words.as_json});
  }
  return write_report(words.output.empty() ? default_report_name() : words.output, *choice);
}

}  // namespace
}  // namespace gpurun::tools

int main(int argc, char** argv) { return gpurun::tools::run_gpuctl(argc, argv); }
