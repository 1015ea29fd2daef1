// ModuleIndex: the top level of one PTX text: its functions, where each of them is, and its
// variables. Bodies are skipped, so that modules with thousands of kernels load fast.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "emulated/ptx/ast.h"

namespace gpurun::emulated::ptx {

struct FunctionRange {
  std::string_view name;
  std::string_view text;  // From its linkage directive to the end of its body.
  std::uint32_t line = 0;
  bool entry = false;
  bool declaration = false;
};

struct ModuleIndex {
  std::uint32_t version = 0;  // ISA version times ten: 90.
  std::uint32_t target = 0;   // sm number: 75, 90, 120.
  // In text order, each name once: its definition, else its first declaration.
  std::vector<FunctionRange> functions;
  std::unordered_map<std::string_view, std::size_t> function_by_name;
  std::vector<Variable> variables;
  std::unordered_map<std::string_view, std::string_view> aliases;  // alias -> function
};

// `text` is borrowed for the index's life. kInvalidArgument, with the line, when it is not PTX.
Result<ModuleIndex> index_module(std::string_view text);

// Parses one function of an index. kInvalidArgument, with the line, when its text is malformed.
Result<Function> parse_function(const FunctionRange& range);

}  // namespace gpurun::emulated::ptx
