// Scan of a module's top level (PTX ISA, sections 4.3 and 11).
#include "emulated/ptx/index.h"

#include <charconv>

#include "emulated/ptx/declarations.h"

namespace gpurun::emulated::ptx {
namespace {

class Indexer : public DeclarationParser {
 public:
  explicit Indexer(std::string_view text) : DeclarationParser(text, 1), text_(text) {}

  Result<ModuleIndex> run() {
    while (!lexer_.at_end()) top_level_item();
    if (!lexer_.token().text.empty()) fail("malformed token");
    if (failed()) return status();
    if (index_.version == 0) return Status(Code::kInvalidArgument, "not PTX: no .version");
    return std::move(index_);
  }

 private:
  void top_level_item() {
    if (accept(';')) return;
    if (lexer_.at('@')) return lexer_.skip_line();  // @@DWARF of old compilers.
    if (lexer_.token().kind != TokenKind::kDirective) return fail("a directive expected");
    const std::string_view name = lexer_.token().text;
    if (name == "version") return version();
    if (name == "target") return target();
    if (name == "address_size") {
      lexer_.next();
      if (expect_integer() != 64) fail("only 64-bit addresses are supported");
      return;
    }
    if (name == "file" || name == "loc") return lexer_.skip_line();
    if (name == "section") return section();
    if (name == "nv_intermediate_source_section") return source_section();
    if (name == "pragma") return skip_statement();
    if (name == "alias") return alias();
    declaration();
  }

  void version() {
    lexer_.next();
    const std::string_view number = lexer_.token().text;
    unsigned major = 0, minor = 0;
    const auto dot = std::from_chars(number.data(), number.data() + number.size(), major);
    if (dot.ec != std::errc() || dot.ptr == number.data() + number.size() || *dot.ptr != '.' ||
        std::from_chars(dot.ptr + 1, number.data() + number.size(), minor).ec != std::errc() ||
        major > 99 || minor > 9) {
      return fail("a version expected");
    }
    index_.version = major * 10 + minor;
    lexer_.next();
  }

  void target() {
    lexer_.next();
    do {
      std::string_view name = expect_identifier();
      if (name.starts_with("sm_") || name.starts_with("compute_")) {
        name.remove_prefix(name.find('_') + 1);
        std::from_chars(name.data(), name.data() + name.size(), index_.target);
      }
    } while (accept(','));
  }

  void section() {
    while (!lexer_.at('{') && !lexer_.at_end()) lexer_.next();
    if (lexer_.at_end() || !lexer_.skip_braces()) fail("'}' expected");
  }

  // The Tile IR of the kernels, as text for tools. Lines between its marks may hold anything.
  void source_section() {
    while (!lexer_.at('{') && !lexer_.at_end()) lexer_.next();
    int depth = 0;
    do {
      if (lexer_.at_end()) return fail("'}' expected");
      if (lexer_.at('{')) ++depth;
      if (lexer_.at('}')) --depth;
      if (!lexer_.at_directive("source_begin")) {
        lexer_.next();
      } else if (!lexer_.skip_past(".source_end")) {
        return fail(".source_end expected");
      }
    } while (depth > 0);
  }

  void skip_statement() {
    while (!lexer_.at(';') && !lexer_.at_end()) lexer_.next();
    expect(';');
  }

  void alias() {
    lexer_.next();
    const std::string_view name = expect_identifier();
    expect(',');
    index_.aliases[name] = expect_identifier();
    expect(';');
  }

  // Linkage, then a function or variables.
  void declaration() {
    const std::size_t start = lexer_.token_offset();
    const std::uint32_t line = lexer_.token().line;
    Linkage linkage = Linkage::kNone;
    for (;;) {
      if (lexer_.token().kind != TokenKind::kDirective) return fail("a directive expected");
      const std::string_view name = lexer_.token().text;
      if (name == "visible") {
        linkage = Linkage::kVisible;
      } else if (name == "extern") {
        linkage = Linkage::kExtern;
      } else if (name == "weak") {
        linkage = Linkage::kWeak;
      } else if (name == "common") {
        linkage = Linkage::kCommon;
      } else if (name == "entry" || name == "func") {
        return function(start, line, name == "entry");
      } else {
        break;
      }
      lexer_.next();
    }
    const std::string_view name = lexer_.token().text;
    Space space = parse_space(name);
    if (name == "tex") space = Space::kGlobal;
    if (space == Space::kNone || space == Space::kRegister) {
      return fail("unknown directive ." + std::string(name));
    }
    lexer_.next();
    Variable head = variable_head(space);
    head.linkage = linkage;
    if (!failed()) declarators(head, index_.variables);
  }

  void function(std::size_t start, std::uint32_t line, bool entry) {
    lexer_.next();
    FunctionRange range;
    range.line = line;
    range.entry = entry;
    int parentheses = 0;
    for (;;) {
      if (lexer_.at_end()) return fail("function without body");
      if (lexer_.at('(')) ++parentheses;
      if (lexer_.at(')')) --parentheses;
      if (parentheses == 0) {
        if (range.name.empty() && lexer_.token().kind == TokenKind::kIdentifier) {
          range.name = lexer_.token().text;
        }
        if (lexer_.at(';')) {
          range.declaration = true;
          lexer_.next();
          break;
        }
        if (lexer_.at('{')) {
          if (!lexer_.skip_braces()) return fail("'}' expected");
          break;
        }
      }
      lexer_.next();
    }
    if (range.name.empty()) return fail("function without name");
    range.text = text_.substr(start, lexer_.previous_end() - start);
    add_function(range);
  }

  void add_function(const FunctionRange& range) {
    const auto [found, added] =
        index_.function_by_name.try_emplace(range.name, index_.functions.size());
    if (added) {
      index_.functions.push_back(range);
    } else if (index_.functions[found->second].declaration) {
      index_.functions[found->second] = range;
    }
  }

  std::string_view text_;
  ModuleIndex index_;
};

}  // namespace

Result<ModuleIndex> index_module(std::string_view text) { return Indexer(text).run(); }

}  // namespace gpurun::emulated::ptx
