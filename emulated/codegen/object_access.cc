// Handles and places of texture and surface instructions, and calls that may report errors.
#include "emulated/codegen/object_access.h"

namespace gpurun::emulated {

using llvm::Value;

ObjectAccess::ObjectAccess(FunctionBuilder& builder, const Operation& op, std::size_t index,
                           unsigned words)
    : b_(builder), operand_(builder.operand(op, index)) {
  const char* wrong = nullptr;
  if (operand_.kind != ptx::Operand::Kind::kMemory || operand_.parts.empty() ||
      operand_.bits != 0) {
    wrong = "an object in brackets expected";
  } else if (operand_.parts[0].kind != ptx::Operand::Kind::kRegister) {
    wrong = "texture and surface references are not supported, only objects";
  } else if (operand_.parts.size() > 2) {
    wrong = "samplers of their own are not supported";
  }
  if (wrong != nullptr) {
    b_.refuse(wrong);
    return;
  }
  handle_ = b_.read(operand_.parts[0], 64);
  if (words != 0) words_ = b_.stack_slot(llvm::ArrayType::get(b_.int_type(32), words));
}

void ObjectAccess::store(unsigned word, Value* value) {
  if (b_.failed()) return;
  b_.ir.CreateStore(value, b_.ir.CreateConstGEP1_64(b_.int_type(32), words_, word));
}

void ObjectAccess::store_place(unsigned first, unsigned dimensions, bool layered) {
  if (b_.failed()) return;
  if (operand_.parts.size() != 2) return b_.refuse("coordinates expected");
  const ptx::Operand& vector = operand_.parts[1];
  const unsigned skipped = layered ? 1 : 0;
  const unsigned count = skipped + dimensions;
  store(first, layered ? b_.read(vector_part(b_, vector, count, 0), 32) : b_.constant(32, 0));
  for (unsigned i = 0; i < dimensions; ++i) {
    store(first + 1 + i, b_.read(vector_part(b_, vector, count, skipped + i), 32));
  }
}

void ObjectAccess::call(const char* function, llvm::ArrayRef<Value*> arguments) {
  llvm::SmallVector<Value*, 4> all{handle_};
  all.append(arguments.begin(), arguments.end());
  Value* fault = b_.call_helper(function, b_.int_type(32), all, false);
  llvm::BasicBlock* wrong = b_.new_block();
  llvm::BasicBlock* next = b_.new_block();
  b_.ir.CreateCondBr(b_.ir.CreateICmpEQ(fault, b_.constant(32, 0)), next, wrong);
  b_.ir.SetInsertPoint(wrong);
  b_.call_runtime("object_fault", llvm::Type::getVoidTy(b_.context()), {fault, handle_});
  b_.end_unreachable();
  b_.ir.SetInsertPoint(next);
}

const ptx::Operand& vector_part(FunctionBuilder& b, const ptx::Operand& operand, unsigned count,
                                unsigned index) {
  if (operand.kind == ptx::Operand::Kind::kVector && operand.parts.size() >= count) {
    return operand.parts[index];
  }
  if (operand.kind != ptx::Operand::Kind::kVector && count == 1) return operand;
  b.refuse("the vector has too few parts");
  return operand;
}

void write_words(FunctionBuilder& b, const ptx::Operand& to, Value* from, unsigned count,
                 unsigned bits) {
  llvm::SmallVector<Value*, 4> values;  // All are read before any is written.
  for (unsigned i = 0; i < count; ++i) {
    values.push_back(b.ir.CreateAlignedLoad(
        b.int_type(bits), b.ir.CreateConstGEP1_64(b.int_type(bits), from, i), llvm::Align(1)));
  }
  if (to.kind == ptx::Operand::Kind::kVector && to.parts.size() != count) {
    return b.refuse("the vector has another length than the access");
  }
  for (unsigned i = 0; i < count && !b.failed(); ++i) {
    b.write(vector_part(b, to, count, i), values[i]);
  }
}

}  // namespace gpurun::emulated
