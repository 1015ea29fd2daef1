// Lexer: splits PTX text into tokens. It never reads outside its text, whatever the text contains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gpurun::emulated::ptx {

enum class TokenKind : std::uint8_t {
  kIdentifier,   // name, %name, $name
  kDirective,    // .name, .a::b. text without the dot
  kInteger,      // bits: the value
  kFloat32,      // 0fXXXXXXXX. bits: the pattern
  kFloat64,      // 0dXXXXXXXXXXXXXXXX or 1.5e3. bits: the pattern
  kString,       // text without the quotes
  kPunctuation,  // one character
  kEnd,          // end of text, or a malformed token (then text is not empty)
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  char punctuation = 0;
  std::uint32_t line = 0;  // Counted from the lexer's first line.
  std::uint64_t bits = 0;
  std::string_view text;  // Into the lexer's text.
};

class Lexer {
 public:
  // `text` must outlive the lexer and its tokens.
  explicit Lexer(std::string_view text, std::uint32_t first_line = 1);

  const Token& token() const { return token_; }
  void next();

  bool at(char punctuation) const {
    return token_.kind == TokenKind::kPunctuation && token_.punctuation == punctuation;
  }
  bool at_directive(std::string_view name) const {
    return token_.kind == TokenKind::kDirective && token_.text == name;
  }
  bool at_end() const { return token_.kind == TokenKind::kEnd; }

  // Moves to after the '}' that matches the current token, a '{'. False: no '}' matches.
  bool skip_braces();
  // Moves to after the next `end` behind the current token. What lies between need not be PTX.
  // False: `end` does not follow.
  bool skip_past(std::string_view end);
  // Moves to the first token after the current token's line.
  void skip_line();
  // Ends the input: every later token is kEnd. A parser calls it at its first error.
  void stop();

  // Offset of the current token in the text.
  std::size_t token_offset() const;
  // Offset just after the token before the current one.
  std::size_t previous_end() const { return previous_end_; }

 private:
  void skip_blanks();
  void lex_directive();
  void lex_identifier();
  void lex_number();
  bool lex_hex_float(int digits, TokenKind kind);
  void lex_decimal_float();
  void lex_string();
  void malformed();

  const char* begin_;
  const char* at_;
  const char* end_;
  std::uint32_t line_;
  std::size_t previous_end_ = 0;
  Token token_;
};

}  // namespace gpurun::emulated::ptx
