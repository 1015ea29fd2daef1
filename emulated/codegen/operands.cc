// Reading and writing operands: registers, constants, vectors, symbols and memory addresses.
#include <cstring>

#include "emulated/codegen/function_builder.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {

using ptx::FloatFormat;
using ptx::Operand;

llvm::AllocaInst* FunctionBuilder::register_slot(std::uint32_t index) {
  llvm::AllocaInst*& slot = registers_[index];
  if (slot == nullptr) slot = entry_.CreateAlloca(int_type(function().registers[index].bits));
  return slot;
}

llvm::Value* FunctionBuilder::read_register(std::uint32_t index) {
  llvm::AllocaInst* slot = register_slot(index);
  return ir.CreateLoad(slot->getAllocatedType(), slot);
}

void FunctionBuilder::write_register(std::uint32_t index, Value* value, bool sign_extend) {
  llvm::AllocaInst* slot = register_slot(index);
  llvm::IntegerType* type = int_type(function().registers[index].bits);
  const unsigned from = value->getType()->getIntegerBitWidth();
  if (type->getBitWidth() == 1 && from != 1) return refuse("a predicate cannot hold this result");
  if (from == 1 && type->getBitWidth() != 1) return refuse("a predicate register expected");
  value = sign_extend ? ir.CreateSExtOrTrunc(value, type) : ir.CreateZExtOrTrunc(value, type);
  ir.CreateStore(value, slot);
}

llvm::Value* FunctionBuilder::read_constant(const Operand& operand, unsigned bits) {
  if (operand.kind == Operand::Kind::kInteger) {
    const std::uint64_t mask = bits >= 64 ? ~0ull : (1ull << bits) - 1;
    if (bits > 64) {
      return llvm::ConstantInt::get(
          context(), llvm::APInt(bits, operand.bits, static_cast<std::int64_t>(operand.bits) < 0));
    }
    return constant(bits, operand.bits & mask);
  }
  if (operand.kind == Operand::Kind::kFloat32) {
    const auto pattern = static_cast<std::uint32_t>(operand.bits);
    if (bits == 32) return constant(32, pattern);
    float value;
    std::memcpy(&value, &pattern, sizeof value);
    const double wide = value;
    std::uint64_t wide_pattern;
    std::memcpy(&wide_pattern, &wide, sizeof wide);
    if (bits == 64) return constant(64, wide_pattern);
  }
  if (operand.kind == Operand::Kind::kFloat64) {
    if (bits == 64) return constant(64, operand.bits);
    double value;
    std::memcpy(&value, &operand.bits, sizeof value);
    const auto narrow = static_cast<float>(value);
    std::uint32_t pattern;
    std::memcpy(&pattern, &narrow, sizeof pattern);
    if (bits == 32) return constant(32, pattern);
  }
  refuse("a floating-point constant does not fit here");
  return constant(bits, 0);
}

llvm::Value* FunctionBuilder::read_vector(const Operand& operand, unsigned bits) {
  const auto count = static_cast<unsigned>(operand.parts.size());
  if (count == 0 || bits % count != 0 || bits / count < 8) {
    refuse("a vector operand does not fit");
    return constant(bits, 0);
  }
  const unsigned each = bits / count;
  Value* packed = constant(bits, 0);
  for (unsigned i = 0; i < count; ++i) {
    Value* part = ir.CreateZExt(read(operand.parts[i], each), int_type(bits));
    packed = ir.CreateOr(packed, ir.CreateShl(part, std::uint64_t{i} * each));
  }
  return packed;
}

llvm::Value* FunctionBuilder::read(const Operand& operand, unsigned bits, bool sign_extend) {
  if (failed()) return llvm::Constant::getNullValue(int_type(bits));
  Value* value = nullptr;
  switch (operand.kind) {
    case Operand::Kind::kRegister:
      value = read_register(operand.index);
      if (value->getType()->isIntegerTy(1) != (bits == 1)) refuse("predicate and number mixed");
      break;
    case Operand::Kind::kInteger:
    case Operand::Kind::kFloat32:
    case Operand::Kind::kFloat64:
      value = read_constant(operand, bits);
      break;
    case Operand::Kind::kSpecial:
      value = special_register(operand.name);
      break;
    case Operand::Kind::kVector:
      value = read_vector(operand, bits);
      break;
    case Operand::Kind::kVariable:
    case Operand::Kind::kSymbol:
      value = symbol_address(operand, bits);
      break;
    default:
      refuse("an operand of this kind cannot be read");
  }
  if (failed()) return llvm::Constant::getNullValue(int_type(bits));
  if (operand.negated) {
    if (bits != 1) refuse("only predicates can be negated");
    value = ir.CreateNot(value);
  }
  return sign_extend ? ir.CreateSExtOrTrunc(value, int_type(bits))
                     : ir.CreateZExtOrTrunc(value, int_type(bits));
}

void FunctionBuilder::write(const Operand& operand, Value* value, bool sign_extend) {
  if (failed() || operand.kind == Operand::Kind::kSink) return;
  if (!value->getType()->isIntegerTy()) {
    value = ir.CreateBitCast(
        value, int_type(static_cast<unsigned>(value->getType()->getPrimitiveSizeInBits())));
  }
  if (operand.kind == Operand::Kind::kRegister) {
    return write_register(operand.index, value, sign_extend);
  }
  if (operand.kind != Operand::Kind::kVector || operand.parts.empty()) {
    return refuse("a register expected as destination");
  }
  const unsigned bits = value->getType()->getIntegerBitWidth();
  const auto count = static_cast<unsigned>(operand.parts.size());
  if (bits % count != 0) return refuse("a vector destination does not fit");
  for (unsigned i = 0; i < count; ++i) {
    Value* part = ir.CreateLShr(value, std::uint64_t{i} * (bits / count));
    write(operand.parts[i], ir.CreateTrunc(part, int_type(bits / count)));
  }
}

void FunctionBuilder::write_second(const Operand& operand, Value* value) {
  if (operand.second != ptx::kNoIndex) write_register(operand.second, value);
}

// Floats ------------------------------------------------------------------------------------------

llvm::SmallVector<llvm::Value*, 2> FunctionBuilder::unpack_floats(Value* bits,
                                                                  const ptx::Type& type) {
  llvm::SmallVector<Value*, 2> out;
  const unsigned lanes = type.is_packed() ? 2 : 1;
  const unsigned each = type.bits / lanes;
  for (unsigned i = 0; i < lanes; ++i) {
    Value* part =
        lanes == 1 ? bits
                   : ir.CreateTrunc(ir.CreateLShr(bits, std::uint64_t{i} * each), int_type(each));
    switch (type.format) {
      case FloatFormat::kF16:
      case FloatFormat::kF16x2:
        part =
            ir.CreateFPExt(ir.CreateBitCast(part, llvm::Type::getHalfTy(context())), float_type());
        break;
      case FloatFormat::kBf16:
      case FloatFormat::kBf16x2:
        part = ir.CreateBitCast(ir.CreateShl(ir.CreateZExt(part, int_type(32)), 16), float_type());
        break;
      case FloatFormat::kF64:
        part = ir.CreateBitCast(part, double_type());
        break;
      default:
        part = ir.CreateBitCast(part, float_type());
    }
    out.push_back(part);
  }
  return out;
}

llvm::Value* FunctionBuilder::pack_floats(llvm::ArrayRef<Value*> values, const ptx::Type& type) {
  const auto lanes = static_cast<unsigned>(values.size());
  const unsigned each = type.bits / lanes;
  Value* packed = nullptr;
  for (unsigned i = 0; i < lanes; ++i) {
    Value* part = values[i];
    switch (type.format) {
      case FloatFormat::kF16:
      case FloatFormat::kF16x2:
        part = ir.CreateBitCast(ir.CreateFPTrunc(part, llvm::Type::getHalfTy(context())),
                                int_type(16));
        break;
      case FloatFormat::kBf16:
      case FloatFormat::kBf16x2:
        part =
            ir.CreateTrunc(ir.CreateLShr(ir.CreateBitCast(part, int_type(32)), 16), int_type(16));
        break;
      default:
        part = ir.CreateBitCast(part, int_type(each));
    }
    if (lanes == 1) return part;
    part = ir.CreateShl(ir.CreateZExt(part, int_type(type.bits)), std::uint64_t{i} * each);
    packed = packed == nullptr ? part : ir.CreateOr(packed, part);
  }
  return packed;
}

llvm::SmallVector<llvm::Value*, 2> FunctionBuilder::read_floats(const Operand& operand,
                                                                const ptx::Type& type) {
  if (operand.kind == Operand::Kind::kFloat32 && type.bits == 16) {
    refuse("a 32-bit constant where 16 bits are needed");
  }
  return unpack_floats(read(operand, type.bits), type);
}

void FunctionBuilder::write_floats(const Operand& operand, llvm::ArrayRef<Value*> values,
                                   const ptx::Type& type) {
  write(operand, pack_floats(values, type));
}

// Addresses ---------------------------------------------------------------------------------------

llvm::Value* FunctionBuilder::shared_pointer(Value* offset32) {
  Value* base = block_field(offsetof(BlockContext, shared), pointer_type());
  return ir.CreateGEP(int_type(8), base, ir.CreateZExt(offset32, int_type(64)));
}

llvm::Value* FunctionBuilder::variable_pointer(std::uint32_t index) { return variables_[index]; }

llvm::Value* FunctionBuilder::symbol_address(const Operand& operand, unsigned bits) {
  const auto as_integer = [&](Value* pointer) {
    Value* address = ir.CreatePtrToInt(pointer, int_type(64));
    return ir.CreateZExtOrTrunc(ir.CreateAdd(address, constant(64, operand.bits)), int_type(bits));
  };
  if (operand.kind == Operand::Kind::kVariable) {
    if (Value* pointer = variable_pointer(operand.index)) return as_integer(pointer);
    const auto found = kernel_.shared_offsets.find(&function().variables[operand.index]);
    if (found != kernel_.shared_offsets.end()) return constant(bits, found->second + operand.bits);
    refuse("shared variable without a place");
    return constant(bits, 0);
  }
  const Symbol symbol = source_.scope->find(operand.name);
  switch (symbol.kind) {
    case Symbol::Kind::kShared:
      return constant(bits, symbol.shared_offset + operand.bits);
    case Symbol::Kind::kDynamicShared: {
      Value* total = block_field(offsetof(BlockContext, total_shared_bytes), int_type(32));
      Value* dynamic = block_field(offsetof(BlockContext, dynamic_shared_bytes), int_type(32));
      Value* offset = ir.CreateAdd(ir.CreateSub(total, dynamic), constant(32, operand.bits));
      return ir.CreateZExtOrTrunc(offset, int_type(bits));
    }
    case Symbol::Kind::kMemory:
      return as_integer(module_.getOrInsertGlobal(symbol.link_name, int_type(8)));
    case Symbol::Kind::kFunction:
      return as_integer(module_.getOrInsertGlobal(symbol.descriptor_name, int_type(8)));
    default:
      refuse("unresolved symbol " + std::string(operand.name));
      return constant(bits, 0);
  }
}

llvm::Value* FunctionBuilder::memory_base(const Operand& memory, ptx::Space space) {
  const Operand& base = memory.parts[0];
  if (base.kind == Operand::Kind::kVariable && variable_pointer(base.index) != nullptr) {
    return ir.CreateConstInBoundsGEP1_64(int_type(8), variable_pointer(base.index),
                                         base.bits + memory.bits);
  }
  if (space == ptx::Space::kShared) {
    return shared_pointer(ir.CreateAdd(read(base, 32), constant(32, memory.bits & 0xffffffffu)));
  }
  if (base.kind == Operand::Kind::kSymbol) {
    const Symbol symbol = source_.scope->find(base.name);
    if (symbol.kind == Symbol::Kind::kMemory) {
      return ir.CreateConstGEP1_64(int_type(8),
                                   module_.getOrInsertGlobal(symbol.link_name, int_type(8)),
                                   base.bits + memory.bits);
    }
  }
  Value* pointer = ir.CreateIntToPtr(read(base, 64), pointer_type());
  return memory.bits == 0 ? pointer : ir.CreateConstGEP1_64(int_type(8), pointer, memory.bits);
}

bool FunctionBuilder::is_shared(std::string_view name) const {
  const Symbol::Kind kind = source_.scope->find(name).kind;
  return kind == Symbol::Kind::kShared || kind == Symbol::Kind::kDynamicShared;
}

llvm::Value* FunctionBuilder::address(const Operand& memory, ptx::Space space) {
  if (memory.kind != Operand::Kind::kMemory || memory.parts.empty()) {
    refuse("a memory operand expected");
    return llvm::ConstantPointerNull::get(pointer_type());
  }
  const Operand& base = memory.parts[0];
  // A generic access through a shared symbol would need its generic address. No known compiler
  // writes that.
  if (space == ptx::Space::kNone &&
      ((base.kind == Operand::Kind::kVariable && variable_pointer(base.index) == nullptr) ||
       (base.kind == Operand::Kind::kSymbol && is_shared(base.name)))) {
    space = ptx::Space::kShared;
  }
  return memory_base(memory, space);
}

}  // namespace gpurun::emulated
