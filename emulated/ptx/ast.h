// AST of PTX: the variables, functions and instructions that the parser makes of a text. Names are
// views into the text, which must outlive them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "emulated/ptx/types.h"

namespace gpurun::emulated::ptx {

inline constexpr std::uint32_t kNoIndex = ~std::uint32_t{0};

struct Operand {
  enum class Kind : std::uint8_t {
    kRegister,  // index: into Function::registers
    kInteger,   // bits
    kFloat32,   // bits
    kFloat64,   // bits
    kVariable,  // index: into Function::variables. bits: offset added to its address
    kSymbol,    // name: a symbol of the module. bits: offset
    kLabel,     // index: the label of a Statement
    kTable,     // index: into Function::branch_tables
    kSpecial,   // name with its component: "%tid.x"
    kMemory,    // parts[0]: base. bits: offset. parts[1..]: coordinates etc.
    kVector,    // parts
    kSink,      // _
  };
  Kind kind = Kind::kSink;
  bool negated = false;  // !p
  std::uint32_t index = kNoIndex;
  std::uint32_t second = kNoIndex;  // q of p|q: a register.
  std::uint64_t bits = 0;
  std::string_view name;
  std::vector<Operand> parts;
};

struct Instruction {
  std::string_view opcode;
  std::vector<std::string_view> modifiers;
  std::vector<Operand> operands;
  // Only for `call`. operands[0] is the callee. operands[1] is the prototype (kTable index into
  // Function::prototypes), or the list of targets, of an indirect call.
  std::vector<Operand> results;
  std::vector<Operand> arguments;
  std::uint32_t guard = kNoIndex;  // Register of @p.
  bool guard_negated = false;
  std::uint32_t line = 0;

  bool has(std::string_view modifier) const {
    for (std::string_view known : modifiers) {
      if (known == modifier) return true;
    }
    return false;
  }
  // "add.rn.f32"
  std::string full_name() const;
};

// A label (`label`, without an instruction) or an instruction (label == kNoIndex).
struct Statement {
  std::uint32_t label = kNoIndex;
  Instruction instruction;
};

struct Initializer {
  enum class Kind : std::uint8_t { kInteger, kFloat32, kFloat64, kSymbol };
  Kind kind = Kind::kInteger;
  std::uint64_t element = 0;  // Index of the scalar element, rows flattened.
  std::uint64_t bits = 0;     // Value. kSymbol: the offset added to the symbol's address.
  std::string_view symbol;
  std::uint64_t mask = ~std::uint64_t{0};  // 0xFF00(symbol): selects this byte of the address.
};

enum class Linkage : std::uint8_t { kNone, kVisible, kExtern, kWeak, kCommon };

struct Variable {
  Space space = Space::kNone;
  Type type;
  Linkage linkage = Linkage::kNone;
  std::string_view name;
  std::uint32_t alignment = 0;            // As written. 0: not written.
  std::uint32_t vector_length = 1;        // .v2, .v4
  std::vector<std::uint64_t> dimensions;  // Empty: a scalar. A first 0: unsized.
  bool managed = false;
  bool has_initializer = false;
  std::vector<Initializer> initializers;

  bool unsized() const { return !dimensions.empty() && dimensions[0] == 0; }
  std::uint64_t element_count() const;
  // At most kVariableBytesMax. 0 for unsized arrays without initializer.
  std::uint64_t byte_size() const;
  // The written alignment, or the natural one without it.
  std::uint32_t byte_alignment() const;
};

// The parser refuses larger declarations.
inline constexpr std::uint64_t kVariableBytesMax = 1ull << 40;

// Parameters and results of a function, or of the prototype of an indirect call.
struct Signature {
  std::vector<Variable> results;
  std::vector<Variable> parameters;
};

struct Function {
  std::string_view name;
  bool entry = false;
  bool declaration = false;
  bool no_return = false;
  Linkage linkage = Linkage::kNone;
  Signature signature;
  std::uint32_t required_block[3] = {0, 0, 0};
  std::uint32_t max_block[3] = {0, 0, 0};
  std::uint32_t required_cluster[3] = {0, 0, 0};
  std::uint32_t min_blocks_per_sm = 0;
  bool of_tiles = false;  // Compiled from Tile IR.

  std::vector<Type> registers;
  // Results, then parameters of the signature, then what the body declares. Those results and
  // parameters that are in .reg space have an entry in `parameter_registers` too.
  std::vector<Variable> variables;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> parameter_registers;  // variable, register
  std::vector<Statement> body;
  std::uint32_t label_count = 0;
  std::vector<std::vector<std::uint32_t>> branch_tables;  // Labels.
  std::vector<Signature> prototypes;
};

}  // namespace gpurun::emulated::ptx
