// Code facts: what the engine must know of generated code: how much stack it takes, and whether its
// threads may wait.
#pragma once

#include <llvm/ADT/StringMap.h>
#include <llvm/IR/Module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gpurun::emulated {

// Collects the frame sizes that the code generator reports for functions with the attribute
// "warn-stack-size". It covers one context, which must outlive it.
class StackSizes {
 public:
  explicit StackSizes(llvm::LLVMContext& context);
  const llvm::StringMap<std::uint64_t>& sizes() const { return *sizes_; }

 private:
  const llvm::StringMap<std::uint64_t>* sizes_;  // The context's handler owns it.
};

// The calls between the functions of one optimised module.
class CallDepth {
 public:
  // Also asks the code generator for every function's frame size.
  explicit CallDepth(llvm::Module& module);
  // Bytes of the deepest chain of calls from the root. Each function of a cycle counts once.
  std::uint32_t deepest(const llvm::StringMap<std::uint64_t>& frames) const;

 private:
  struct Node {
    std::string name;
    std::vector<std::size_t> callees;
  };
  std::vector<Node> nodes_;
  std::size_t root_ = 0;
};

// Whether the code calls anything that waits, switches threads or ends one early.
bool module_needs_fibers(const llvm::Module& module);

}  // namespace gpurun::emulated
