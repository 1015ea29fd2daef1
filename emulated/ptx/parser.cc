// Function headers, blocks, declarations and labels (PTX ISA, sections 4 and 11).
#include "emulated/ptx/parser.h"

#include <charconv>

#include "emulated/ptx/index.h"

namespace gpurun::emulated::ptx {
namespace {

constexpr int kBlockDepthMax = 256;
constexpr std::size_t kRegistersMax = 1u << 22;
constexpr std::uint64_t kTileLanguage = 7;  // Of kernels that tileiras compiles from Tile IR.

}  // namespace

Result<Function> parse_function(const FunctionRange& range) {
  return FunctionParser(range.text, range.line).run();
}

Result<Function> FunctionParser::run() {
  header();
  if (!failed() && !accept(';')) {
    block(0);
  } else {
    function_.declaration = true;
  }
  if (failed()) return status();
  return std::move(function_);
}

void FunctionParser::header() {
  for (;; lexer_.next()) {
    if (lexer_.at_directive("visible")) {
      function_.linkage = Linkage::kVisible;
    } else if (lexer_.at_directive("extern")) {
      function_.linkage = Linkage::kExtern;
    } else if (lexer_.at_directive("weak")) {
      function_.linkage = Linkage::kWeak;
    } else {
      break;
    }
  }
  function_.entry = lexer_.at_directive("entry");
  if (!function_.entry && !lexer_.at_directive("func")) return fail(".entry or .func expected");
  lexer_.next();
  while (lexer_.at_directive("attribute")) {
    lexer_.next();
    skip_parentheses();
  }
  if (lexer_.at('(')) function_.signature.results = parameter_list();
  function_.name = expect_identifier();
  if (lexer_.at('(')) function_.signature.parameters = parameter_list();
  performance_directives();
}

void FunctionParser::dimensions3(std::uint32_t (&out)[3]) {
  for (std::uint32_t& value : out) value = 1;
  int i = 0;
  do {
    const std::uint64_t value = expect_integer();
    if (i < 3) out[i] = static_cast<std::uint32_t>(value);
    ++i;
  } while (accept(','));
}

void FunctionParser::performance_directives() {
  while (lexer_.token().kind == TokenKind::kDirective) {
    const std::string_view name = lexer_.token().text;
    lexer_.next();
    if (name == "reqntid") {
      dimensions3(function_.required_block);
    } else if (name == "maxntid") {
      dimensions3(function_.max_block);
    } else if (name == "reqnctapercluster") {
      dimensions3(function_.required_cluster);
    } else if (name == "minnctapersm") {
      function_.min_blocks_per_sm = static_cast<std::uint32_t>(expect_integer());
    } else if (name == "language") {
      function_.of_tiles = expect_integer() == kTileLanguage;
    } else if (name == "noreturn") {
      function_.no_return = true;
    } else {
      // .maxnreg, .maxnctapersm, .explicitcluster, .maxclusterrank, .pragma, .abi_preserve, ...
      while (lexer_.token().kind == TokenKind::kInteger ||
             lexer_.token().kind == TokenKind::kString || lexer_.at(',')) {
        lexer_.next();
      }
      if (name == "pragma") accept(';');
    }
  }
}

void FunctionParser::bind_parameters(const std::vector<Variable>& parameters) {
  for (const Variable& parameter : parameters) {
    const auto index = static_cast<std::uint32_t>(function_.variables.size());
    function_.variables.push_back(parameter);
    if (parameter.space == Space::kRegister) {
      const auto bound = static_cast<std::uint32_t>(function_.registers.size());
      function_.registers.push_back(parameter.type);
      function_.parameter_registers.emplace_back(index, bound);
      scopes_.back().registers[parameter.name] = bound;
    } else if (!parameter.name.empty()) {
      scopes_.back().variables[parameter.name] = index;
    }
  }
}

void FunctionParser::block(int depth) {
  if (depth > kBlockDepthMax) return fail("blocks nested too deeply");
  expect('{');
  scopes_.emplace_back();
  scopes_.back().first_statement = function_.body.size();
  if (depth == 0) {
    bind_parameters(function_.signature.results);
    bind_parameters(function_.signature.parameters);
  }
  while (!lexer_.at('}') && !failed()) {
    if (lexer_.at_end()) {
      fail("'}' expected");
    } else if (accept(';')) {
      continue;
    } else if (lexer_.at('{')) {
      block(depth + 1);
    } else if (lexer_.token().kind == TokenKind::kDirective) {
      body_directive();
    } else {
      statement();
    }
  }
  if (failed()) return;
  close_scope();
  expect('}');
}

void FunctionParser::body_directive() {
  const std::string_view name = lexer_.token().text;
  if (name == "loc" || name == "loc_intermediate" || name == "file") return lexer_.skip_line();
  if (name == "pragma") {
    while (!lexer_.at(';') && !lexer_.at_end()) lexer_.next();
    return expect(';');
  }
  if (name == "extern" || name == "weak" || name == "visible") return lexer_.next();
  const Space space = parse_space(name);
  if (space == Space::kNone) return fail("unknown directive ." + std::string(name));
  lexer_.next();
  const Variable head = variable_head(space);
  if (failed()) return;
  if (space == Space::kRegister) {
    register_declaration(head);
  } else {
    variable_declaration(head);
  }
}

void FunctionParser::register_declaration(const Variable& head) {
  do {
    const std::string_view name = expect_identifier();
    std::uint64_t count = 1;
    const auto first = static_cast<std::uint32_t>(function_.registers.size());
    if (accept('<')) {
      count = expect_integer();
      expect('>');
      if (count > kRegistersMax - function_.registers.size()) return fail("too many registers");
      scopes_.back().ranges.push_back({name, first, static_cast<std::uint32_t>(count)});
    } else {
      scopes_.back().registers[name] = first;
    }
    if (head.vector_length != 1) return fail("vector registers are not supported");
    function_.registers.insert(function_.registers.end(), count, head.type);
  } while (accept(',') && !failed());
  expect(';');
}

void FunctionParser::variable_declaration(const Variable& head) {
  std::vector<Variable> declared;
  declarators(head, declared);
  for (Variable& variable : declared) {
    scopes_.back().variables[variable.name] =
        static_cast<std::uint32_t>(function_.variables.size());
    function_.variables.push_back(std::move(variable));
  }
}

void FunctionParser::statement() {
  Statement out;
  out.instruction.line = lexer_.token().line;
  if (accept('@')) {
    out.instruction.guard_negated = accept('!');
    out.instruction.guard = find_register(expect_identifier());
    if (!failed() && out.instruction.guard == kNoIndex) return fail("unknown guard predicate");
  }
  const std::string_view name = expect_identifier();
  if (failed()) return;
  if (out.instruction.guard == kNoIndex && lexer_.at(':')) {
    lexer_.next();
    return label(name);
  }
  instruction(name, out.instruction);
  if (!failed()) function_.body.push_back(std::move(out));
}

void FunctionParser::label(std::string_view name) {
  if (lexer_.at_directive("branchtargets")) return branch_table(name);
  if (lexer_.at_directive("callprototype")) return call_prototype(name);
  if (lexer_.at_directive("calltargets")) {
    // A list of the functions that an indirect call may reach: a hint.
    while (!lexer_.at(';') && !lexer_.at_end()) lexer_.next();
    return expect(';');
  }
  Statement out;
  out.label = function_.label_count++;
  if (!scopes_.back().labels.emplace(name, out.label).second) return fail("label defined twice");
  function_.body.push_back(std::move(out));
}

void FunctionParser::branch_table(std::string_view name) {
  lexer_.next();
  NamedTable table;
  table.name = name;
  table.index = static_cast<std::uint32_t>(function_.branch_tables.size());
  do {
    table.targets.push_back(expect_identifier());
  } while (accept(',') && !failed());
  expect(';');
  function_.branch_tables.emplace_back();
  scopes_.back().tables.push_back(std::move(table));
}

void FunctionParser::call_prototype(std::string_view name) {
  lexer_.next();
  Signature signature;
  if (lexer_.at('(')) signature.results = parameter_list();
  if (lexer_.token().kind == TokenKind::kIdentifier) lexer_.next();  // _
  if (lexer_.at('(')) signature.parameters = parameter_list();
  while (!lexer_.at(';') && !lexer_.at_end()) lexer_.next();  // .noreturn etc.
  expect(';');
  scopes_.back().prototypes[name] = static_cast<std::uint32_t>(function_.prototypes.size());
  function_.prototypes.push_back(std::move(signature));
}

void FunctionParser::resolve_labels(Operand& operand, const Scope& scope) {
  if (operand.kind != Operand::Kind::kSymbol) return;
  if (const auto found = scope.labels.find(operand.name); found != scope.labels.end()) {
    operand.kind = Operand::Kind::kLabel;
    operand.index = found->second;
    return;
  }
  for (const NamedTable& table : scope.tables) {
    if (table.name == operand.name) {
      operand.kind = Operand::Kind::kTable;
      operand.index = table.index;
    }
  }
}

void FunctionParser::close_scope() {
  Scope& scope = scopes_.back();
  if (!scope.labels.empty() || !scope.tables.empty()) {
    for (std::size_t i = scope.first_statement; i < function_.body.size(); ++i) {
      Instruction& instruction = function_.body[i].instruction;
      if (instruction.opcode != "bra" && instruction.opcode != "brx") continue;
      for (Operand& operand : instruction.operands) resolve_labels(operand, scope);
    }
    for (const NamedTable& table : scope.tables) {
      for (std::string_view target : table.targets) {
        std::uint32_t index = 0;
        if (!find(&Scope::labels, target, &index)) {
          // Labels of an enclosing block that come later are not found here. No known compiler
          // writes that.
          return fail("unknown label " + std::string(target) + " in .branchtargets");
        }
        function_.branch_tables[table.index].push_back(index);
      }
    }
  }
  scopes_.pop_back();
}

std::uint32_t FunctionParser::find_register(std::string_view name) const {
  for (std::size_t i = scopes_.size(); i-- > 0;) {
    const Scope& scope = scopes_[i];
    if (const auto found = scope.registers.find(name); found != scope.registers.end()) {
      return found->second;
    }
    for (const RegisterRange& range : scope.ranges) {
      if (name.size() <= range.prefix.size() || !name.starts_with(range.prefix)) continue;
      std::uint32_t number = 0;
      const char* digits = name.data() + range.prefix.size();
      const char* end = name.data() + name.size();
      const auto parsed = std::from_chars(digits, end, number);
      if (parsed.ec != std::errc() || parsed.ptr != end || number >= range.count) continue;
      return range.first + number;
    }
  }
  return kNoIndex;
}

bool FunctionParser::find(std::unordered_map<std::string_view, std::uint32_t> Scope::*map,
                          std::string_view name, std::uint32_t* index) const {
  for (std::size_t i = scopes_.size(); i-- > 0;) {
    const auto& names = scopes_[i].*map;
    if (const auto found = names.find(name); found != names.end()) {
      *index = found->second;
      return true;
    }
  }
  return false;
}

}  // namespace gpurun::emulated::ptx
