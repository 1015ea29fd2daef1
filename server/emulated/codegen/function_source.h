// What the translator is given: a kernel, the functions that it calls, and what the names in their
// texts stand for. Built by module/, free of LLVM.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/emulated/ptx/ast.h"

namespace gpurun::emulated {

struct Symbol {
  enum class Kind : std::uint8_t {
    kUnknown,        // Nothing has this name: an error where it is used.
    kShared,         // A module-scope .shared variable: shared_offset.
    kDynamicShared,  // Behind the kernel's static shared memory, wherever that ends.
    kMemory,         // A .global or .const variable: link_name is its address.
    kFunction,       // function; link_name its code, descriptor_name its FunctionDescriptor.
    kRuntime,        // A function that the device run time provides: vprintf, malloc, ...
  };
  Kind kind = Kind::kUnknown;
  std::uint32_t shared_offset = 0;
  std::string link_name;
  std::string descriptor_name;
  const ptx::Function* function = nullptr;  // Null for one that is only pointed at.
};

// The names that one text (or the texts linked with it) defines.
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
// directly, each function once. Borrowed for the time of the translation.
struct KernelSource {
  FunctionSource root;
  std::vector<FunctionSource> callees;
  // Where .shared variables declared inside functions lie, by variable; module-scope ones come from
  // the scope.
  std::unordered_map<const ptx::Variable*, std::uint32_t> shared_offsets;
  std::uint32_t instruction_count = 0;
};

// A name that generated code refers to.
struct LinkSymbol {
  std::string name;
  std::uint64_t address = 0;
};

// Offsets of parameters in a parameter block, each aligned as it asks (PTX ISA, section 5.1.6).
std::vector<std::uint32_t> parameter_offsets(const std::vector<ptx::Variable>& parameters,
                                             std::uint32_t* total_bytes);

// Names that code is linked by; the module's own start with "m." and cannot collide with these.
inline constexpr char kRootSymbol[] = "root";

// How the names of functions begin that update shared memory: load, operation and store, which no
// other thread of the block may come between.
inline constexpr char kUpdateFunction[] = "gpurun.update";

}  // namespace gpurun::emulated
