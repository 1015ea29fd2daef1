// config_text(): the bytes of a configuration file, bounded, and in ASCII.
#include "server/daemon/config/config_text.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/file_io.h"
#include "base/unique_fd.h"

namespace gpurun::server {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;
// toml++ recurses for each part of a dotted key ("a.b.c"), so that a long one exhausts the stack.
constexpr int kDotsMax = 64;

// A position in the text, and the TOML construct around it.
class Place {
 public:
  enum class Inside { kNothing, kComment, kBasic, kLiteral, kSeveralLines };

  Inside inside() const { return inside_; }
  int line() const { return line_; }
  int column() const { return column_; }

  // Moves past the character that begins `rest`. Returns its bytes: 2 for an escaped quote.
  std::size_t pass(std::string_view rest) {
    const char byte = rest[0];
    ++column_;
    if (byte == '\n') {
      // toml++ reports a one-line string that has no end.
      if (inside_ != Inside::kSeveralLines) inside_ = Inside::kNothing;
      ++line_;
      column_ = 0;
    } else if (inside_ == Inside::kNothing && byte == '#') {
      inside_ = Inside::kComment;
    } else if (inside_ == Inside::kNothing && (byte == '"' || byte == '\'')) {
      const bool several = rest.starts_with(R"(""")") || rest.starts_with("\'\'\'");
      inside_ = several ? Inside::kSeveralLines : byte == '"' ? Inside::kBasic : Inside::kLiteral;
    } else if (inside_ == Inside::kBasic && byte == '\\') {
      // An escaped character does not end a string. A line's end always does.
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

// The UTF-8 character that begins `rest`, and its size in bytes. 0 bytes: not a character.
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

// True when `rest` opens a table without a name. `rest` begins a line outside all strings. toml++
// assumes that a name follows "[" and "[[" (parse_key()), and has undefined behaviour
// otherwise.
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

// Rewrites the text in ASCII, with the same settings. toml++ checks whether a character beyond
// ASCII is white space, and reaches its own "unreachable" for U+00A1 to U+0499 and others
// (is_non_ascii_horizontal_whitespace()). It is unknown where it does so in a text that is not
// TOML. So no such character reaches it. In a one-line string the character becomes its escape, in
// a comment it is dropped, and elsewhere it is an error. `text` has no byte order mark.
Result<std::string> in_ascii(const std::string& path, std::string_view text) {
  std::string ascii;
  Place place;
  int dots = 0;  // In this line, outside of strings and comments.
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    if (place.column() == 0 && place.inside() == Place::Inside::kNothing &&
        opens_nameless_table(rest)) {
      return Status(Code::kInvalidArgument,
                    path + ":" + std::to_string(place.line()) + ": a table's name must follow '['");
    }
    if (place.column() == 0) dots = 0;
    if (rest[0] == '.' && place.inside() == Place::Inside::kNothing && ++dots > kDotsMax) {
      return Status(Code::kInvalidArgument, path + ":" + std::to_string(place.line()) +
                                                ": more than " + std::to_string(kDotsMax) +
                                                " dots in one line");
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
                        (bytes == 0 ? " is not UTF-8"
                                    : " has a character beyond ASCII, which is allowed in "
                                      "comments and in double quotes of one line only"));
    }
    char escape[16];
    std::snprintf(escape, sizeof escape, "\\U%08X", static_cast<unsigned>(code));
    ascii += basic ? escape : "?";
    i += bytes;
  }
  return ascii;
}

// On SIGHUP the daemon's loop reads it again, and must not wait for the writer of a FIFO.
Result<std::string> read_file(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat about = {};
  if (!file.valid() || fstat(file.get(), &about) != 0) return Status::from_errno(errno, path);
  if (!S_ISREG(about.st_mode)) {
    return Status(Code::kInvalidArgument, path + ": the configuration must be a regular file");
  }
  Result<std::string> text = read_text(file.get(), kFileBytesMax, path);
  if (!text.ok()) return text;
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text->starts_with(kByteOrderMark)) text->erase(0, kByteOrderMark.size());
  return text;
}

}  // namespace

Result<std::string> config_text(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.status();
  return in_ascii(path, *text);
}

}  // namespace gpurun::server
