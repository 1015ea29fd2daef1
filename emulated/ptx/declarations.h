// DeclarationParser: the parser of variable declarations and parameter lists, which a module's top
// level and function bodies share. It stops at its first error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "emulated/ptx/ast.h"
#include "emulated/ptx/lexer.h"

namespace gpurun::emulated::ptx {

class DeclarationParser {
 public:
  explicit DeclarationParser(std::string_view text, std::uint32_t first_line)
      : lexer_(text, first_line) {}

  // The first error, or success.
  Status status() const;

 protected:
  bool failed() const { return failed_; }
  // Keeps the first error with the current line, and ends the input so that every loop ends.
  void fail(std::string what);

  bool accept(char punctuation);
  void expect(char punctuation);
  std::string_view expect_identifier();
  std::uint64_t expect_integer();

  // Reads type, alignment, vector and pointer attributes. The current token is the one after
  // ".space".
  Variable variable_head(Space space);
  // Reads name, dimensions and initialiser of one variable of a declaration.
  void declarator(Variable& variable);
  // Reads "name, name[2], ...;". Each variable starts as a copy of `head`.
  void declarators(const Variable& head, std::vector<Variable>& out);
  // Reads "(.param .b32 a, ...)".
  std::vector<Variable> parameter_list();
  // Skips "(...)" of an attribute, nested parentheses included.
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
