// User tokens: their content, their text form, and their proof on a control link.
//
//   gpurun1_ID_SECRET_SUM   or   gpurun1_ID_SECRET_SERVER_SUM
//
// ID      12 hexadecimal digits that name the token. Not secret.
// SECRET  64 random digits.
// SERVER  the fingerprint (SHA-256) of the public key of the token's server. With it a client need
//         not trust the first key that it meets on an encrypted link.
// SUM     the first 8 digits of the SHA-256 of all before its underscore. It reveals a line that
//         was cut or mistyped.
//
// A server keeps only the check of a secret, from which the secret cannot be computed. So a thief
// of the server's file cannot act as a client with it. On the link the client shows the secret
// under a mask. Only a peer that knows the check can remove the mask, and it is used once, for this
// pair of challenges. The unmasked secret must have the server's check. Then both ends derive the
// link's key from the secret (docs/adr/0015).
//
// Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "protocol/auth/proof.h"

namespace gpurun::protocol {

using TokenId = std::array<std::uint8_t, 6>;

struct Token {
  TokenId id{};
  Key secret{};
  std::optional<Sha256Digest> server;  // The fingerprint of the server's key.
};

// At most this many characters, whatever a token holds.
inline constexpr std::size_t kTokenTextBytesMax = 8 + 12 + 1 + 64 + 1 + 64 + 1 + 8;

// A new token, from the kernel's random numbers.
Result<Token> make_token(const std::optional<Sha256Digest>& server);
std::string format_token(const Token& token);
// Ignores blanks and line ends around the token. kInvalidArgument: not a token, or a damaged one.
// The message never holds a part of the text.
Result<Token> parse_token(std::string_view text);

Result<TokenId> parse_token_id(std::string_view text);

// The value that a server keeps of a token.
Key token_check(const Key& secret);
// Masks the secret for this link, and unmasks it. Nothing: the unmasked value does not have
// `check`.
Key mask_token(const Key& secret, const Nonce& server, const Nonce& client, const TokenId& id);
std::optional<Key> unmask_token(const Key& masked, const Key& check, const Nonce& server,
                                const Nonce& client, const TokenId& id);

}  // namespace gpurun::protocol
