// FunctionSource: the translator's input: a kernel, the functions that it calls, and the meaning of
// the names in their texts. module/ builds it. It is free of LLVM.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emulated/ptx/ast.h"

namespace gpurun::emulated {

struct Symbol {
  enum class Kind : std::uint8_t {
    kUnknown,        // Nothing has this name: an error where it is used.
    kShared,         // A module-scope .shared variable: shared_offset.
    kDynamicShared,  // Starts after the kernel's static shared memory.
    kMemory,         // A .global or .const variable. link_name is its address.
    kFunction,       // `function`. link_name: its code. descriptor_name: its descriptor.
    kRuntime,        // A function of the device run time: vprintf, malloc, ...
  };
  Kind kind = Kind::kUnknown;
  std::uint32_t shared_offset = 0;
  std::string link_name;
  std::string descriptor_name;
  const ptx::Function* function = nullptr;  // Null when it is only pointed at.
};

// The names that one text, or the texts linked with it, define.
class LinkScope {
 public:
  virtual ~LinkScope() = default;
  virtual Symbol find(std::string_view name) const = 0;
};

struct FunctionSource {
  const ptx::Function* function = nullptr;
  const LinkScope* scope = nullptr;
  std::string link_name;
};

// One kernel (or one function that is called through its descriptor) with everything that it calls
// directly, each function once. Borrowed during the translation.
struct KernelSource {
  FunctionSource root;
  std::vector<FunctionSource> callees;
  // The offsets of .shared variables declared inside functions, by variable. Those of module scope
  // come from the LinkScope.
  std::unordered_map<const ptx::Variable*, std::uint32_t> shared_offsets;
  std::uint32_t instruction_count = 0;
};

// A name that generated code refers to.
struct LinkSymbol {
  std::string name;
  std::uint64_t address = 0;
};

// Offsets of parameters in a parameter block, each with its alignment (PTX ISA, section 5.1.6).
std::vector<std::uint32_t> parameter_offsets(const std::vector<ptx::Variable>& parameters,
                                             std::uint32_t* total_bytes);

// Names for linking. The module's own names start with "m." and cannot collide with these.
inline constexpr char kRootSymbol[] = "root";

// Prefix of the names of functions that update shared memory by a load, an operation and a store.
// No other thread of the block may run between these.
inline constexpr char kUpdateFunction[] = "gpurun.update";

}  // namespace gpurun::emulated
