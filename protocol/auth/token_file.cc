// Token file: its text form. token_file_disk.cc reads and replaces it on the disk.
#include "protocol/auth/token_file.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "base/hex.h"

namespace gpurun::protocol {
namespace {

constexpr std::string_view kMadeBy = "by=", kEndedBy = "ended-by=";
constexpr std::string_view kStates[] = {"valid", "revoked", "retired"};

Status wrong(const char* what) { return Status(Code::kInvalidArgument, what); }

bool is_letter_or_digit(char character) {
  return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
         (character >= '0' && character <= '9');
}

std::string_view take_word(std::string_view* rest) {
  const std::size_t end = std::min(rest->find(' '), rest->size());
  const std::string_view word = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return word;
}

bool take_time(std::string_view* rest, std::int64_t* into) {
  const std::string_view word = take_word(rest);
  const auto parsed = std::from_chars(word.data(), word.data() + word.size(), *into);
  return parsed.ec == std::errc() && parsed.ptr == word.data() + word.size() && *into >= 0;
}

// Takes "NAME=USER" off the front, if it is there.
Status take_who(std::string_view* rest, std::string_view name, std::string* into) {
  if (!rest->starts_with(name)) return {};
  *into = take_word(rest).substr(name.size());
  return check_user(*into);
}

Result<TokenEntry> parse_entry(std::string_view line) {
  TokenEntry entry;
  if (!parse_hex(take_word(&line), mutable_bytes(entry.id.data(), entry.id.size()))) {
    return wrong("begins with no token's id");
  }
  entry.user = take_word(&line);
  GPURUN_RETURN_IF_ERROR(check_user(entry.user));
  if (!parse_hex(take_word(&line), mutable_bytes(entry.check.data(), entry.check.size()))) {
    return wrong("has no check of 64 digits");
  }
  const std::string_view state = take_word(&line);
  const auto* const found = std::find(std::begin(kStates), std::end(kStates), state);
  if (found == std::end(kStates)) return wrong("has no state");
  entry.state = static_cast<TokenState>(found - kStates);
  if (!take_time(&line, &entry.made) || !take_time(&line, &entry.expires) ||
      !take_time(&line, &entry.used) || !take_time(&line, &entry.ended)) {
    return wrong("lacks one of its four times");
  }
  GPURUN_RETURN_IF_ERROR(take_who(&line, kMadeBy, &entry.by));
  GPURUN_RETURN_IF_ERROR(take_who(&line, kEndedBy, &entry.ended_by));
  entry.note = line;
  GPURUN_RETURN_IF_ERROR(check_note(entry.note));
  return entry;
}

}  // namespace

Status check_user(std::string_view user) {
  const bool fits = !user.empty() && user.size() <= kUserBytesMax && is_letter_or_digit(user[0]) &&
                    std::all_of(user.begin(), user.end(), [](char character) {
                      return is_letter_or_digit(character) ||
                             std::string_view("._@-").find(character) != std::string_view::npos;
                    });
  if (!fits) {
    return wrong(
        "a user's name has 1 to 64 letters, digits, dots, @, _ and -, a letter or digit first");
  }
  if (user == kOperator) return wrong("'operator' is the holder of the server's own secret");
  return {};
}

Status check_note(std::string_view note) {
  if (note.size() > kTokenNoteBytesMax) return wrong("a note has at most 128 bytes");
  const bool plain = std::all_of(note.begin(), note.end(), [](char character) {
    const auto byte = static_cast<unsigned char>(character);
    return byte >= 0x20 && byte != 0x7f;
  });
  return plain ? Status() : wrong("a note is one line without control characters");
}

Result<std::vector<TokenEntry>> parse_token_file(std::string_view text) {
  std::vector<TokenEntry> entries;
  std::set<TokenId> ids;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line[0] == '#') continue;
    const auto at = [number](const std::string& what) {
      return Status(Code::kInvalidArgument, "line " + std::to_string(number) + ": " + what);
    };
    Result<TokenEntry> entry = parse_entry(line);
    if (!entry.ok()) return at(entry.status().message());
    if (!ids.insert(entry->id).second) return at("names a token a second time");
    if (entries.size() == kTokensMax) return at("is one token more than the 4096 there may be");
    entries.push_back(*std::move(entry));
  }
  return entries;
}

std::string format_token_file(const std::vector<TokenEntry>& entries) {
  std::string text =
      "# Users of this machine's GPUs; written by 'gpuctl token'. No token can be had\n"
      "# from this file: ID USER CHECK STATE MADE EXPIRES USED ENDED by= ended-by= NOTE\n";
  for (const TokenEntry& entry : entries) {
    text += entry.name() + " " + entry.user + " " + hex_of(bytes_of(entry.check)) + " ";
    text += kStates[static_cast<std::size_t>(entry.state)];
    for (const std::int64_t time : {entry.made, entry.expires, entry.used, entry.ended}) {
      text += " " + std::to_string(time);
    }
    for (const auto& [name, who] : {std::pair(kMadeBy, &entry.by), {kEndedBy, &entry.ended_by}}) {
      if (!who->empty()) text.append(" ").append(name).append(*who);
    }
    text += " " + entry.note + "\n";
  }
  return text;
}

}  // namespace gpurun::protocol
