// Every key is named here once; what is not named is an error with its line.
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include "server/daemon/config.h"

// toml++ 3.3 asserts of a text what only TOML keeps ("log = [}", parse_value()), and where assert()
// is off it tells the compiler to rely on it. Left out, it goes on to the error that it has for it.
#define TOML_ASSERT(expression) static_cast<void>(0)
#pragma push_macro("NDEBUG")
#undef NDEBUG
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/user_folders.h"

namespace gpurun::server {
namespace {

constexpr uid_t kUidMax = 4'294'967'293;  // The two above mean "no user" and "overflow".
constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;

Status at(const std::string& path, const toml::source_region& place, const std::string& what) {
  return Status(Code::kInvalidArgument,
                path + ":" + std::to_string(place.begin.line) + ": " + what);
}

// Where a character stands, as TOML has it.
class Place {
 public:
  enum class Inside { kNothing, kComment, kBasic, kLiteral, kSeveralLines };

  Inside inside() const { return inside_; }
  int line() const { return line_; }
  int column() const { return column_; }

  // Moves behind the character that begins `rest`; returns its bytes: 2 for an escaped quote.
  std::size_t pass(std::string_view rest) {
    const char byte = rest[0];
    ++column_;
    if (byte == '\n') {
      // A text of one line that goes on is toml++'s to complain of.
      if (inside_ != Inside::kSeveralLines) inside_ = Inside::kNothing;
      ++line_;
      column_ = 0;
    } else if (inside_ == Inside::kNothing && byte == '#') {
      inside_ = Inside::kComment;
    } else if (inside_ == Inside::kNothing && (byte == '"' || byte == '\'')) {
      const bool several = rest.starts_with(R"(""")") || rest.starts_with("\'\'\'");
      inside_ = several ? Inside::kSeveralLines : byte == '"' ? Inside::kBasic : Inside::kLiteral;
    } else if (inside_ == Inside::kBasic && byte == '\\') {
      // What is escaped ends nothing; a line ends all the same.
      if (rest.size() > 1 && (rest[1] == '"' || rest[1] == '\\')) return ++column_, 2;
    } else if ((inside_ == Inside::kBasic && byte == '"') ||
               (inside_ == Inside::kLiteral && byte == '\'')) {
      inside_ = Inside::kNothing;
    }
    return 1;
  }
  void pass_beyond_ascii() { ++column_; }

 private:
  Inside inside_ = Inside::kNothing;
  int line_ = 1, column_ = 0;
};

// The character of UTF-8 that begins `rest`, and its bytes; 0 bytes: there is none.
std::pair<std::uint32_t, std::size_t> character_at(std::string_view rest) {
  const auto first = static_cast<unsigned char>(rest[0]);
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc0 || first >= 0xf8 || rest.size() < bytes) return {0, 0};
  std::uint32_t code = first & (0xffu >> (bytes + 1));
  for (const char each : rest.substr(1, bytes - 1)) {
    const auto byte = static_cast<unsigned char>(each);
    if ((byte & 0xc0) != 0x80) return {0, 0};
    code = code << 6 | (byte & 0x3f);
  }
  constexpr std::uint32_t kLeast[] = {0x80, 0x800, 0x10000};  // Of 2, 3 and 4 bytes.
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[bytes - 2] || code > 0x10ffff || surrogate) return {0, 0};
  return {code, bytes};
}

// Whether `rest`, which begins a line outside all texts, opens a table without a name. toml++ 3.3
// takes for granted that one follows "[" and "[[" (parse_key()), and what it does else is
// undefined.
bool opens_nameless_table(std::string_view rest) {
  const auto pass_blanks = [&rest] {
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  };
  pass_blanks();
  if (!rest.starts_with('[')) return false;
  for (int brackets = 0; brackets < 2 && rest.starts_with('['); ++brackets) {
    rest.remove_prefix(1);
    pass_blanks();
  }
  constexpr std::string_view kNames =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-\"'";
  return rest.empty() || kNames.find(rest[0]) == std::string_view::npos;
}

// The same settings in ASCII alone. toml++ 3.3 asks of a character beyond ASCII whether it is white
// space, and runs into its own "unreachable" for U+00A1 to U+0499 and others
// (is_non_ascii_horizontal_whitespace()); where it asks in a text that is no TOML, nobody here
// knows. So none reaches it: in a text of one line such a character becomes its escape, in a
// comment it says nothing, and elsewhere it is an error. `text` has no byte order mark.
Result<std::string> in_ascii(const std::string& path, std::string_view text) {
  std::string ascii;
  Place place;
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    if (place.column() == 0 && place.inside() == Place::Inside::kNothing &&
        opens_nameless_table(rest)) {
      return Status(Code::kInvalidArgument,
                    path + ":" + std::to_string(place.line()) + ": a table's name must follow '['");
    }
    if (static_cast<unsigned char>(rest[0]) < 0x80) {
      const std::size_t bytes = place.pass(rest);
      ascii += rest.substr(0, bytes);
      i += bytes;
      continue;
    }
    place.pass_beyond_ascii();
    const auto [code, bytes] = character_at(rest);
    const bool basic = place.inside() == Place::Inside::kBasic;
    if (bytes == 0 || !(basic || place.inside() == Place::Inside::kComment)) {
      return Status(Code::kInvalidArgument,
                    path + ":" + std::to_string(place.line()) + ": column " +
                        std::to_string(place.column()) +
                        (bytes == 0 ? " is no UTF-8"
                                    : " holds a character beyond ASCII, which may stand in "
                                      "comments and in double quotes of one line only"));
    }
    char escape[16];
    std::snprintf(escape, sizeof escape, "\\U%08X", static_cast<unsigned>(code));
    ascii += basic ? escape : "?";
    i += bytes;
  }
  return ascii;
}

Result<std::string> read_text(const std::string& path) {
  if (access(path.c_str(), R_OK) != 0) return Status::from_errno(errno, path);
  std::ifstream file(path, std::ios::binary);
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.gcount() == 0 && !file.eof())) {
    return Status(Code::kUnavailable, path + ": cannot be read");
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kFileBytesMax) {
    return Status(Code::kInvalidArgument, path + ": has more than 1 MiB");
  }
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

Status take(const toml::node& node, std::string* into) {
  const auto* value = node.as_string();
  if (value == nullptr) return Status(Code::kInvalidArgument, "must be a text in quotes");
  *into = value->get();
  return {};
}

Status take(const toml::node& node, bool* into) {
  const auto* value = node.as_boolean();
  if (value == nullptr) return Status(Code::kInvalidArgument, "must be true or false");
  *into = value->get();
  return {};
}

Status take(const toml::node& node, std::uint64_t* into) {
  const auto* value = node.as_integer();
  if (value == nullptr || value->get() < 0) {
    return Status(Code::kInvalidArgument, "must be a number from 0 up");
  }
  *into = static_cast<std::uint64_t>(value->get());
  return {};
}

// A table whose problems are told of the key within it.
const toml::table* table_of(const toml::node& node, Status* status) {
  const auto* table = node.as_table();
  if (table == nullptr) *status = Status(Code::kInvalidArgument, "must be a table");
  return table;
}

Status take_limits(const toml::node& node, UserLimits* limits) {
  Status status;
  const toml::table* table = table_of(node, &status);
  if (table == nullptr) return status;
  for (const auto& [key, value] : *table) {
    std::optional<std::uint64_t>* limit = key.str() == "max-leases"     ? &limits->leases
                                          : key.str() == "max-gpus"     ? &limits->gpus
                                          : key.str() == "max-sessions" ? &limits->sessions
                                                                        : nullptr;
    const std::string named = "has '" + std::string(key.str()) + "', which ";
    if (limit == nullptr) return Status(Code::kInvalidArgument, named + "is unknown");
    status = take(value, &limit->emplace());
    if (!status.ok()) return Status(Code::kInvalidArgument, named + status.message());
  }
  return {};
}

Status take_users(const toml::node& node, UserLimitsTable* limits) {
  Status status;
  const toml::table* table = table_of(node, &status);
  if (table == nullptr) return status;
  for (const auto& [key, value] : *table) {
    const std::string user(key.str());
    status = protocol::check_user(user);
    if (status.ok()) status = take_limits(value, &limits->by_name[user]);
    if (!status.ok()) return Status(status.code(), "." + user + " " + status.message());
  }
  return {};
}

Result<UidRange> make_range(std::int64_t first, std::int64_t last) {
  if (first < 1 || last < first || last > std::int64_t{kUidMax}) {
    return Status(Code::kInvalidArgument, "worker users go from 1 up: first, last");
  }
  UidRange range;
  range.first = static_cast<uid_t>(first);
  range.last = static_cast<uid_t>(last);
  return range;
}

Status take_uids(const toml::node& node, Config* config) {
  config->worker_uids_told = true;
  if (const auto* word = node.as_string(); word != nullptr && word->get() == "none") {
    config->worker_uids = {0, 0};
    return {};
  }
  const auto* pair = node.as_array();
  const auto* first = pair != nullptr && pair->size() == 2 ? pair->get(0)->as_integer() : nullptr;
  const auto* last = first != nullptr ? pair->get(1)->as_integer() : nullptr;
  if (last == nullptr) {
    return Status(Code::kInvalidArgument, "must be [first, last] or \"none\"");
  }
  const Result<UidRange> range = make_range(first->get(), last->get());
  if (!range.ok()) return range.status();
  config->worker_uids = *range;
  return {};
}

Status take_key(std::string_view key, const toml::node& node, Config* config) {
  if (key == "listen") return take(node, &config->listen);
  if (key == "driver") return take(node, &config->driver);
  if (key == "worker") return take(node, &config->worker);
  if (key == "secret-file") return take(node, &config->secret_file);
  if (key == "insecure-plaintext") return take(node, &config->insecure_plaintext);
  if (key == "tokens") {
    config->tokens_told = true;
    return take(node, &config->tokens);
  }
  if (key == "audit") return take(node, &config->audit);
  if (key == "every-user") return take_limits(node, &config->user_limits.every);
  if (key == "user") return take_users(node, &config->user_limits);
  if (key == "tls") return take(node, &config->tls);
  if (key == "tls-certificate") return take(node, &config->tls_certificate);
  if (key == "tls-key") return take(node, &config->tls_key);
  if (key == "worker-uids") return take_uids(node, config);
  if (key == "confinement") return take(node, &config->confinement);
  if (key == "worker-memory") return take(node, &config->worker_memory);
  if (key == "spare-workers") {
    config->spare_workers_told = true;
    return take(node, &config->spare_workers);
  }
  if (key == "spare-level") return take(node, &config->spare_level);
  if (key == "cache") {
    config->cache_told = true;
    return take(node, &config->cache);
  }
  if (key == "cache-bytes") return take(node, &config->cache_bytes);
  if (key == "log") return take(node, &config->log);
  return Status(Code::kInvalidArgument, "is unknown");
}

}  // namespace

Status read_config_file(const std::string& path, Config* config) {
  const Result<std::string> text = read_text(path);
  if (!text.ok()) return text.status();
  const Result<std::string> ascii = in_ascii(path, *text);
  if (!ascii.ok()) return ascii.status();
  const toml::parse_result parsed = toml::parse(*ascii, path);
  if (!parsed) {
    return at(path, parsed.error().source(), std::string(parsed.error().description()));
  }
  for (const auto& [key, node] : parsed.table()) {
    const Status status = take_key(key.str(), node, config);
    if (!status.ok()) {
      return at(path, key.source(), "'" + std::string(key.str()) + "' " + status.message());
    }
  }
  return {};
}

Result<UidRange> parse_uid_range(const std::string& text) {
  if (text == "none") return UidRange{0, 0};
  std::int64_t ends[2] = {0, 0};
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, ends[0]);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == '-') {
    const auto last = std::from_chars(first.ptr + 1, end, ends[1]);
    if (last.ec == std::errc() && last.ptr == end) return make_range(ends[0], ends[1]);
  }
  return Status(Code::kInvalidArgument, "'" + text + "' is neither FIRST-LAST nor none");
}

std::string default_cache() {
  const std::string given = service_folder("CACHE_DIRECTORY");
  return given.empty() ? xdg_folder("XDG_CACHE_HOME", ".cache") : given;
}

}  // namespace gpurun::server
