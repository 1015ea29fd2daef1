// Secret text: a path has short components, or a folder that exists. A secret has neither, except
// by accident.
#include "protocol/auth/secret_text.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "base/file_io.h"

namespace gpurun::protocol {
namespace {

constexpr std::string_view kTokenPrefix = "gpurun1_";
// Fewer characters behind the prefix are not part of a secret: an id has 12.
constexpr std::size_t kTokenBytesMin = 12;
// The bounds of a secret that a server accepts. A longer file is a mistake.
constexpr std::size_t kSecretBytesMin = 16;
constexpr std::size_t kSecretBytesMax = 4096;
constexpr std::size_t kLineEndBytesMax = 2;

bool is_token_character(char character) {
  return character == '_' || std::isalnum(static_cast<unsigned char>(character)) != 0;
}

bool same_letters(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  });
}

// The position of the first token in `text`, in any case. npos: none.
std::size_t find_token(std::string_view text, std::size_t* bytes) {
  for (std::size_t at = 0; at + kTokenPrefix.size() + kTokenBytesMin <= text.size(); ++at) {
    if (!same_letters(text.substr(at, kTokenPrefix.size()), kTokenPrefix)) continue;
    std::size_t end = at + kTokenPrefix.size();
    while (end < text.size() && is_token_character(text[end])) ++end;
    if (end - at < kTokenPrefix.size() + kTokenBytesMin) continue;
    *bytes = end - at;
    return at;
  }
  return std::string_view::npos;
}

bool has_long_component(std::string_view name) {
  while (!name.empty()) {
    const std::size_t end = std::min(name.find('/'), name.size());
    if (end >= kSecretBytesMin) return true;
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return false;
}

bool begins_as_path(std::string_view name) {
  for (const std::string_view beginning : {"/", "./", "../", "~/"}) {
    if (name.starts_with(beginning)) return true;
  }
  return false;
}

// True for a path in a folder other than the root.
bool lies_in_a_folder(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  struct stat about = {};
  return slash != std::string_view::npos && slash != 0 &&
         stat(std::string(name.substr(0, slash)).c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

}  // namespace

Result<Bytes> read_secret_bytes(int fd, const std::string& name) {
  Result<Bytes> secret = read_bytes(fd, kSecretBytesMax + kLineEndBytesMax, name, Code::kTooLarge);
  const bool too_large = secret.status().code() == Code::kTooLarge;
  if (!secret.ok() && !too_large) return secret;
  while (!too_large && !secret->empty() &&
         (secret->back() == std::byte{'\n'} || secret->back() == std::byte{'\r'})) {
    secret->pop_back();
  }
  if (too_large || secret->size() < kSecretBytesMin || secret->size() > kSecretBytesMax) {
    return Status(Code::kInvalidArgument, name + ": a secret has " +
                                              std::to_string(kSecretBytesMin) + " to " +
                                              std::to_string(kSecretBytesMax) + " bytes");
  }
  return secret;
}

bool may_be_secret(std::string_view name) {
  std::size_t bytes = 0;
  if (find_token(name, &bytes) != std::string_view::npos) return true;
  if (name.size() < kSecretBytesMin || lies_in_a_folder(name)) return false;
  return !begins_as_path(name) || has_long_component(name);
}

bool holds_token_prefix(std::string_view text) {
  for (std::size_t at = 0; at + kTokenPrefix.size() <= text.size(); ++at) {
    if (same_letters(text.substr(at, kTokenPrefix.size()), kTokenPrefix)) return true;
  }
  return false;
}

std::string hide_tokens(std::string_view text) {
  std::string shown;
  std::size_t bytes = 0;
  std::size_t at = find_token(text, &bytes);
  while (at != std::string_view::npos) {
    shown.append(text.substr(0, at)).append(kTokenPrefix).append("(hidden)");
    text.remove_prefix(at + bytes);
    at = find_token(text, &bytes);
  }
  return shown.append(text);
}

}  // namespace gpurun::protocol
