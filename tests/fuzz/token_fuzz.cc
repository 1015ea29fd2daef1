// Tokens: a token's line as a user may paste it, and a file of tokens after a mistake, a full disk
// or another release. The reader refuses it with a message, or writing it gives the same text.
#include "protocol/auth/token.h"

#include <string>

#include "base/hex.h"
#include "protocol/auth/token_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace gpurun;
using namespace gpurun::protocol;

void line(std::string_view text) {
  const Result<Token> token = parse_token(text);
  if (!token.ok()) {
    // No part of a possible secret.
    GPURUN_FUZZ_CHECK(token.status().message().find("gpurun1_0") == std::string::npos);
    return;
  }
  const std::string again = format_token(*token);
  GPURUN_FUZZ_CHECK(again.size() <= kTokenTextBytesMax);
  GPURUN_FUZZ_CHECK(text.find(again) != std::string_view::npos);
}

void file(std::string_view text) {
  const auto entries = parse_token_file(text);
  if (!entries.ok()) {
    GPURUN_FUZZ_CHECK(entries.status().message().starts_with("line "));
    return;
  }
  GPURUN_FUZZ_CHECK(entries->size() <= kTokensMax);
  for (const TokenEntry& entry : *entries) GPURUN_FUZZ_CHECK(check_user(entry.user).ok());
  const std::string again = format_token_file(*entries);
  const auto heard = parse_token_file(again);
  GPURUN_FUZZ_CHECK(heard.ok() && heard->size() == entries->size());
  GPURUN_FUZZ_CHECK(format_token_file(*heard) == again);
}

// A line with the right sum around the input, so that the checks after the sum are reached.
void summed_line(std::string_view text) {
  const std::string head = "gpurun1_" + std::string(text);
  const Sha256Digest digest = sha256(byte_view(head.data(), head.size()));
  line(head + "_" + hex_of(bytes_of(digest)).substr(0, 8));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  line(text);
  summed_line(text);
  file(text);
  return 0;
}
