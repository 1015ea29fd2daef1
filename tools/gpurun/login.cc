// gpurun login: checks the server's key before the token. A token goes only to a server that the
// user has confirmed.
#include "tools/gpurun/login.h"

#include <unistd.h>

#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/command_suggestion.h"
#include "base/file_io.h"
#include "client/control/known_servers.h"
#include "protocol/auth/secret_text.h"
#include "tools/gpurun/credential.h"
#include "tools/gpurun/default_servers.h"
#include "tools/gpurun/lease.h"
#include "tools/gpurun/options.h"
#include "tools/gpurun/private_file.h"
#include "tools/gpurun/slow_notice.h"
#include "tools/gpurun/terminal.h"
#include "transport/tls/handshake.h"
#include "transport/transport.h"

namespace gpurun::tools {
namespace {

using transport::tls::Fingerprint;

constexpr std::chrono::seconds kMeetDeadline{10};
constexpr std::size_t kInputBytesMax = 4096;

void say(const std::string& text) {
  std::fprintf(stderr, "gpurun: %s\n", protocol::hide_tokens(text).c_str());
}

Status wrong(const std::string& what) { return Status(Code::kInvalidArgument, what); }

struct LoginWords {
  std::string server, help;
  Options link;  // Only the link's security is used.
};

struct Login {
  Address address;
  std::string server;  // HOST:PORT.
  client::LinkSecurity security;
  std::string folder;
  std::optional<Fingerprint> key;  // The server's key. Nothing: the link is not encrypted.
  bool key_is_known = false;       // From an earlier login.
  Credential credential;

  std::string known_servers() const { return folder + "/known_servers"; }
  std::string token_file() const { return folder + "/tokens/" + server; }
};

Result<LoginWords> parse_words(int argc, const char* const* argv) {
  LoginWords words;
  CLI::App app("Stores your token for a server, and makes it your default server.", "gpurun login");
  app.add_option("server", words.server, "the server")->type_name("HOST[:PORT]")->required();
  app.add_option("--fingerprint,--server-fingerprint", words.link.server_fingerprint,
                 "the server's key, as its operator names it: it is not asked about then")
      ->type_name("sha256:HEX");
  app.add_option("--tls-ca", words.link.authorities_file,
                 "PEM file with the authorities that sign servers' certificates")
      ->type_name("FILE");
  app.add_flag("--tls", words.link.always_tls, "speak TLS within this machine, too");
  app.add_flag("--insecure-plaintext", words.link.insecure_plaintext,
               "reach servers beyond this machine without TLS; they must allow it, too");
  app.footer("The token is asked for on the terminal, or read from stdin.");
  try {
    app.parse(argc - 1, argv + 1);
  } catch (const CLI::CallForHelp&) {
    words.help = app.help();
  } catch (const CLI::ParseError& error) {
    return wrong(std::string("login: ") + error.what() + did_you_mean(app, argc - 1, argv + 1) +
                 "; gpurun login --help lists the options");
  }
  return words;
}

Result<Login> prepare(const LoginWords& words) {
  Login login;
  const Result<Address> address = parse_address(words.server);
  if (!address.ok()) return address.status();
  if (address->host[0] == '.') return wrong("'" + words.server + "' names no host");
  login.address = *address;
  login.server = address->to_string();
  const char* accepted = getenv("GPURUN_INSECURE_PLAINTEXT");
  auto security = link_security(words.link, accepted != nullptr && std::string(accepted) == "1");
  if (!security.ok()) return security.status();
  login.security = *std::move(security);
  login.security.say = say;
  login.folder = config_folder();
  if (login.folder.empty()) {
    return Status(Code::kUnavailable,
                  "there is no folder to store the token in: HOME and XDG_CONFIG_HOME are not set");
  }
  login.security.known_servers = login.known_servers();
  // Finds early a file that could not be changed at the end.
  const auto kept = read_servers_file(user_servers_file());
  if (!kept.ok() && kept.status().code() != Code::kUnavailable) return kept.status();
  return login;
}

// Gets the server's key, before anything is sent to it.
Status meet(Login* login) {
  const SlowNotice notice(say, "still connecting to " + login->server);
  const Deadline deadline = Deadline::in(kMeetDeadline);
  auto connection = transport::connect("tcp://" + login->server, deadline);
  if (!connection.ok()) return advised(connection.status(), login->server);
  const auto decision =
      client::decide_link(login->security, login->server, (*connection)->capabilities().same_host);
  if (!decision.ok()) return decision.status();
  if (!decision->tls) return {};
  transport::tls::ServerTrust trust;
  trust.authorities_file = login->security.authorities_file;
  trust.host = login->address.host;
  auto handshake = transport::tls::Handshake::of_client(trust);
  if (!handshake.ok()) return handshake.status();
  const auto channel = (*handshake)->finish(**connection, deadline);
  if (!channel.ok()) return client::name_pin(advised(channel.status(), login->server), *decision);
  login->key = *channel->peer;
  return {};
}

// Confirms the server's key: it was named, known or signed, or the user says yes. A token that
// names another key was refused before.
Status confirm_key(Login* login) {
  if (!login->key) return {};
  const std::string shown = transport::tls::to_string(*login->key);
  if (login->security.fingerprint && *login->security.fingerprint != *login->key) {
    return Status(Code::kRefused, "the server " + login->server + " shows the key " + shown +
                                      ", not the one of --fingerprint: it is another server, or "
                                      "a third party intercepts the link");
  }
  const auto known = client::look_up_server(login->known_servers(), login->server, *login->key);
  if (!known.ok()) return known.status();
  login->key_is_known = *known == client::Acquaintance::kKnown;
  const auto& token = login->credential.token;
  const bool named = login->security.fingerprint || (token && token->server);
  if (named || login->key_is_known || !login->security.authorities_file.empty()) return {};
  if (isatty(STDIN_FILENO) == 0) {
    return Status(Code::kRefused, "the server " + login->server + " shows the key " + shown +
                                      ", and there is no terminal to ask on. If its operator "
                                      "names the same (gpurund --fingerprint), use --fingerprint " +
                                      shown);
  }
  say("the server " + login->server + " shows the key " + shown);
  if (says_yes("Does its operator name the same (gpurund --fingerprint)?")) return {};
  return Status(Code::kRefused, "the key was not confirmed; nothing is stored");
}

Status take_token(Login* login) {
  const bool asked = isatty(STDIN_FILENO) != 0;
  const Result<std::string> text = asked ? read_hidden_line("Token for " + login->server + ": ")
                                         : read_text(STDIN_FILENO, kInputBytesMax, "stdin");
  if (!text.ok()) return text.status();
  const Result<protocol::Token> token = protocol::parse_token(*text);
  login->credential.file = asked ? "the terminal" : "stdin";
  if (!token.ok()) return wrong(login->credential.file + ": " + token.status().message());
  if (token->server && login->key && *token->server != *login->key) {
    return Status(Code::kRefused, "the token is for another server: it names the key " +
                                      transport::tls::to_string(*token->server));
  }
  login->credential.token = *token;
  return {};
}

// The number of GPUs that the server lists for this token.
Result<std::size_t> check(const Login& login) {
  client::LinkSecurity security = login.security;
  security.fingerprint = login.key;
  auto link = connect_to_server(login.server, login.credential, security, say);
  if (!link.ok()) return link.status();
  const auto listing = (*link)->list();
  if (!listing.ok()) return advised(listing.status(), login.server, login.credential);
  return listing->gpus.size();
}

Status store(const Login& login) {
  // Also for a key that authorities have signed, because a later run may not name them.
  if (login.key) {
    const auto met = client::pin_server(login.known_servers(), login.server, *login.key);
    if (!met.ok()) return met.status();
  }
  GPURUN_RETURN_IF_ERROR(write_private_file(
      login.token_file(), protocol::format_token(*login.credential.token) + "\n"));
  return make_default(user_servers_file(), login.address);
}

Status perform(const LoginWords& words) {
  Result<Login> login = prepare(words);
  if (!login.ok()) return login.status();
  GPURUN_RETURN_IF_ERROR(meet(&*login));
  // A script's token may name the key, so it is read first. A person compares the key first.
  const bool on_terminal = isatty(STDIN_FILENO) != 0;
  if (!on_terminal) GPURUN_RETURN_IF_ERROR(take_token(&*login));
  GPURUN_RETURN_IF_ERROR(confirm_key(&*login));
  if (on_terminal) GPURUN_RETURN_IF_ERROR(take_token(&*login));
  const Result<std::size_t> gpus = check(*login);
  if (!gpus.ok()) return gpus.status();
  GPURUN_RETURN_IF_ERROR(store(*login));
  std::printf("%s accepts the token (it has %zu %s), and is your default server now: %s, %s\n",
              login->server.c_str(), *gpus, *gpus == 1 ? "GPU" : "GPUs",
              login->token_file().c_str(), user_servers_file().c_str());
  const char* variable = getenv(kServersVariable);
  if (variable != nullptr && *variable != '\0') {
    say(std::string(kServersVariable) + " is set and overrides the default server");
  }
  return std::fflush(stdout) == 0 ? Status() : Status::from_errno(errno, "stdout");
}

}  // namespace

int log_in(int argc, const char* const* argv) {
  const Result<LoginWords> words = parse_words(argc, argv);
  if (words.ok() && !words->help.empty()) {
    std::fputs(words->help.c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : kExitOwnFailure;
  }
  const Status status = words.ok() ? perform(*words) : words.status();
  if (status.ok()) return 0;
  say(status.message());
  return kExitOwnFailure;
}

}  // namespace gpurun::tools
