// FunctionParser: the parser of one function: signature, registers, variables, labels and
// instructions. It resolves every name inside the function. The meaning of instructions belongs to
// the translator (codegen/).
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "emulated/ptx/declarations.h"

namespace gpurun::emulated::ptx {

class FunctionParser : public DeclarationParser {
 public:
  FunctionParser(std::string_view text, std::uint32_t first_line)
      : DeclarationParser(text, first_line) {}

  Result<Function> run();

 private:
  struct RegisterRange {
    std::string_view prefix;
    std::uint32_t first;
    std::uint32_t count;
  };
  struct NamedTable {
    std::string_view name;
    std::uint32_t index;
    std::vector<std::string_view> targets;
  };
  // One { } of the body. Names of inner scopes hide those of outer scopes.
  struct Scope {
    std::unordered_map<std::string_view, std::uint32_t> registers;
    std::vector<RegisterRange> ranges;
    std::unordered_map<std::string_view, std::uint32_t> variables;
    std::unordered_map<std::string_view, std::uint32_t> labels;
    std::unordered_map<std::string_view, std::uint32_t> prototypes;
    std::vector<NamedTable> tables;
    std::size_t first_statement = 0;
  };

  void header();
  void performance_directives();
  void dimensions3(std::uint32_t (&out)[3]);
  void bind_parameters(const std::vector<Variable>& parameters);

  void block(int depth);
  void body_directive();
  void register_declaration(const Variable& head);
  void variable_declaration(const Variable& head);
  void statement();
  void label(std::string_view name);
  void branch_table(std::string_view name);
  void call_prototype(std::string_view name);
  void close_scope();
  void resolve_labels(Operand& operand, const Scope& scope);

  void instruction(std::string_view opcode, Instruction& out);
  void call_operands(Instruction& out);
  Operand operand(int depth);
  Operand named_operand(int depth);
  Operand memory_operand(int depth);
  Operand group_operand(char close, int depth);
  void operand_offset(Operand& out);
  void second_destination(Operand& out);
  std::uint32_t find_register(std::string_view name) const;
  bool find(std::unordered_map<std::string_view, std::uint32_t> Scope::*map, std::string_view name,
            std::uint32_t* index) const;

  Function function_;
  std::vector<Scope> scopes_;
};

}  // namespace gpurun::emulated::ptx
