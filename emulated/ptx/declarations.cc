// Variables, parameters and initialisers (PTX ISA, sections 5.1 and 5.4).
#include "emulated/ptx/declarations.h"

namespace gpurun::emulated::ptx {
namespace {

constexpr int kInitializerDepthMax = 16;
constexpr std::size_t kDimensionsMax = 16;

bool is_power_of_two(std::uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace

Status DeclarationParser::status() const {
  return failed_ ? Status(Code::kInvalidArgument, error_) : Status();
}

void DeclarationParser::fail(std::string what) {
  if (!failed_) {
    failed_ = true;
    error_ = "PTX line " + std::to_string(lexer_.token().line) + ": " + std::move(what);
    const std::string_view near = lexer_.token().text.substr(0, 40);
    if (!near.empty()) error_.append(" near '").append(near).append("'");
  }
  lexer_.stop();
}

bool DeclarationParser::accept(char punctuation) {
  if (!lexer_.at(punctuation)) return false;
  lexer_.next();
  return true;
}

void DeclarationParser::expect(char punctuation) {
  if (!accept(punctuation)) fail(std::string("'") + punctuation + "' expected");
}

std::string_view DeclarationParser::expect_identifier() {
  if (lexer_.token().kind != TokenKind::kIdentifier) {
    fail("a name expected");
    return {};
  }
  const std::string_view name = lexer_.token().text;
  lexer_.next();
  return name;
}

std::uint64_t DeclarationParser::expect_integer() {
  if (lexer_.token().kind != TokenKind::kInteger) {
    fail("an integer expected");
    return 0;
  }
  const std::uint64_t value = lexer_.token().bits;
  lexer_.next();
  return value;
}

void DeclarationParser::skip_parentheses() {
  if (!lexer_.at('(')) return;
  int depth = 0;
  do {
    if (lexer_.at('(')) ++depth;
    if (lexer_.at(')')) --depth;
    if (lexer_.at_end()) return fail("')' expected");
    lexer_.next();
  } while (depth > 0);
}

void DeclarationParser::pointer_attributes() {
  // .ptr [.space] [.align n]: hints about what a parameter points at.
  for (;;) {
    if (lexer_.at_directive("align")) {
      // An alignment after .ptr is the pointee's.
      lexer_.next();
      expect_integer();
    } else if (lexer_.token().kind == TokenKind::kDirective &&
               parse_space(lexer_.token().text) != Space::kNone) {
      lexer_.next();
    } else {
      return;
    }
  }
}

Variable DeclarationParser::variable_head(Space space) {
  Variable variable;
  variable.space = space;
  while (lexer_.token().kind == TokenKind::kDirective) {
    const std::string_view name = lexer_.token().text;
    const Type type = parse_type(name);
    lexer_.next();
    if (!type.is_none()) {
      variable.type = type;
    } else if (name == "align") {
      const std::uint64_t alignment = expect_integer();
      if (!is_power_of_two(alignment) || alignment > 4096) fail("an alignment up to 4096 expected");
      variable.alignment = static_cast<std::uint32_t>(alignment);
    } else if (name == "v2") {
      variable.vector_length = 2;
    } else if (name == "v4") {
      variable.vector_length = 4;
    } else if (name == "v8") {
      variable.vector_length = 8;
    } else if (name == "ptr") {
      pointer_attributes();
    } else if (name == "attribute") {
      if (accept('(')) {
        if (lexer_.at_directive("managed")) variable.managed = true;
        int depth = 1;
        while (depth > 0 && !lexer_.at_end()) {
          if (lexer_.at('(')) ++depth;
          if (lexer_.at(')')) --depth;
          lexer_.next();
        }
      }
    } else {
      fail("unknown directive ." + std::string(name) + " in a declaration");
    }
  }
  if (variable.type.is_none()) fail("a type expected in a declaration");
  return variable;
}

void DeclarationParser::dimensions(Variable& variable) {
  while (accept('[')) {
    std::uint64_t length = 0;
    if (lexer_.token().kind == TokenKind::kInteger) length = expect_integer();
    if (length == 0 && !variable.dimensions.empty()) fail("only the first dimension may be open");
    if (variable.dimensions.size() >= kDimensionsMax) fail("too many dimensions");
    variable.dimensions.push_back(length);
    expect(']');
  }
  if (variable.byte_size() >= kVariableBytesMax) fail("variable too large");
}

void DeclarationParser::declarator(Variable& variable) {
  variable.name = expect_identifier();
  dimensions(variable);
  if (accept('=')) {
    variable.has_initializer = true;
    if (lexer_.at('{')) {
      initializer_list(variable, 0, 0, 0);
    } else {
      initializer_element(variable, 0);
    }
  }
}

void DeclarationParser::declarators(const Variable& head, std::vector<Variable>& out) {
  do {
    Variable variable = head;
    declarator(variable);
    if (failed()) return;
    out.push_back(std::move(variable));
  } while (accept(','));
  expect(';');
}

void DeclarationParser::initializer_list(Variable& variable, std::size_t level, std::uint64_t first,
                                         int depth) {
  if (depth > kInitializerDepthMax) return fail("initialiser nested too deeply");
  expect('{');
  // Elements that one item of this level covers.
  std::uint64_t stride = 1;
  if (level < variable.dimensions.size()) {
    stride = variable.vector_length;
    for (std::size_t i = level + 1; i < variable.dimensions.size(); ++i) {
      stride *= variable.dimensions[i];
    }
  }
  std::uint64_t element = first;
  while (!lexer_.at('}') && !failed()) {
    if (lexer_.at('{')) {
      initializer_list(variable, level + 1, element, depth + 1);
      element += stride;
    } else {
      initializer_element(variable, element);
      ++element;
    }
    if (!accept(',')) break;
  }
  expect('}');
}

void DeclarationParser::initializer_symbol(Initializer& initializer) {
  initializer.kind = Initializer::Kind::kSymbol;
  const std::string_view name = expect_identifier();
  if (name == "generic" && accept('(')) {
    initializer.symbol = expect_identifier();
    expect(')');
  } else {
    initializer.symbol = name;
  }
  while (lexer_.at('+') || lexer_.at('-')) {
    const bool minus = lexer_.at('-');
    lexer_.next();
    const std::uint64_t offset = expect_integer();
    initializer.bits += minus ? 0 - offset : offset;
  }
}

void DeclarationParser::initializer_element(Variable& variable, std::uint64_t element) {
  if (!variable.unsized() && element >= variable.element_count() * variable.vector_length) {
    return fail("more initialisers than elements");
  }
  Initializer initializer;
  initializer.element = element;
  const bool minus = accept('-');
  const Token token = lexer_.token();
  switch (token.kind) {
    case TokenKind::kInteger:
      lexer_.next();
      initializer.bits = minus ? 0 - token.bits : token.bits;
      if (accept('(')) {  // A byte of an address: 0xFF00(symbol + 4).
        initializer.bits = 0;
        initializer.mask = token.bits;
        initializer_symbol(initializer);
        expect(')');
      }
      break;
    case TokenKind::kFloat32:
      lexer_.next();
      initializer.kind = Initializer::Kind::kFloat32;
      initializer.bits = minus ? token.bits ^ 0x80000000u : token.bits;
      break;
    case TokenKind::kFloat64:
      lexer_.next();
      initializer.kind = Initializer::Kind::kFloat64;
      initializer.bits = minus ? token.bits ^ (1ull << 63) : token.bits;
      break;
    case TokenKind::kIdentifier:
      initializer_symbol(initializer);
      break;
    default:
      return fail("an initialiser expected");
  }
  if (!failed()) variable.initializers.push_back(initializer);
}

std::vector<Variable> DeclarationParser::parameter_list() {
  std::vector<Variable> list;
  expect('(');
  while (!lexer_.at(')') && !failed()) {
    if (lexer_.token().kind != TokenKind::kDirective) {
      fail("a parameter expected");
      break;
    }
    if (lexer_.at_directive("hidden")) {
      fail("hidden parameters (tensor maps of tileiras) are not supported");
      break;
    }
    const Space space = parse_space(lexer_.token().text);
    if (space != Space::kParam && space != Space::kRegister) fail(".param or .reg expected");
    lexer_.next();
    Variable variable = variable_head(space);
    if (lexer_.token().kind == TokenKind::kIdentifier) variable.name = expect_identifier();
    dimensions(variable);
    list.push_back(std::move(variable));
    if (!accept(',')) break;
  }
  expect(')');
  return list;
}

}  // namespace gpurun::emulated::ptx
