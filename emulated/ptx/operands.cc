// Instructions and their operands (PTX ISA, sections 4.5 and 6).
#include "emulated/ptx/parser.h"

namespace gpurun::emulated::ptx {
namespace {

constexpr int kOperandDepthMax = 4;

}  // namespace

void FunctionParser::instruction(std::string_view opcode, Instruction& out) {
  out.opcode = opcode;
  while (lexer_.token().kind == TokenKind::kDirective) {
    out.modifiers.push_back(lexer_.token().text);
    lexer_.next();
  }
  if (opcode == "call") {
    call_operands(out);
  } else if (!lexer_.at(';')) {
    do {
      out.operands.push_back(operand(0));
    } while (!failed() && accept(','));
  }
  expect(';');
}

void FunctionParser::call_operands(Instruction& out) {
  const auto list = [this](std::vector<Operand>& into) {
    expect('(');
    while (!lexer_.at(')') && !failed()) {
      into.push_back(operand(1));
      if (!accept(',')) break;
    }
    expect(')');
  };
  if (lexer_.at('(')) {
    list(out.results);
    expect(',');
  }
  out.operands.push_back(operand(0));
  while (accept(',') && !failed()) {
    if (lexer_.at('(')) {
      list(out.arguments);
      continue;
    }
    const std::string_view name = expect_identifier();
    Operand prototype;
    prototype.kind = Operand::Kind::kTable;
    prototype.name = name;
    if (!find(&Scope::prototypes, name, &prototype.index)) prototype.index = kNoIndex;
    out.operands.push_back(std::move(prototype));
  }
}

Operand FunctionParser::operand(int depth) {
  Operand out;
  if (depth > kOperandDepthMax) {
    fail("operand nested too deeply");
    return out;
  }
  if (accept('!')) {
    out = operand(depth + 1);
    out.negated = true;
    return out;
  }
  if (accept('[')) return memory_operand(depth);
  if (accept('{')) return group_operand('}', depth);
  if (accept('(')) return group_operand(')', depth);
  const bool minus = accept('-');
  const Token token = lexer_.token();
  switch (token.kind) {
    case TokenKind::kInteger:
      out.kind = Operand::Kind::kInteger;
      out.bits = minus ? 0 - token.bits : token.bits;
      break;
    case TokenKind::kFloat32:
      out.kind = Operand::Kind::kFloat32;
      out.bits = minus ? token.bits ^ 0x80000000u : token.bits;
      break;
    case TokenKind::kFloat64:
      out.kind = Operand::Kind::kFloat64;
      out.bits = minus ? token.bits ^ (1ull << 63) : token.bits;
      break;
    case TokenKind::kIdentifier:
      if (minus) fail("only constants can be negated");
      return named_operand(depth);
    default:
      fail("an operand expected");
      return out;
  }
  lexer_.next();
  return out;
}

Operand FunctionParser::group_operand(char close, int depth) {
  Operand out;
  out.kind = Operand::Kind::kVector;
  while (!lexer_.at(close) && !failed()) {
    out.parts.push_back(operand(depth + 1));
    if (!accept(',')) break;
  }
  expect(close);
  return out;
}

void FunctionParser::operand_offset(Operand& out) {
  while (lexer_.at('+') || lexer_.at('-')) {
    bool minus = lexer_.at('-');
    lexer_.next();
    if (accept('-')) minus = !minus;
    const std::uint64_t offset = expect_integer();
    out.bits += minus ? 0 - offset : offset;
  }
}

Operand FunctionParser::memory_operand(int depth) {
  Operand out;
  out.kind = Operand::Kind::kMemory;
  out.parts.push_back(operand(depth + 1));
  operand_offset(out);
  while (accept(',') && !failed()) out.parts.push_back(operand(depth + 1));
  expect(']');
  return out;
}

void FunctionParser::second_destination(Operand& out) {
  if (!accept('|')) return;
  const std::string_view name = expect_identifier();
  if (name == "_") return;
  out.second = find_register(name);
  if (!failed() && out.second == kNoIndex) fail("unknown register");
}

Operand FunctionParser::named_operand(int depth) {
  Operand out;
  const std::string_view name = expect_identifier();
  out.name = name;
  if (name == "_") {
    out.kind = Operand::Kind::kSink;
    second_destination(out);
    return out;
  }
  if (const std::uint32_t found = find_register(name); found != kNoIndex) {
    out.kind = Operand::Kind::kRegister;
    out.index = found;
    second_destination(out);
    return out;
  }
  if (name == "WARP_SZ") {
    out.kind = Operand::Kind::kInteger;
    out.bits = 32;
    return out;
  }
  if (name.starts_with('%')) {
    out.kind = Operand::Kind::kSpecial;
    const Token token = lexer_.token();
    if (token.kind == TokenKind::kDirective && token.text.size() == 1 &&
        std::string_view("xyzw").find(token.text[0]) != std::string_view::npos) {
      // The component is part of the name. Both are adjacent in the text.
      out.name = {name.data(), static_cast<std::size_t>(token.text.data() + 1 - name.data())};
      lexer_.next();
    }
    return out;
  }
  if (find(&Scope::variables, name, &out.index)) {
    out.kind = Operand::Kind::kVariable;
  } else {
    out.kind = Operand::Kind::kSymbol;
  }
  if (accept('[')) {  // sym[0], as tinygrad writes.
    out.bits += expect_integer();
    expect(']');
  }
  // A "+ offset" outside brackets belongs to the symbol. Inside them memory_operand() takes it.
  if (depth == 0) operand_offset(out);
  return out;
}

}  // namespace gpurun::emulated::ptx
