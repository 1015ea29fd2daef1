// User tokens: the masks are HMACs with labels of their own, as all keys of protocol/auth/proof.cc.
#include "protocol/auth/token.h"

#include <algorithm>

#include "base/hex.h"
#include "base/random.h"

namespace gpurun::protocol {
namespace {

constexpr std::string_view kPrefix = "gpurun1_";
constexpr std::size_t kSumDigits = 8;

std::string sum_of(std::string_view text) {
  const Sha256Digest digest = sha256(byte_view(text.data(), text.size()));
  return hex_of(bytes_of(digest)).substr(0, kSumDigits);
}

// Returns what stands before the next underscore, and removes both.
std::string_view take_part(std::string_view* rest) {
  const std::size_t end = std::min(rest->find('_'), rest->size());
  const std::string_view part = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return part;
}

Key mask(const Key& check, const Nonce& server, const Nonce& client, const TokenId& id) {
  HmacSha256 hash(bytes_of(check));
  hash.update(byte_view("gpurun token mask 1", 20));  // With its NUL.
  hash.update(bytes_of(server));
  hash.update(bytes_of(client));
  hash.update(bytes_of(id));
  return hash.finish();
}

Key either_or(Key left, const Key& right) {
  for (std::size_t i = 0; i < left.size(); ++i) left[i] ^= right[i];
  return left;
}

}  // namespace

Result<Token> make_token(const std::optional<Sha256Digest>& server) {
  const auto id = random_array<TokenId>();
  if (!id.ok()) return id.status();
  const auto secret = random_array<Key>();
  if (!secret.ok()) return secret.status();
  return Token{*id, *secret, server};
}

std::string format_token(const Token& token) {
  std::string text(kPrefix);
  text += hex_of(bytes_of(token.id)) + "_" + hex_of(bytes_of(token.secret));
  if (token.server) text += "_" + hex_of(bytes_of(*token.server));
  return text + "_" + sum_of(text);
}

Result<Token> parse_token(std::string_view text) {
  constexpr const char* kBlank = " \t\r\n";
  const std::size_t first = std::min(text.find_first_not_of(kBlank), text.size());
  text.remove_prefix(first);
  text = text.substr(0, text.find_last_not_of(kBlank) + 1);
  if (!text.starts_with(kPrefix)) {
    return Status(Code::kInvalidArgument, "no user token: those begin with gpurun1_");
  }
  const Status damaged(Code::kInvalidArgument,
                       "the token is cut or damaged: its checksum does not fit; copy it again");
  const std::size_t sum = text.rfind('_');
  if (text.size() > kTokenTextBytesMax || sum_of(text.substr(0, sum)) != text.substr(sum + 1)) {
    return damaged;
  }
  std::string_view rest = text.substr(kPrefix.size(), sum - std::min(sum, kPrefix.size()));
  Token token;
  const std::string_view id = take_part(&rest);
  const std::string_view secret = take_part(&rest);
  bool whole = parse_hex(id, mutable_bytes(token.id.data(), token.id.size())) &&
               parse_hex(secret, mutable_bytes(token.secret.data(), token.secret.size()));
  if (!rest.empty()) {
    Sha256Digest server;
    whole = whole && parse_hex(rest, mutable_bytes(server.data(), server.size()));
    token.server = server;
  }
  // Each token has exactly one text form, so the comparison finds every damage.
  if (!whole || format_token(token) != text) return damaged;
  return token;
}

Result<TokenId> parse_token_id(std::string_view text) {
  TokenId id;
  if (parse_hex(text, mutable_bytes(id.data(), id.size()))) return id;
  return Status(Code::kInvalidArgument, "a token's id has 12 hexadecimal digits");
}

Key token_check(const Key& secret) {
  HmacSha256 hash(bytes_of(secret));
  hash.update(byte_view("gpurun token check 1", 21));  // With its NUL.
  return hash.finish();
}

Key mask_token(const Key& secret, const Nonce& server, const Nonce& client, const TokenId& id) {
  return either_or(secret, mask(token_check(secret), server, client, id));
}

std::optional<Key> unmask_token(const Key& masked, const Key& check, const Nonce& server,
                                const Nonce& client, const TokenId& id) {
  const Key secret = either_or(masked, mask(check, server, client, id));
  if (!equal_in_constant_time(bytes_of(token_check(secret)), bytes_of(check))) return std::nullopt;
  return secret;
}

}  // namespace gpurun::protocol
