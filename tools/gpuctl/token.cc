// gpuctl token: makes, lists and revokes users' tokens.
#include "tools/gpuctl/token.h"

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file_io.h"
#include "base/printable.h"
#include "base/unique_fd.h"
#include "tools/gpuctl/complain.h"
#include "tools/gpurun/options.h"
#include "transport/tls/certificate.h"

namespace gpurun::tools {
namespace {

using protocol::TokenEntry;
using protocol::TokenState;

constexpr int kExitWrongUsage = 2;
constexpr std::int64_t kDay = 24 * 3600;
constexpr std::int64_t kLifetimeMax = 10 * 366 * kDay;

int failed(const Status& status) {
  complain(status.message());
  return status.code() == Code::kInvalidArgument ? kExitWrongUsage : kExitOwnFailure;
}

Status wrong(const std::string& what) { return Status(Code::kInvalidArgument, what); }

std::int64_t seconds_now() { return std::int64_t{std::time(nullptr)}; }

std::string time_text(std::int64_t seconds, const char* otherwise) {
  if (seconds == 0) return otherwise;
  char text[32];
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc = {};
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", gmtime_r(&time, &utc));
  return text;
}

const char* state_of(const TokenEntry& entry, std::int64_t now) {
  if (entry.state != TokenState::kValid) return "revoked";
  return entry.expired(now) ? "expired" : "valid";
}

std::string row(const std::string& id, const std::string& user, const std::string& state,
                const std::string& made, const std::string& expires, const std::string& used,
                const std::string& note) {
  char line[512];
  std::snprintf(line, sizeof line, "%-12s  %-16s  %-7s  %-20s  %-20s  %-20s  %s", id.c_str(),
                user.c_str(), state.c_str(), made.c_str(), expires.c_str(), used.c_str(),
                note.c_str());
  std::string text = line;
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

Result<std::string> file_of(const TokenOptions& options) {
  std::string file = options.file.empty() ? protocol::default_token_file() : options.file;
  if (file.empty()) return wrong("neither STATE_DIRECTORY, XDG_STATE_HOME nor HOME is set");
  if (file[0] != '/') return wrong("--tokens: '" + file + "' is no absolute path");
  return file;
}

void drop_old(std::vector<TokenEntry>* entries, std::int64_t now) {
  std::erase_if(*entries, [now](const TokenEntry& entry) {
    return entry.state != TokenState::kValid && now - entry.ended > protocol::kRevokedKeptS;
  });
}

// The person that runs gpuctl: the login user where the kernel keeps it (sudo does not change it),
// else the user that sudo names, else this process's user.
std::string who_asks() {
  std::string uid;
  std::getline(std::ifstream("/proc/self/loginuid"), uid);
  constexpr const char* kNobody = "4294967295";
  const char* sudo = getenv("SUDO_UID");
  if (uid.empty() || uid == kNobody) uid = geteuid() == 0 && sudo != nullptr ? sudo : "";
  std::uint32_t number = getuid();
  std::from_chars(uid.data(), uid.data() + uid.size(), number);
  const struct passwd* known = getpwuid(number);
  const std::string name = known != nullptr ? known->pw_name : "";
  // Replaces a name that would not fit into the file.
  return protocol::check_user(name).ok() ? name : "uid-" + std::to_string(number);
}

// The fingerprint that gpurund has written beside this file of tokens. Nothing: it has no key, or
// has not started since.
std::optional<Sha256Digest> fingerprint_beside(const std::string& file) {
  std::string line;
  std::getline(std::ifstream(file + protocol::kFingerprintSuffix), line);
  const auto found = transport::tls::parse_fingerprint(line);
  return found.ok() ? std::optional<Sha256Digest>(*found) : std::nullopt;
}

// The server that a token must name, by the options. Nothing: they do not say.
Result<std::optional<Sha256Digest>> server_of(const TokenOptions& options,
                                              const std::optional<Sha256Digest>& own) {
  if (options.fingerprint.empty()) return std::optional<Sha256Digest>();
  if (options.fingerprint == "own") {
    if (own) return own;
    return wrong(
        "--server-fingerprint own: no gpurund that reads these tokens has shown a key yet");
  }
  const Result<Sha256Digest> told = transport::tls::parse_fingerprint(options.fingerprint);
  if (!told.ok()) return wrong("--server-fingerprint: " + told.status().message());
  return std::optional<Sha256Digest>(*told);
}

// Prints the server's key that the token's user must expect.
void say_fingerprint(const std::optional<Sha256Digest>& named,
                     const std::optional<Sha256Digest>& own) {
  if (!own || named == own) return;
  const std::string text = transport::tls::to_string(*own);
  if (named) {
    std::fprintf(stderr,
                 "gpuctl: warning: this server's key is %s, not the one that the token names\n",
                 text.c_str());
    return;
  }
  std::fprintf(
      stderr,
      "gpuctl: this server's key is %s; give it to the user, for gpurun --server-fingerprint, "
      "or name it in the token: --server-fingerprint own\n",
      text.c_str());
}

// Makes a new file that only this user can read. Never changes an existing file.
Result<UniqueFd> open_output(const std::string& path) {
  if (path.empty()) return UniqueFd(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return Status::from_errno(errno, path);
  return file;
}

Result<TokenEntry> entry_of(const TokenOptions& options, std::int64_t now) {
  TokenEntry entry;
  entry.user = options.user;
  entry.note = options.note;
  entry.made = now;
  entry.by = who_asks();
  GPURUN_RETURN_IF_ERROR(protocol::check_user(options.user));
  GPURUN_RETURN_IF_ERROR(protocol::check_note(options.note));
  // A file of an older release may hold other characters. The table does not show them.
  if (!is_printable(options.note)) return wrong("a note is UTF-8 without control characters");
  if (!options.expires.empty()) {
    const Result<std::int64_t> lifetime = parse_lifetime(options.expires);
    if (!lifetime.ok()) return wrong("--expires: " + lifetime.status().message());
    entry.expires = now + *lifetime;
  }
  return entry;
}

Status revoke_in(std::vector<TokenEntry>* entries, const TokenOptions& options,
                 std::vector<TokenEntry>* revoked) {
  const std::int64_t now = seconds_now();
  const std::string who = who_asks();
  std::vector<TokenEntry*> found;
  for (const std::string& id : options.ids) {
    const auto place = std::find_if(entries->begin(), entries->end(),
                                    [&](const TokenEntry& entry) { return entry.name() == id; });
    if (place == entries->end()) {
      return Status(Code::kUnavailable, "there is no token " + id + "; nothing was revoked");
    }
    found.push_back(&*place);
  }
  for (TokenEntry& entry : *entries) {
    const bool has_leases = entry.state == TokenState::kValid ||
                            (entry.state == TokenState::kRetired && !options.keep_running);
    if (options.ids.empty() && entry.user == options.user && has_leases) found.push_back(&entry);
  }
  if (found.empty()) {
    return Status(Code::kUnavailable, "user " + options.user + " has no valid token");
  }
  for (TokenEntry* entry : found) {
    // A token that was revoked with its leases kept may still lose them, but not the reverse.
    if (entry->state == TokenState::kValid) entry->ended = now;
    entry->ended_by = who;
    if (entry->state != TokenState::kRevoked) {
      entry->state = options.keep_running ? TokenState::kRetired : TokenState::kRevoked;
    }
    revoked->push_back(*entry);
  }
  drop_old(entries, now);
  return {};
}

}  // namespace

Result<std::int64_t> parse_lifetime(const std::string& text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  const std::string unit(parsed.ptr, end);
  const std::int64_t factor = unit == "s"   ? 1
                              : unit == "m" ? 60
                              : unit == "h" ? 3600
                              : unit == "d" ? kDay
                              : unit == "w" ? 7 * kDay
                                            : 0;
  if (parsed.ec != std::errc() || factor == 0 || number < 1) {
    return wrong("'" + text + "' is no time to live; write one like 12h, 90d or 2w");
  }
  if (number > kLifetimeMax / factor) return wrong("'" + text + "' is more than ten years");
  return number * factor;
}

std::string token_table(const std::vector<TokenEntry>& entries, std::int64_t now) {
  std::string text = row("ID", "USER", "STATE", "MADE", "EXPIRES", "LAST USED", "NOTE");
  for (const TokenEntry& entry : entries) {
    text += row(entry.name(), entry.user, state_of(entry, now), time_text(entry.made, "?"),
                time_text(entry.expires, "never"), time_text(entry.used, "never"),
                printable(entry.note));
  }
  return text;
}

std::string token_json(const std::vector<TokenEntry>& entries, std::int64_t now) {
  std::string text;
  for (const TokenEntry& entry : entries) {
    const nlohmann::json all = {
        {"id", entry.name()},     {"user", entry.user},       {"state", state_of(entry, now)},
        {"made", entry.made},     {"expires", entry.expires}, {"used", entry.used},
        {"revoked", entry.ended}, {"by", entry.by},           {"ended_by", entry.ended_by},
        {"note", entry.note}};
    text += all.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  }
  return text;
}

int create_token(const TokenOptions& options) {
  const Result<std::string> file = file_of(options);
  if (!file.ok()) return failed(file.status());
  const std::int64_t now = seconds_now();
  Result<TokenEntry> entry = entry_of(options, now);
  if (!entry.ok()) return failed(entry.status());
  const std::optional<Sha256Digest> own = fingerprint_beside(*file);
  const Result<std::optional<Sha256Digest>> server = server_of(options, own);
  if (!server.ok()) return failed(server.status());
  // Before the token is made, because nobody could read it otherwise.
  const Result<UniqueFd> output = open_output(options.output);
  if (!output.ok()) return failed(output.status());
  const auto give_up = [&](const Status& status) {
    if (!options.output.empty()) unlink(options.output.c_str());
    return failed(status);
  };
  const Result<protocol::Token> token = protocol::make_token(*server);
  if (!token.ok()) return give_up(token.status());
  entry->id = token->id;
  entry->check = protocol::token_check(token->secret);
  const Status kept = protocol::update_token_file(*file, [&](std::vector<TokenEntry>* entries) {
    drop_old(entries, now);
    for (const TokenEntry& other : *entries) {
      if (other.id == entry->id) return Status(Code::kInternal, "two tokens got one id; try again");
    }
    entries->push_back(*entry);
    return Status();
  });
  if (!kept.ok()) return give_up(kept);
  const std::string line = protocol::format_token(*token) + "\n";
  if (const Status told = write_whole(output->get(), line, "writing the token"); !told.ok()) {
    return failed(Status(Code::kUnavailable,
                         told.message() + "; revoke " + entry->name() + " and make another"));
  }
  std::fprintf(
      stderr,
      "gpuctl: token %s of user %s is in force (%s)%s; it is not shown again. %s stores it "
      "with: gpurun login HOST\n",
      entry->name().c_str(), entry->user.c_str(), file->c_str(),
      entry->expires == 0 ? "" : (" until " + time_text(entry->expires, "")).c_str(),
      entry->user.c_str());
  say_fingerprint(*server, own);
  if (!protocol::token_file_is_in_use(*file)) {
    std::fprintf(
        stderr,
        "gpuctl: warning: no gpurund that runs on this machine uses %s, so the token opens "
        "nothing yet. Make it where gpurund runs, as its user; --tokens names its file\n",
        file->c_str());
  }
  return 0;
}

int list_tokens(const TokenOptions& options) {
  const Result<std::string> file = file_of(options);
  if (!file.ok()) return failed(file.status());
  const auto entries = protocol::read_token_file(*file);
  if (!entries.ok()) return failed(entries.status());
  const std::int64_t now = seconds_now();
  const std::string text = options.as_json ? token_json(*entries, now) : token_table(*entries, now);
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : kExitOwnFailure;
}

int revoke_tokens(const TokenOptions& options) {
  const Result<std::string> file = file_of(options);
  if (!file.ok()) return failed(file.status());
  if (options.ids.empty() == options.user.empty()) {
    return failed(wrong("token revoke: name tokens by their ids, or a user by --user"));
  }
  for (const std::string& id : options.ids) {
    if (const auto parsed = protocol::parse_token_id(id); !parsed.ok()) {
      return failed(wrong("'" + id + "': " + parsed.status().message()));
    }
  }
  std::vector<TokenEntry> revoked;
  const Status kept = protocol::update_token_file(
      *file, [&](auto* entries) { return revoke_in(entries, options, &revoked); });
  if (!kept.ok()) return failed(kept);
  for (const TokenEntry& entry : revoked) {
    const bool spared = entry.state == TokenState::kRetired;
    std::printf("token %s of user %s is revoked; %s\n", entry.name().c_str(), entry.user.c_str(),
                spared ? "what runs goes on" : "what runs ends");
  }
  return std::fflush(stdout) == 0 ? 0 : kExitOwnFailure;
}

}  // namespace gpurun::tools
