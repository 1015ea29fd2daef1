// Parses variable declarations and parameter lists: what the module's top level and function bodies
// have in common. Stops at its first error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/emulated/ptx/ast.h"
#include "server/emulated/ptx/lexer.h"

namespace gpurun::emulated::ptx {

class DeclarationParser {
 public:
  explicit DeclarationParser(std::string_view text, std::uint32_t first_line)
      : lexer_(text, first_line) {}

  // The first error, or success.
  Status status() const;

 protected:
  bool failed() const { return failed_; }
  // Remembers the first error with the current line, and ends the input so that every loop ends.
  void fail(std::string what);

  bool accept(char punctuation);
  void expect(char punctuation);
  std::string_view expect_identifier();
  std::uint64_t expect_integer();

  // With the current token behind ".space": type, alignment, vector and pointer attributes.
  Variable variable_head(Space space);
  // Name, dimensions and initialiser of one variable of a declaration.
  void declarator(Variable& variable);
  // "name, name[2], ...;" with `head` for each.
  void declarators(const Variable& head, std::vector<Variable>& out);
  // "(.param .b32 a, ...)"
  std::vector<Variable> parameter_list();
  // "(...)" of an attribute, nested parentheses included.
  void skip_parentheses();

  Lexer lexer_;

 private:
  void pointer_attributes();
  void dimensions(Variable& variable);
  void initializer_list(Variable& variable, std::size_t level, std::uint64_t first, int depth);
  void initializer_element(Variable& variable, std::uint64_t element);
  void initializer_symbol(Initializer& initializer);

  bool failed_ = false;
  std::string error_;
};

}  // namespace gpurun::emulated::ptx
