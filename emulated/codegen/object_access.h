// ObjectAccess: the common part of texture and surface instructions. It has the handle of an
// object, a place in it, and a native function that may report an error.
#pragma once

#include "emulated/codegen/function_builder.h"

namespace gpurun::emulated {

// Operand `index` is "[object, {coordinates}]" or "[object]". The words that the native function
// reads are in this thread's frame.
class ObjectAccess {
 public:
  using Value = llvm::Value;

  // Refuses operands that are not a register with a handle: texture and surface references.
  ObjectAccess(FunctionBuilder& builder, const Operation& op, std::size_t index, unsigned words);

  Value* words() { return words_; }
  void store(unsigned word, Value* value);
  // Stores the layer (0 without one) into word `first`, and the coordinates into the next words.
  void store_place(unsigned first, unsigned dimensions, bool layered);

  // Calls `function` with the handle before `arguments`. An error that it reports ends the grid.
  void call(const char* function, llvm::ArrayRef<Value*> arguments);

 private:
  FunctionBuilder& b_;
  const ptx::Operand& operand_;
  Value* handle_ = nullptr;
  Value* words_ = nullptr;
};

// Part `index` of a vector of at least `count`. A scalar is a vector of one.
const ptx::Operand& vector_part(FunctionBuilder& b, const ptx::Operand& operand, unsigned count,
                                unsigned index);

// Writes `count` values of `bits` each from `from` to a vector, or to a register.
void write_words(FunctionBuilder& b, const ptx::Operand& to, llvm::Value* from, unsigned count,
                 unsigned bits);

}  // namespace gpurun::emulated
