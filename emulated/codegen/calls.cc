// Calls of functions by name and through pointers, and of the device run time (PTX ISA, section
// 9.7.12.5, and "PTX Writer's Guide to Interoperability").
#include <algorithm>

#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/runtime_calls.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {
namespace {

using Kind = ptx::Operand::Kind;

struct RuntimeCall {
  std::string_view name;
  const char* field;  // Of RuntimeFunctions.
  unsigned result_bits;
  unsigned argument_bits[5];
};

constexpr RuntimeCall kRuntimeCalls[] = {
    {"vprintf", "print", 32, {64, 64}},
    {"malloc", "allocate", 64, {64}},
    {"free", "release", 0, {64}},
    {"__assertfail", "assert_fail", 0, {64, 64, 32, 64, 64}},
    // What cudaCGGetIntrinsicHandle and similar functions call (PTX of libcudadevrt.a, CUDA 13).
    {"__cuda_syscall_CGS_get_intrinsic_handle", "group_handle", 64, {32}},
    {"__cuda_syscall_CGS_sync", "group_sync", 32, {64, 32}},
    {"__cuda_syscall_CGS_get_size", "group_size", 32, {64, 64, 64}},
    {"__cuda_syscall_CGS_get_rank", "group_rank", 32, {64, 64, 64}},
};

const RuntimeCall* find_runtime_call(std::string_view name) {
  for (const RuntimeCall& known : kRuntimeCalls) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

}  // namespace

bool is_runtime_call(std::string_view function) {
  return find_runtime_call(function) != nullptr || is_device_call(function);
}

llvm::Function* FunctionBuilder::declare_function(const Symbol& symbol) {
  if (llvm::Function* known = module_.getFunction(symbol.link_name)) return known;
  return llvm::Function::Create(function_type(symbol.function->signature),
                                llvm::GlobalValue::ExternalLinkage, symbol.link_name, &module_);
}

llvm::FunctionType* FunctionBuilder::function_type(const ptx::Signature& signature) {
  const std::vector<llvm::Type*> types(1 + signature.results.size() + signature.parameters.size(),
                                       pointer_type());
  return llvm::FunctionType::get(llvm::Type::getVoidTy(context()), types, false);
}

// Where the callee reads one parameter or writes one result. It is the .param variable itself, or a
// slot for a register or constant.
llvm::Value* FunctionBuilder::argument_pointer(const ptx::Operand& operand,
                                               const ptx::Variable& parameter) {
  if (operand.kind == Kind::kVariable && variable_pointer(operand.index) != nullptr) {
    if (function().variables[operand.index].byte_size() < parameter.byte_size()) {
      refuse("an argument is smaller than its parameter");
    }
    return variable_pointer(operand.index);
  }
  return stack_slot(
      llvm::ArrayType::get(int_type(8), std::max<std::uint64_t>(16, parameter.byte_size())));
}

// `callee` is a function of `signature`'s type.
void FunctionBuilder::call_with_signature(const Operation& op, const ptx::Signature& signature,
                                          const std::function<Value*()>& callee) {
  const auto& results = op.instruction.results;
  const auto& arguments = op.instruction.arguments;
  if (results.size() != signature.results.size() ||
      arguments.size() != signature.parameters.size()) {
    return refuse("another number of arguments than the function has");
  }
  llvm::SmallVector<Value*, 8> values{thread_};
  for (std::size_t i = 0; i < results.size(); ++i) {
    values.push_back(argument_pointer(results[i], signature.results[i]));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    values.push_back(argument_pointer(arguments[i], signature.parameters[i]));
    if (arguments[i].kind == Kind::kVariable) continue;
    const unsigned bits = std::max<unsigned>(8, signature.parameters[i].type.bits);
    ir.CreateAlignedStore(read(arguments[i], bits), values.back(), llvm::Align(1));
  }
  if (failed()) return;
  ir.CreateCall(function_type(signature), callee(), values);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].kind == Kind::kVariable) continue;
    const unsigned bits = std::max<unsigned>(8, signature.results[i].type.bits);
    write(results[i], ir.CreateAlignedLoad(int_type(bits), values[1 + i], llvm::Align(1)));
  }
}

void FunctionBuilder::call_function(const Operation& op) {
  const ptx::Operand& callee = operand(op, 0);
  if (callee.kind != Kind::kSymbol) return call_pointer(op);
  const Symbol symbol = source_.scope->find(callee.name);
  if (symbol.kind == Symbol::Kind::kRuntime) {
    return is_device_call(callee.name) ? call_device_runtime(op) : call_runtime_function(op);
  }
  if (symbol.kind != Symbol::Kind::kFunction || symbol.function == nullptr) {
    return refuse("no function " + std::string(callee.name) + " to call");
  }
  call_with_signature(op, symbol.function->signature, [&] { return declare_function(symbol); });
}

// The pointer is a FunctionDescriptor's address. Its code is compiled at the first call.
void FunctionBuilder::call_pointer(const Operation& op) {
  if (op.operand_count() < 2 || operand(op, 1).kind != Kind::kTable ||
      operand(op, 1).index >= function().prototypes.size()) {
    return refuse("a call through a pointer needs a prototype");
  }
  const ptx::Signature& signature = function().prototypes[operand(op, 1).index];
  call_with_signature(op, signature, [&]() -> Value* {
    Value* descriptor = ir.CreateIntToPtr(read(operand(op, 0), 64), pointer_type());
    auto* code = ir.CreateAlignedLoad(
        pointer_type(),
        ir.CreateConstGEP1_64(int_type(8), descriptor, offsetof(FunctionDescriptor, code)),
        llvm::Align(8));
    code->setAtomic(llvm::AtomicOrdering::Acquire);
    llvm::BasicBlock* known = ir.GetInsertBlock();
    llvm::BasicBlock* resolve = new_block();
    llvm::BasicBlock* next = new_block();
    ir.CreateCondBr(ir.CreateIsNull(code), resolve, next);
    ir.SetInsertPoint(resolve);
    Value* resolved = call_runtime("resolve_function", pointer_type(), {descriptor});
    ir.CreateBr(next);
    ir.SetInsertPoint(next);
    auto* either = ir.CreatePHI(pointer_type(), 2);
    either->addIncoming(code, known);
    either->addIncoming(resolved, resolve);
    return either;
  });
}

// As ptxas, which accepts declarations of these functions with or without a result.
void FunctionBuilder::call_runtime_function(const Operation& op) {
  const RuntimeCall& call = *find_runtime_call(operand(op, 0).name);
  const auto& arguments = op.instruction.arguments;
  const auto count = static_cast<std::size_t>(
      std::find(std::begin(call.argument_bits), std::end(call.argument_bits), 0u) -
      std::begin(call.argument_bits));
  if (arguments.size() != count || op.instruction.results.size() > 1) {
    return refuse("another number of arguments than the function has");
  }
  llvm::SmallVector<Value*, 5> values;
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned bits = call.argument_bits[i];
    if (arguments[i].kind != Kind::kVariable) {
      values.push_back(read(arguments[i], bits));
    } else if (variable_pointer(arguments[i].index) != nullptr &&
               function().variables[arguments[i].index].byte_size() * 8 >= bits) {
      values.push_back(ir.CreateAlignedLoad(int_type(bits), variable_pointer(arguments[i].index),
                                            llvm::Align(1)));
    } else {
      return refuse("an argument is smaller than its parameter");
    }
  }
  if (failed()) return;
  llvm::Type* type =
      call.result_bits == 0 ? llvm::Type::getVoidTy(context()) : int_type(call.result_bits);
  Value* result = call_runtime(call.field, type, values);
  write_call_result(op, call.result_bits == 0 ? nullptr : result);
}

void FunctionBuilder::write_call_result(const Operation& op, Value* value) {
  if (op.instruction.results.empty() || failed()) return;
  const ptx::Operand& result = op.instruction.results[0];
  if (result.kind != Kind::kVariable)
    return write(result, value != nullptr ? value : constant(8, 0));
  Value* place = variable_pointer(result.index);
  const std::uint64_t bytes = function().variables[result.index].byte_size();
  if (value == nullptr)
    value = constant(static_cast<unsigned>(8 * std::min<std::uint64_t>(8, bytes)), 0);
  if (place == nullptr || bytes * 8 < value->getType()->getIntegerBitWidth()) {
    return refuse("the result does not fit");
  }
  ir.CreateAlignedStore(value, place, llvm::Align(1));
}

}  // namespace gpurun::emulated
