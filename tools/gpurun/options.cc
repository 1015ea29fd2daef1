// Options: their parsing, their defaults from the environment, and the checks.
#include "tools/gpurun/options.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/command_suggestion.h"
#include "client/attach/transports.h"
#include "protocol/control/version_line.h"

namespace gpurun::tools {
namespace {

constexpr int kGpuCountMax = 64;
// Planned options. They are refused by name, so that no user believes that they had an effect.
constexpr const char* kLaterOptions[] = {"-p", "-m", "--filter"};

Status wrong(const std::string& message) { return Status(Code::kInvalidArgument, message); }

// A whole number without sign or blanks, and nothing after it.
std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// What CLI11 filled in, as text, before the checks with messages of our own. An option that was not
// given is not an empty text: `-l "$SERVER"` with an unset variable must not run the program on
// this machine.
struct Words {
  std::optional<std::string> gpu_count, servers, servers_file, timeout, device, transports,
      trace_folder, session_folder;
};

Status check_transports(const Words& words, Options* options) {
  if (words.transports && words.transports->empty()) {
    return wrong(
        "--transport: a transport must be named: shm, rdma, tcp, or several with commas "
        "between");
  }
  options->transports = words.transports.value_or("");
  const auto transports = client::parse_transports(options->transports, "--transport");
  if (!transports.ok()) return transports.status();
  return client::parse_allowed_ports(options->trusted_fabrics, "", "--trust-fabric").status();
}

Status check(const Words& words, Options* options) {
  options->gpu_count_named = words.gpu_count.has_value();
  const auto count = whole_number(words.gpu_count.value_or("1"));
  if (!count || *count < 1 || *count > kGpuCountMax) {
    return wrong("-n: '" + *words.gpu_count + "' is no number of GPUs from 1 to 64");
  }
  options->gpu_count = static_cast<int>(*count);
  if (words.trace_folder && words.trace_folder->empty()) {
    return wrong("--trace: a folder must be named");
  }
  options->trace_folder = words.trace_folder.value_or("");
  if (words.session_folder && words.session_folder->empty()) {
    return wrong("--session-folder: a folder must be named");
  }
  options->session_folder = words.session_folder.value_or("");
  GPURUN_RETURN_IF_ERROR(check_transports(words, options));
  if (words.servers && words.servers_file) {
    return wrong("-l and -s both name servers; give one of them");
  }
  const Result<ServerList> named = named_servers(words.servers, words.servers_file);
  if (!named.ok()) return named.status();
  options->servers = named->servers;
  if (words.timeout) {
    const auto duration = parse_duration(*words.timeout);
    if (!duration.ok()) return wrong("--timeout: " + duration.status().message());
    options->lease_wait = *duration;
  }
  if (words.device == "real") {
    options->device = Device::kReal;
  } else if (words.device == "emulated") {
    options->device = Device::kEmulated;
  } else if (words.device) {
    return wrong("--device: '" + *words.device + "' is neither real nor emulated");
  }
  if (!options->servers.empty() && options->device != Device::kAutomatic) {
    return wrong("--device chooses for a private server; the server named by -l or -s has its own");
  }
  options->private_server = named->none || words.device.has_value();
  return {};
}

// Number of argv's words that are gpurun's own, its name included. They end at "--", or at the
// first word that is neither an option nor the value of the option before it.
int own_words(int argc, const char* const* argv, const CLI::App& app) {
  int index = 1;
  while (index < argc) {
    const std::string_view word = argv[index];
    if (word == "--" || word.size() < 2 || word[0] != '-') break;
    const CLI::Option* option = app.get_option_no_throw(std::string(word));
    index += option != nullptr && option->get_items_expected_max() > 0 ? 2 : 1;
  }
  return std::min(index, argc);
}

std::string later_option(int own_count, const char* const* argv, const std::string& otherwise) {
  for (int index = 1; index < own_count; ++index) {
    for (const std::string_view later : kLaterOptions) {
      if (std::string_view(argv[index]).substr(0, later.size()) == later) {
        return std::string(later) + " does not exist yet in this version";
      }
    }
  }
  return otherwise;
}

// CLI11's sentences end in the words that they are about.
std::string behind_colon(const std::string& sentence) {
  const std::size_t colon = sentence.find(": ");
  return colon == std::string::npos ? sentence : sentence.substr(colon + 2);
}

}  // namespace

Result<client::LinkSecurity> link_security(const Options& options, bool plaintext_accepted) {
  client::LinkSecurity security;
  security.always_tls = options.always_tls;
  security.insecure_plaintext = options.insecure_plaintext || plaintext_accepted;
  security.authorities_file = options.authorities_file;
  if (!options.server_fingerprint.empty()) {
    const auto told = transport::tls::parse_fingerprint(options.server_fingerprint);
    if (!told.ok()) return wrong("--server-fingerprint: " + told.status().message());
    security.fingerprint = *told;
  }
  GPURUN_RETURN_IF_ERROR(client::check_link_security(security));
  return security;
}

Result<std::chrono::milliseconds> parse_duration(const std::string& text) {
  constexpr std::uint64_t kDaysMaxInMs = 30ull * 24 * 3600 * 1000;
  const std::size_t unit_at = text.find_first_not_of("0123456789");
  const auto number = whole_number(text.substr(0, unit_at));
  const std::string unit = unit_at == std::string::npos ? "" : text.substr(unit_at);
  const std::uint64_t factor = unit == "ms"  ? 1
                               : unit == "s" ? 1000
                               : unit == "m" ? 60'000
                               : unit == "h" ? 3'600'000
                               : unit == "d" ? 86'400'000
                                             : 0;
  if (!number || factor == 0) {
    return wrong("'" + text + "' is no duration; write one like 30s, 5m, 2h or 3d");
  }
  if (*number > kDaysMaxInMs / factor) return wrong("'" + text + "' is more than 30 days");
  return std::chrono::milliseconds(*number * factor);
}

Result<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  Words words;
  CLI::App app("Runs a CUDA program on GPUs of another machine.", "gpurun");
  app.add_option("-n", words.gpu_count, "GPUs to lease (default 1)")->type_name("COUNT");
  app.add_option("-l", words.servers,
                 "servers; without it the default ones (GPURUN_SERVERS, ~/.config/gpurun/servers, "
                 "/etc/gpurun/servers), or none: a private one on this machine")
      ->type_name("HOST[:PORT][,...]|none");
  app.add_option("-s", words.servers_file, "a file with one HOST[:PORT] a line")->type_name("FILE");
  app.add_option("--timeout", words.timeout, "wait so long for a free GPU (default: do not wait)")
      ->type_name("DURATION");
  app.add_option("--device", words.device, "device of the private server")
      ->type_name("real|emulated");
  app.add_option("--secret-file", options.secret_file,
                 "file (mode 0600) with the server's secret; else GPURUN_SECRET_FILE names it")
      ->type_name("FILE");
  app.add_option("--token-file", options.token_file,
                 "file (mode 0600) with your token for the servers; else GPURUN_TOKEN_FILE names "
                 "it, or ~/.config/gpurun has it")
      ->type_name("FILE");
  app.add_flag("--insecure-plaintext", options.insecure_plaintext,
               "reach servers beyond this machine without TLS; they must allow it, too");
  app.add_flag("--tls", options.always_tls, "speak TLS within this machine, too");
  app.add_option("--tls-ca", options.authorities_file,
                 "PEM file with the authorities that sign servers' certificates")
      ->type_name("FILE");
  app.add_option("--server-fingerprint", options.server_fingerprint,
                 "the server's key, as its gpurund --fingerprint prints it")
      ->type_name("sha256:HEX");
  app.add_option("--transport", words.transports,
                 "transports that sessions may use, best first: shm, rdma, tcp")
      ->type_name("LIST");
  app.add_flag("--trust-fabric", options.trusted_fabrics,
               "let sessions go over RDMA, which encrypts nothing; =mlx5_0:1,... names ports");
  app.add_flag("--stats", options.stats, "print counts and waiting times at the end");
  app.add_option("--trace", words.trace_folder,
                 "each process leaves what it did there; gpuctl trace makes a timeline of it")
      ->type_name("FOLDER");
  app.add_option("--session-folder", words.session_folder,
                 "a folder through which programs in containers use the GPU: mount it there")
      ->type_name("FOLDER");
  app.add_flag("-q", options.quiet, "print nothing but warnings");
  app.set_version_flag("--version", protocol::version_line("gpurun"));
  app.footer(
      "gpurun login HOST stores your token for a server and makes it the default one.\n"
      "The program and its arguments follow; -- ends gpurun's own options.");
  const int own_count = own_words(argc, argv, app);
  try {
    app.parse(own_count, argv);
    if (options.trusted_fabrics == "true") options.trusted_fabrics = "*";  // Without a value.
  } catch (const CLI::CallForVersion& version) {
    options.action = Options::Action::kShowText;
    options.text = std::string(version.what()) + "\n";
    return options;
  } catch (const CLI::CallForHelp&) {
    options.action = Options::Action::kShowText;
    options.text = app.help();
    const std::string usage = "[OPTIONS]";
    if (const std::size_t at = options.text.find(usage); at != std::string::npos) {
      options.text.replace(at, usage.size(), usage + " [--] PROGRAM [ARGUMENT...]");
    }
    return options;
  } catch (const CLI::ExtrasError& error) {
    return wrong(later_option(own_count, argv,
                              "there is no option " + behind_colon(error.what()) +
                                  did_you_mean(app, own_count, argv) +
                                  "; gpurun --help lists the options"));
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string_view sentence = error.what();
    const bool twice = sentence.find("At Most") != std::string_view::npos;
    return wrong(
        std::string(sentence.substr(0, sentence.find(':'))) +
        (twice ? " is given more than once" : " needs a value; gpurun --help shows which"));
  } catch (const CLI::ParseError& error) {
    return wrong(later_option(own_count, argv, error.what()));
  }
  const int separator = own_count < argc && std::string_view(argv[own_count]) == "--" ? 1 : 0;
  options.command.assign(argv + own_count + separator, argv + argc);
  // login(1) asks for a password of this machine, and users would type their token there.
  if (separator == 0 && own_count > 1 && !options.command.empty() &&
      options.command[0] == "login") {
    return wrong(
        "login comes before its options: gpurun login HOST [OPTION...]; a program of "
        "that name is run by gpurun -- login");
  }
  if (options.command.empty()) return wrong("no program is named; gpurun --help shows how");
  GPURUN_RETURN_IF_ERROR(check(words, &options));
  if (const auto security = link_security(options, false); !security.ok()) return security.status();
  return options;
}

}  // namespace gpurun::tools
