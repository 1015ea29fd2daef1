// Tokens of PTX (PTX ISA, section 4).
#include "emulated/ptx/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace gpurun::emulated::ptx {
namespace {

enum : std::uint8_t { kBlank = 1, kNameStart = 2, kNamePart = 4, kDigit = 8, kHexDigit = 16 };

constexpr std::array<std::uint8_t, 256> make_classes() {
  std::array<std::uint8_t, 256> classes{};
  for (char c : {' ', '\t', '\r', '\n', '\0', '\v', '\f'}) {
    classes[static_cast<std::uint8_t>(c)] |= kBlank;
  }
  for (int c = 'a'; c <= 'z'; ++c) classes[c] |= kNameStart | kNamePart;
  for (int c = 'A'; c <= 'Z'; ++c) classes[c] |= kNameStart | kNamePart;
  for (int c = '0'; c <= '9'; ++c) classes[c] |= kNamePart | kDigit | kHexDigit;
  for (int c = 'a'; c <= 'f'; ++c) classes[c] |= kHexDigit;
  for (int c = 'A'; c <= 'F'; ++c) classes[c] |= kHexDigit;
  classes['_'] |= kNameStart | kNamePart;
  classes['$'] |= kNameStart | kNamePart;
  classes['%'] |= kNameStart;
  return classes;
}

constexpr std::array<std::uint8_t, 256> kClasses = make_classes();

bool is(char c, std::uint8_t wanted) { return kClasses[static_cast<std::uint8_t>(c)] & wanted; }

}  // namespace

Lexer::Lexer(std::string_view text, std::uint32_t first_line)
    : begin_(text.data()), at_(text.data()), end_(text.data() + text.size()), line_(first_line) {
  next();
}

void Lexer::skip_blanks() {
  for (;;) {
    while (at_ < end_ && is(*at_, kBlank)) {
      if (*at_ == '\n') ++line_;
      ++at_;
    }
    if (end_ - at_ < 2 || at_[0] != '/') return;
    if (at_[1] == '/') {
      while (at_ < end_ && *at_ != '\n') ++at_;
    } else if (at_[1] == '*') {
      at_ += 2;
      while (at_ < end_ && !(*at_ == '*' && end_ - at_ > 1 && at_[1] == '/')) {
        if (*at_ == '\n') ++line_;
        ++at_;
      }
      at_ = end_ - at_ >= 2 ? at_ + 2 : end_;
    } else {
      return;
    }
  }
}

void Lexer::next() {
  previous_end_ = static_cast<std::size_t>(at_ - begin_);
  skip_blanks();
  token_.line = line_;
  token_.bits = 0;
  token_.punctuation = 0;
  if (at_ >= end_) {
    token_.kind = TokenKind::kEnd;
    token_.text = {end_, 0};
    return;
  }
  const char c = *at_;
  if (c == '.' && end_ - at_ > 1 && is(at_[1], kNamePart)) return lex_directive();
  if (is(c, kNameStart)) return lex_identifier();
  if (is(c, kDigit)) return lex_number();
  if (c == '"') return lex_string();
  token_.kind = TokenKind::kPunctuation;
  token_.punctuation = c;
  token_.text = {at_, 1};
  ++at_;
}

void Lexer::lex_directive() {
  const char* start = ++at_;
  while (at_ < end_) {
    if (is(*at_, kNamePart)) {
      ++at_;
    } else if (end_ - at_ > 2 && at_[0] == ':' && at_[1] == ':' && is(at_[2], kNamePart)) {
      at_ += 2;
    } else {
      break;
    }
  }
  token_.kind = TokenKind::kDirective;
  token_.text = {start, static_cast<std::size_t>(at_ - start)};
}

void Lexer::lex_identifier() {
  const char* start = at_++;
  while (at_ < end_ && is(*at_, kNamePart)) ++at_;
  token_.kind = TokenKind::kIdentifier;
  token_.text = {start, static_cast<std::size_t>(at_ - start)};
}

bool Lexer::lex_hex_float(int digits, TokenKind kind) {
  if (end_ - at_ < 2 + digits) return false;
  for (int i = 0; i < digits; ++i) {
    if (!is(at_[2 + i], kHexDigit)) return false;
  }
  std::from_chars(at_ + 2, at_ + 2 + digits, token_.bits, 16);
  token_.kind = kind;
  token_.text = {at_, static_cast<std::size_t>(2 + digits)};
  at_ += 2 + digits;
  return true;
}

void Lexer::lex_decimal_float() {
  double value = 0;
  const auto result = std::from_chars(at_, end_, value);
  if (result.ec != std::errc()) return malformed();
  std::memcpy(&token_.bits, &value, sizeof value);
  token_.kind = TokenKind::kFloat64;
  token_.text = {at_, static_cast<std::size_t>(result.ptr - at_)};
  at_ = result.ptr;
}

void Lexer::lex_number() {
  const char second = end_ - at_ > 1 ? at_[1] : '\0';
  if (*at_ == '0') {
    if (second == 'f' || second == 'F') {
      if (!lex_hex_float(8, TokenKind::kFloat32)) malformed();
      return;
    }
    if (second == 'd' || second == 'D') {
      if (!lex_hex_float(16, TokenKind::kFloat64)) malformed();
      return;
    }
  }
  int base = 10;
  const char* digits = at_;
  if (*at_ == '0' && (second == 'x' || second == 'X')) {
    base = 16;
    digits = at_ + 2;
  } else if (*at_ == '0' && (second == 'b' || second == 'B')) {
    base = 2;
    digits = at_ + 2;
  } else {
    const char* look = at_;
    while (look < end_ && is(*look, kDigit)) ++look;
    const bool fraction = end_ - look > 1 && *look == '.' && is(look[1], kDigit);
    const bool exponent = look < end_ && (*look == 'e' || *look == 'E');
    if (fraction || exponent) return lex_decimal_float();
    if (*at_ == '0' && is(second, kDigit)) {
      base = 8;
      digits = at_ + 1;
    }
  }
  const auto result = std::from_chars(digits, end_, token_.bits, base);
  if (result.ec != std::errc()) return malformed();
  token_.kind = TokenKind::kInteger;
  token_.text = {at_, static_cast<std::size_t>(result.ptr - at_)};
  at_ = result.ptr;
  if (at_ < end_ && (*at_ == 'U' || *at_ == 'u')) ++at_;
}

void Lexer::lex_string() {
  const char* start = ++at_;
  while (at_ < end_ && *at_ != '"') {
    if (*at_ == '\n') ++line_;
    ++at_;
  }
  if (at_ >= end_) {
    at_ = start - 1;
    return malformed();
  }
  token_.kind = TokenKind::kString;
  token_.text = {start, static_cast<std::size_t>(at_ - start)};
  ++at_;
}

void Lexer::malformed() {
  const std::size_t shown =
      static_cast<std::size_t>(end_ - at_) < 16 ? static_cast<std::size_t>(end_ - at_) : 16;
  token_.kind = TokenKind::kEnd;
  token_.text = {at_, shown};
  at_ = end_;
}

void Lexer::stop() {
  at_ = end_;
  token_.kind = TokenKind::kEnd;
}

bool Lexer::skip_braces() {
  // The current token is '{', and at_ is just after it.
  int depth = 1;
  while (at_ < end_ && depth > 0) {
    switch (*at_) {
      case '{':
        ++depth;
        break;
      case '}':
        --depth;
        break;
      case '\n':
        ++line_;
        break;
      case '"':
        for (++at_; at_ < end_ && *at_ != '"'; ++at_) {
          if (*at_ == '\n') ++line_;
        }
        if (at_ >= end_) return false;
        break;
      case '/':
        if (end_ - at_ > 1 && (at_[1] == '/' || at_[1] == '*')) {
          skip_blanks();
          continue;
        }
        break;
      default:
        break;
    }
    ++at_;
  }
  if (depth > 0) return false;
  next();
  return true;
}

bool Lexer::skip_past(std::string_view end) {
  const std::string_view rest(at_, static_cast<std::size_t>(end_ - at_));
  const std::size_t found = rest.find(end);
  if (found == std::string_view::npos) return false;
  const char* const past = at_ + found + end.size();
  line_ += static_cast<std::uint32_t>(std::count(at_, past, '\n'));
  at_ = past;
  next();
  return true;
}

void Lexer::skip_line() {
  const std::uint32_t line = token_.line;
  if (line_ == line) {
    const void* newline = std::memchr(at_, '\n', static_cast<std::size_t>(end_ - at_));
    at_ = newline != nullptr ? static_cast<const char*>(newline) : end_;
  }
  next();
}

std::size_t Lexer::token_offset() const {
  const std::size_t text_offset = static_cast<std::size_t>(token_.text.data() - begin_);
  const bool prefixed = token_.kind == TokenKind::kDirective || token_.kind == TokenKind::kString;
  return text_offset - (prefixed ? 1 : 0);
}

}  // namespace gpurun::emulated::ptx
