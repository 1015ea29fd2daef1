// Command line: the file is read first, so that CLI11 overrides its settings.
#include "server/daemon/config/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/command_suggestion.h"
#include "protocol/auth/secret_text.h"
#include "protocol/control/version_line.h"
#include "server/daemon/config/config_file.h"
#include "server/daemon/config/config_values.h"

namespace gpurun::server {
namespace {

// Changes "16GiB" to its number of bytes.
CLI::Validator as_size() {
  return {[](std::string& text) {
            const Result<std::uint64_t> bytes = parse_size(text);
            if (!bytes.ok()) return bytes.status().message();
            text = std::to_string(*bytes);
            return std::string();
          },
          "SIZE"};
}

void add_options(CLI::App& app, Config& config, CommandLine& words) {
  app.add_option("--config", words.config_file,
                 "TOML file with these settings; options override it");
  app.add_option("--listen", config.listen, "address and port to listen on: HOST[:PORT]")
      ->capture_default_str();
  app.add_option("--driver", config.driver,
                 "real, emulated, or a CUDA driver library by absolute path")
      ->capture_default_str();
  app.add_option("--worker", config.worker, "gpurun-worker; beside this program by default");
  auto* file = app.add_option("--secret-file", config.secret_file,
                              "file (mode 0600) with the secret that users must know");
  app.add_option("--secret-fd", config.secret_fd, "descriptor to read the secret from")
      ->excludes(file);
  app.add_option("--ready-fd", config.ready_fd,
                 "descriptor to write the address to, once this server listens");
  app.add_flag("--insecure-plaintext", config.insecure_plaintext,
               "let clients beyond this machine do without TLS, if they have the same option");
  app.add_flag("--tls", config.tls, "speak TLS only, also within this machine");
  app.add_option("--tls-certificate", config.tls_certificate,
                 "PEM file with this server's certificate; else it makes one");
  app.add_option("--tls-key", config.tls_key, "PEM file (mode 0600) with its private key");
  app.add_flag("--fingerprint", words.fingerprint,
               "print the fingerprint of this server's key, by which clients know it, and end");
  app.add_option("--tokens", config.tokens, "file of users' tokens (gpuctl token); or none");
  app.add_option("--audit", config.audit,
                 "record of users' actions, a line each: syslog, none, or a file by absolute path")
      ->capture_default_str();
  app.add_option("--worker-uids", words.worker_uids,
                 "users that workers run as when this is root: FIRST-LAST, or none");
  app.add_option("--confinement", config.confinement,
                 "full, or none: workers can do what this daemon's user can")
      ->capture_default_str();
  app.add_option("--fabric", config.trusted_fabrics,
                 "RDMA devices or ports that sessions may use, such as mlx5_0:1; nothing is "
                 "encrypted there")
      ->delimiter(',');
  app.add_option("--gpudirect", config.gpudirect,
                 "auto: RDMA devices read large copies into GPU memory; or off")
      ->capture_default_str();
  app.add_option("--worker-memory", config.worker_memory,
                 "main memory that one worker may have, such as 16GiB; 0: by its GPUs")
      ->transform(as_size());
  app.add_option("--worker-numa", config.worker_numa,
                 "auto: workers run on the NUMA node of their GPUs; or off")
      ->capture_default_str();
  app.add_option("--spare-workers", config.spare_workers,
                 "workers that are started before there is a lease for them; 1 by default");
  app.add_option("--spare-level", config.spare_level,
                 "what they have done: mapped (the driver), or initialised (after cuInit)")
      ->capture_default_str();
  app.add_option("--cache", config.cache,
                 "folder for code images, so that none is sent twice; or none");
  app.add_option("--cache-bytes", config.cache_bytes, "bytes that they may take, such as 4GiB")
      ->transform(as_size());
  app.add_option("--log", config.log, "error, warning, info, debug or trace; else GPURUN_LOG");
  app.add_flag("--for-one-run", config.for_one_run)->group("");  // Used by gpurun for its private
                                                                 // server.
  app.add_flag("--verbose", words.verbose, "log every connection: --log info");
  app.set_version_flag("--version", protocol::version_line("gpurund"));
}

// Reads the file's settings first, so that the command line changes only what it names.
Status read_config_file_of(int argc, const char* const* argv, Config* config) {
  for (int index = 1; index < argc; ++index) {
    const std::string_view word = argv[index];
    if (word == "--config" && index + 1 < argc) return read_config_file(argv[index + 1], config);
    if (word.starts_with("--config=")) {
      return read_config_file(std::string(word.substr(std::strlen("--config="))), config);
    }
  }
  return Status();
}

Status take_worker_uids(const std::string& word, Config* config) {
  if (word.empty()) return {};
  const Result<UidRange> range = parse_uid_range(word);
  if (!range.ok()) {
    return Status(range.status().code(), "--worker-uids: " + range.status().message());
  }
  config->worker_uids = *range;
  config->worker_uids_given = true;
  return {};
}

// Checks what the command line has set. The file's settings were checked with their lines.
Status check_words(const CLI::App& app, const Config& config) {
  for (const std::string_view name : setting_names()) {
    const std::string option = "--" + std::string(name);
    const CLI::Option* said = app.get_option_no_throw(option);
    if (said == nullptr || said->count() == 0) continue;
    const Status good = check_setting(name, config);
    if (!good.ok()) return Status(good.code(), option + " " + good.message());
  }
  return {};
}

Status check_together(const Config& config) {
  const bool certificate = !config.tls_certificate.empty();
  if (certificate == !config.tls_key.empty()) return {};
  const char* said = certificate ? "tls-certificate" : "tls-key";
  const char* missing = certificate ? "tls-key" : "tls-certificate";
  const auto origin = config.origins.find(said);
  const std::string where = origin == config.origins.end() ? std::string("--") + said
                                                           : origin->second + ": '" + said + "'";
  return Status(Code::kInvalidArgument,
                where + " needs " + missing + " beside it; name both, or neither");
}

}  // namespace

Result<std::optional<int>> read_command_line(int argc, char** argv, Config* config,
                                             CommandLine* words) {
  // The user named a wrong file, whatever the error.
  if (const Status read = read_config_file_of(argc, argv, config); !read.ok()) {
    return Status(Code::kInvalidArgument, read.message());
  }
  CLI::App app("gpurund lends this machine's GPUs to programs on other machines.", "gpurund");
  add_options(app, *config, *words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return std::optional<int>(app.exit(error));
    std::fprintf(stderr, "gpurund: %s%s; gpurund --help lists the options\n",
                 protocol::hide_tokens(error.what()).c_str(),
                 did_you_mean(app, argc, argv).c_str());
    return std::optional<int>(kExitWrongUsage);
  }
  config->cache_given = config->cache_given || app.count("--cache") > 0;
  config->spare_workers_given = config->spare_workers_given || app.count("--spare-workers") > 0;
  config->tokens_given = config->tokens_given || app.count("--tokens") > 0;
  words->log_given = app.count("--log") > 0;
  GPURUN_RETURN_IF_ERROR(take_worker_uids(words->worker_uids, config));
  GPURUN_RETURN_IF_ERROR(check_words(app, *config));
  GPURUN_RETURN_IF_ERROR(check_together(*config));
  return std::optional<int>();
}

}  // namespace gpurun::server
