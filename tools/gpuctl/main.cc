// gpuctl: the user's and operator's tool. One file for each command; this one reads the words.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "tools/gpuctl/list.h"
#include "tools/gpuctl/report.h"
#include "tools/gpurun/options.h"
#include "tools/gpurun/secret.h"

namespace gpurun::tools {
namespace {

// Words that mean nothing, apart from servers that do not answer (kExitOwnFailure).
constexpr int kExitWrongUsage = 2;

struct Words {
  std::string servers, servers_file, secret_file, output;
  bool insecure_plaintext = false;
  bool as_json = false;
};

void add_server_options(CLI::App* command, Words* words) {
  auto* list = command->add_option("-l", words->servers, "servers; else the one on this machine")
                   ->type_name("HOST[:PORT][,...]");
  command->add_option("-s", words->servers_file, "a file with one HOST[:PORT] a line")
      ->type_name("FILE")
      ->excludes(list);
  command
      ->add_option("--secret-file", words->secret_file,
                   "file (mode 0600) with the servers' secret; else GPURUN_SECRET_FILE names it")
      ->type_name("FILE");
  command->add_flag("--insecure-plaintext", words->insecure_plaintext,
                    "reach servers beyond this machine although nothing is encrypted yet");
}

Result<ServerChoice> choose(const Words& words) {
  ServerChoice choice;
  std::vector<Address> addresses;
  if (!words.servers_file.empty()) {
    GPURUN_RETURN_IF_ERROR(add_servers_of_file(words.servers_file, &addresses));
  } else {
    GPURUN_RETURN_IF_ERROR(
        add_servers(words.servers.empty() ? "127.0.0.1" : words.servers, &addresses));
  }
  for (const Address& address : addresses) choice.servers.push_back(address.to_string());
  std::string secret_file = words.secret_file;
  if (const char* named = getenv(kSecretFileVariable); secret_file.empty() && named != nullptr) {
    secret_file = named;
  }
  if (!secret_file.empty()) {
    Result<Bytes> secret = read_secret_file(secret_file);
    if (!secret.ok()) return secret.status();
    choice.secret = *std::move(secret);
    choice.secret_file = secret_file;
  }
  const char* accepted = getenv("GPURUN_INSECURE_PLAINTEXT");
  choice.insecure_plaintext =
      words.insecure_plaintext || (accepted != nullptr && std::string(accepted) == "1");
  return choice;
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
  app.set_version_flag("--version", std::string("gpuctl ") + protocol::kRelease);
  app.require_subcommand(1);
  CLI::App* list = app.add_subcommand("list", "the servers' GPUs and who holds them");
  add_server_options(list, &words);
  list->add_flag("--json", words.as_json,
                 "a line of JSON for each server, with what gpurund itself holds");
  CLI::App* report = app.add_subcommand("report", "one file with what a bug report needs");
  add_server_options(report, &words);
  report->add_option("-o", words.output, "where to write it; - is stdout")->type_name("FILE");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version.
    std::fprintf(stderr, "gpuctl: %s; gpuctl --help shows what there is\n", error.what());
    return kExitWrongUsage;
  }
  const Result<ServerChoice> choice = choose(words);
  if (!choice.ok()) {
    std::fprintf(stderr, "gpuctl: %s\n", choice.status().message().c_str());
    return choice.status().code() == Code::kInvalidArgument ? kExitWrongUsage : kExitOwnFailure;
  }
  if (list->parsed()) return list_servers(*choice, words.as_json);
  return write_report(words.output.empty() ? default_report_name() : words.output, *choice);
}

}  // namespace
}  // namespace gpurun::tools

int main(int argc, char** argv) { return gpurun::tools::run_gpuctl(argc, argv); }
