// FunctionBuilder: builds the LLVM IR of one PTX function as one CUDA thread executes it. Registers
// become allocas (LLVM turns them into values), labels become blocks, guards become branches. The
// emit functions in the other files (integer.cc, float.cc, ...) work through this class. Outside of
// jit/ and regions/, no other header includes LLVM's.
#pragma once

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "emulated/codegen/function_source.h"
#include "emulated/ptx/ast.h"

namespace gpurun::emulated {

// One instruction with its types at hand.
struct Operation {
  const ptx::Instruction& instruction;
  ptx::Type type;        // The last modifier that is a type.
  ptx::Type first_type;  // The first one. The same when there is only one.
  std::uint32_t site;    // RuntimeFunctions' `site`.

  bool has(std::string_view modifier) const { return instruction.has(modifier); }
  std::size_t operand_count() const { return instruction.operands.size(); }
};

class FunctionBuilder {
 public:
  using Value = llvm::Value;

  // `ordinal` numbers the functions of a kernel. All arguments are borrowed for the builder's life.
  FunctionBuilder(llvm::Module& module, const KernelSource& kernel, const FunctionSource& source,
                  std::uint32_t ordinal);

  // kRefused when an instruction cannot be translated. The message names function, line and
  // instruction. The module is then unusable.
  Status build();

  // For emit functions -------------------------------------------------------------------------

  llvm::IRBuilder<> ir;

  llvm::LLVMContext& context() { return module_.getContext(); }
  llvm::IntegerType* int_type(unsigned bits) { return llvm::IntegerType::get(context(), bits); }
  llvm::Type* float_type() { return llvm::Type::getFloatTy(context()); }
  llvm::Type* double_type() { return llvm::Type::getDoubleTy(context()); }
  llvm::PointerType* pointer_type() { return llvm::PointerType::get(context(), 0); }
  Value* constant(unsigned bits, std::uint64_t value) {
    return llvm::ConstantInt::get(int_type(bits), value);
  }

  // Refuses the current instruction. Later failures of it are ignored.
  void refuse(const std::string& why);
  bool failed() const { return !status_.ok(); }

  // Operand `index`. When there are fewer, a sink, and the instruction is refused.
  const ptx::Operand& operand(const Operation& op, std::size_t index);
  // Refuses fewer operands than `least` and more than `most`, cache policies not counted.
  void expect_operands(const Operation& op, std::size_t least, std::size_t most);

  // A source operand as an integer of `bits`. Wider registers are cut, narrower ones extended.
  Value* read(const ptx::Operand& operand, unsigned bits, bool sign_extend = false);
  // A source operand of an integer instruction of `type`.
  Value* read(const ptx::Operand& operand, const ptx::Type& type) {
    return read(operand, type.bits, type.is_signed());
  }
  Value* read_predicate(const ptx::Operand& operand) { return read(operand, 1); }
  // Writes an integer to a register, a vector of registers or a sink. Sign or zero extension fills
  // a wider register.
  void write(const ptx::Operand& operand, Value* value, bool sign_extend = false);
  // Writes to the q of p|q, if it is there.
  void write_second(const ptx::Operand& operand, Value* value);
  void write_register(std::uint32_t index, Value* value, bool sign_extend = false);

  // The scalars of a float operand, in the type of their computation: double for f64, float for all
  // others. Packed formats give two, the low half first.
  llvm::SmallVector<Value*, 2> read_floats(const ptx::Operand& operand, const ptx::Type& type);
  // The reverse of read_floats(). Values must be exact in the format (see round_to).
  void write_floats(const ptx::Operand& operand, llvm::ArrayRef<Value*> values,
                    const ptx::Type& type);
  Value* pack_floats(llvm::ArrayRef<Value*> values, const ptx::Type& type);
  llvm::SmallVector<Value*, 2> unpack_floats(Value* bits, const ptx::Type& type);

  // Where a memory operand points, in the host's address space.
  Value* address(const ptx::Operand& memory, ptx::Space space);
  // A shared-space offset (32 bits) as a host pointer.
  Value* shared_pointer(Value* offset32);
  // The address of a variable or symbol as `mov` gives it.
  Value* symbol_address(const ptx::Operand& operand, unsigned bits);

  // Fields of the run-time contexts (device_abi.h).
  Value* thread_field(std::size_t offset, llvm::Type* type, bool constant_in_block = true);
  Value* block_field(std::size_t offset, llvm::Type* type);
  Value* thread_linear();
  Value* lane();
  Value* special_register(std::string_view name);
  Value* thread() { return thread_; }

  // Calls. A function of RuntimeFunctions is called by its field's name, and `thread` is passed
  // first.
  Value* call_runtime(const char* field, llvm::Type* result, llvm::ArrayRef<Value*> arguments);
  // A plain C function of ours (runtime/native_functions.h and others). Calls of `pure` ones may be
  // moved and merged.
  Value* call_helper(const char* name, llvm::Type* result, llvm::ArrayRef<Value*> arguments,
                     bool pure);
  llvm::Constant* helper_address(const char* name);
  Value* intrinsic(llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> arguments,
                   llvm::ArrayRef<llvm::Type*> types);
  Value* unary(llvm::Intrinsic::ID id, Value* a) { return intrinsic(id, {a}, {a->getType()}); }
  Value* binary(llvm::Intrinsic::ID id, Value* a, Value* b) {
    return intrinsic(id, {a, b}, {a->getType()});
  }
  // Memory of this function's frame.
  Value* stack_slot(llvm::Type* type, unsigned alignment = 16);
  // The words that warp operations of this function share (warp_call.h). One operation at a time
  // uses them.
  Value* warp_words();
  // Counts a poll of memory, and yields when the budget is used up (ThreadContext::poll_budget).
  void poll();
  // Placeholder for the CodePosition of the call that it is an argument of, until
  // write_positions().
  Value* position() { return llvm::ConstantPointerNull::get(pointer_type()); }
  // Whether a generic address (64 bits) points to shared memory.
  Value* in_shared(Value* address64);
  void call_function(const Operation& op);

  llvm::BasicBlock* new_block(const char* name = "");
  // Ends the current block as unreachable.
  void end_unreachable();
  void emit_return();
  llvm::BasicBlock* label_block(std::uint32_t label);
  const ptx::Function& function() const { return *source_.function; }
  bool is_entry() const { return source_.function->entry; }
  Value* carry_flag() { return carry_; }
  llvm::Function* llvm_function() { return function_; }

 private:
  void create_function();
  void create_variables();
  void bind_parameters();
  void emit_statement(const ptx::Statement& statement, std::uint32_t index);
  void emit_guarded(const Operation& op);
  void emit_operation(const Operation& op);
  Value* read_constant(const ptx::Operand& operand, unsigned bits);
  Value* read_vector(const ptx::Operand& operand, unsigned bits);
  llvm::AllocaInst* register_slot(std::uint32_t index);
  Value* read_register(std::uint32_t index);
  Value* variable_pointer(std::uint32_t index);
  bool is_shared(std::string_view name) const;
  Value* memory_base(const ptx::Operand& memory, ptx::Space space);
  llvm::Function* declare_function(const Symbol& symbol);
  llvm::FunctionType* function_type(const ptx::Signature& signature);
  Value* argument_pointer(const ptx::Operand& operand, const ptx::Variable& parameter);
  void call_with_signature(const Operation& op, const ptx::Signature& signature,
                           const std::function<Value*()>& callee);
  void call_pointer(const Operation& op);
  void call_runtime_function(const Operation& op);
  void call_device_runtime(const Operation& op);
  // Writes to the operand that receives the call's result, if there is one. nullptr: the function
  // has no result, and 0 is written.
  void write_call_result(const Operation& op, Value* value);
  void append_words(const ptx::Operand& argument, unsigned bits,
                    llvm::SmallVectorImpl<Value*>& words);

  llvm::Module& module_;
  const KernelSource& kernel_;
  const FunctionSource& source_;
  std::uint32_t ordinal_;
  Status status_;
  const ptx::Instruction* current_ = nullptr;

  llvm::Function* function_ = nullptr;
  llvm::Value* thread_ = nullptr;
  llvm::Value* block_ = nullptr;
  llvm::Value* carry_ = nullptr;
  llvm::Value* warp_words_ = nullptr;
  llvm::IRBuilder<> entry_;  // Place of allocas and context loads.
  std::vector<llvm::AllocaInst*> registers_;
  std::vector<llvm::Value*> variables_;  // Pointers. Null for shared variables.
  std::vector<std::uint32_t> parameter_offsets_;
  std::vector<llvm::BasicBlock*> labels_;
};

// The types that a call passes define the C signatures of RuntimeFunctions and helpers. All
// integers are unsigned there.

}  // namespace gpurun::emulated
