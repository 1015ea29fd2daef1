// What texture and surface instructions have in common: the handle of an object, a place in it,
// and a native function that may find them wrong.
#pragma once

#include "server/emulated/codegen/function_builder.h"

namespace gpurun::emulated {

// Operand `index` is "[object, {coordinates}]" or "[object]". The words that the native function
// reads are in this thread's frame.
class ObjectAccess {
 public:
  using Value = llvm::Value;

  // Refuses what is no register with a handle: texture and surface references.
  ObjectAccess(FunctionBuilder& builder, const Operation& op, std::size_t index, unsigned words);

  Value* words() { return words_; }
  void store(unsigned word, Value* value);
  // The layer (0 without one) into `first`, the coordinates into the words behind it.
  void store_place(unsigned first, unsigned dimensions, bool layered);

  // Calls `function` with the handle before `arguments`; what it finds wrong ends the grid.
  void call(const char* function, llvm::ArrayRef<Value*> arguments);

 private:
  FunctionBuilder& b_;
  const ptx::Operand& operand_;
  Value* handle_ = nullptr;
  Value* words_ = nullptr;
};

// Part `index` of a vector of at least `count`; a scalar is a vector of one.
const ptx::Operand& vector_part(FunctionBuilder& b, const ptx::Operand& operand, unsigned count,
                                unsigned index);

// Writes `count` values of `bits` that lie at `from` to a vector, or to a register if it is one.
void write_words(FunctionBuilder& b, const ptx::Operand& to, llvm::Value* from, unsigned count,
                 unsigned bits);

}  // namespace gpurun::emulated
