// User tokens: what one is, how it is written on a line, and how it is proved on a control link.
//
//   gpurun1_ID_SECRET_SUM   or   gpurun1_ID_SECRET_SERVER_SUM
//
// ID: 12 hexadecimal digits that name the token and are no secret. SECRET: 64 digits, random.
// SERVER: the fingerprint (SHA-256) of the public key of the server that it is for, so that a
// client which has the token need not trust the first key that it meets, where the link is
// encrypted. SUM: the first 8 digits of the SHA-256 of all before its underscore, so that a line
// that was cut or mistyped is noticed.
//
// A server keeps no secret but its check, from which the secret cannot be had: who steals the
// server's file can be nobody's client with it. On the link the client shows the secret under a
// mask that only who knows the check can take off, once for this pair of challenges; what the
// server finds under it must give its check. Both derive the link's key from the secret then.
// (docs/adr/0015)
//
// Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "protocol/proof.h"

namespace gpurun::protocol {

using TokenId = std::array<std::uint8_t, 6>;

struct Token {
  TokenId id{};
  Key secret{};
  std::optional<Sha256Digest> server;  // Its key's fingerprint.
};

// At most this many characters, whatever a token holds.
inline constexpr std::size_t kTokenTextBytesMax = 8 + 12 + 1 + 64 + 1 + 64 + 1 + 8;

// A new one, of the kernel's random numbers.
Result<Token> make_token(const std::optional<Sha256Digest>& server);
std::string format_token(const Token& token);
// Blanks and line ends around it do not count. kInvalidArgument, with a sentence that never holds a
// part of the text: it is no token, or it is damaged.
Result<Token> parse_token(std::string_view text);

// Of lower-case hexadecimal digits, exactly as many as fill the array.
std::string hex_of(ByteView bytes);
bool parse_hex(std::string_view text, MutableBytes into);
Result<TokenId> parse_token_id(std::string_view text);

// What a server keeps of a token.
Key token_check(const Key& secret);
// The secret under the mask of this link, and back. Empty: what is under it does not give `check`.
Key mask_token(const Key& secret, const Nonce& server, const Nonce& client, const TokenId& id);
std::optional<Key> unmask_token(const Key& masked, const Key& check, const Nonce& server,
                                const Nonce& client, const TokenId& id);

}  // namespace gpurun::protocol
