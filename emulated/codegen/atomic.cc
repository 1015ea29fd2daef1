// Atomic read-modify-write (PTX ISA, sections 9.7.13.3 atom and red).
#include <functional>

#include "emulated/codegen/float_math.h"
#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;
using Rmw = llvm::AtomicRMWInst;

// Computes the new value of memory from its old value and the instruction's sources.
using Sources = llvm::ArrayRef<Value*>;
using Update = std::function<Value*(Value* old, Sources sources)>;

ptx::Space space_of(const Operation& op) {
  for (std::string_view modifier : op.instruction.modifiers) {
    const ptx::Space space = ptx::parse_space(modifier);
    if (space != ptx::Space::kNone) return space;
  }
  return ptx::Space::kNone;
}

llvm::AtomicOrdering ordering_of(const Operation& op) {
  if (op.has("acq_rel")) return llvm::AtomicOrdering::AcquireRelease;
  if (op.has("acquire")) return llvm::AtomicOrdering::Acquire;
  if (op.has("release")) return llvm::AtomicOrdering::Release;
  return llvm::AtomicOrdering::Monotonic;
}

// The places of the address and the sources. red has no destination.
struct Places {
  explicit Places(const Operation& op) : first(op.instruction.opcode == "atom" ? 1 : 0) {}
  std::size_t address() const { return first; }
  std::size_t value(std::size_t index = 0) const { return first + 1 + index; }
  std::size_t first;
};

// One host thread runs a block at a time (device_abi.h). So shared memory needs no locked
// instruction, as long as nothing comes between the load and the store. In a thread's own code
// nothing can. Where threads run together (emulated/regions), load, operation and store are
// one function. It is inlined after that has been decided.
Value* update_shared(FunctionBuilder& b, Value* address, unsigned bits, Sources sources,
                     const Update& update) {
  llvm::SmallVector<llvm::Type*, 4> types{b.pointer_type()};
  llvm::SmallVector<Value*, 4> arguments{address};
  for (Value* source : sources) types.push_back(source->getType());
  arguments.append(sources.begin(), sources.end());
  llvm::IntegerType* type = b.int_type(bits);
  auto* function = llvm::Function::Create(llvm::FunctionType::get(type, types, false),
                                          llvm::GlobalValue::InternalLinkage, kUpdateFunction,
                                          b.llvm_function()->getParent());
  function->addFnAttr(llvm::Attribute::AlwaysInline);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->addFnAttr(llvm::Attribute::NullPointerIsValid);
  const auto caller = b.ir.saveIP();
  b.ir.SetInsertPoint(llvm::BasicBlock::Create(b.context(), "update", function));
  llvm::SmallVector<Value*, 4> own;
  for (unsigned i = 1; i < types.size(); ++i) own.push_back(function->getArg(i));
  auto* old = b.ir.CreateAlignedLoad(type, function->getArg(0), llvm::Align(1));
  b.ir.CreateAlignedStore(update(old, own), function->getArg(0), llvm::Align(1));
  b.ir.CreateRet(old);
  b.ir.restoreIP(caller);
  return b.ir.CreateCall(function, arguments);
}

Value* update_by_exchange(FunctionBuilder& b, Value* address, unsigned bits,
                          llvm::AtomicOrdering ordering, Sources sources, const Update& update) {
  llvm::IntegerType* type = b.int_type(bits);
  auto* first = b.ir.CreateAlignedLoad(type, address, llvm::Align(bits / 8));
  first->setAtomic(llvm::AtomicOrdering::Monotonic);
  llvm::BasicBlock* before = b.ir.GetInsertBlock();
  llvm::BasicBlock* loop = b.new_block();
  llvm::BasicBlock* done = b.new_block();
  b.ir.CreateBr(loop);
  b.ir.SetInsertPoint(loop);
  llvm::PHINode* old = b.ir.CreatePHI(type, 2);
  old->addIncoming(first, before);
  Value* pair = b.ir.CreateAtomicCmpXchg(address, old, update(old, sources), llvm::Align(bits / 8),
                                         ordering, llvm::AtomicOrdering::Monotonic);
  old->addIncoming(b.ir.CreateExtractValue(pair, 0), b.ir.GetInsertBlock());
  b.ir.CreateCondBr(b.ir.CreateExtractValue(pair, 1), done, loop);
  b.ir.SetInsertPoint(done);
  return old;
}

void finish(FunctionBuilder& b, const Operation& op, Value* old) {
  if (op.instruction.opcode == "atom") b.write(b.operand(op, 0), old, op.type.is_signed());
}

// An operation of emulated/runtime/wide_atomics.h. LLVM would call a library that is not here.
Value* update_wide(FunctionBuilder& b, const char* function, Value* address, Sources sources) {
  llvm::SmallVector<Value*, 6> arguments{address};
  for (Value* source : sources) {
    arguments.push_back(b.ir.CreateTrunc(source, b.int_type(64)));
    arguments.push_back(b.ir.CreateTrunc(b.ir.CreateLShr(source, 64), b.int_type(64)));
  }
  Value* before = b.stack_slot(b.int_type(128));
  arguments.push_back(before);
  b.call_helper(function, llvm::Type::getVoidTy(b.context()), arguments, false);
  return b.ir.CreateAlignedLoad(b.int_type(128), before, llvm::Align(16));
}

Rmw::BinOp integer_operation(const Operation& op) {
  const bool is_signed = op.type.is_signed();
  if (op.has("add")) return Rmw::Add;
  if (op.has("and")) return Rmw::And;
  if (op.has("or")) return Rmw::Or;
  if (op.has("xor")) return Rmw::Xor;
  if (op.has("min")) return is_signed ? Rmw::Min : Rmw::UMin;
  if (op.has("max")) return is_signed ? Rmw::Max : Rmw::UMax;
  if (op.has("inc")) return Rmw::UIncWrap;
  if (op.has("dec")) return Rmw::UDecWrap;
  return Rmw::Xchg;
}

// The same operation on values, for shared memory.
Value* combine(FunctionBuilder& b, Rmw::BinOp operation, Value* old, Value* value) {
  Value* one = llvm::ConstantInt::get(old->getType(), 1);
  Value* zero = llvm::ConstantInt::get(old->getType(), 0);
  switch (operation) {
    case Rmw::Add:
      return b.ir.CreateAdd(old, value);
    case Rmw::And:
      return b.ir.CreateAnd(old, value);
    case Rmw::Or:
      return b.ir.CreateOr(old, value);
    case Rmw::Xor:
      return b.ir.CreateXor(old, value);
    case Rmw::Min:
      return b.binary(llvm::Intrinsic::smin, old, value);
    case Rmw::Max:
      return b.binary(llvm::Intrinsic::smax, old, value);
    case Rmw::UMin:
      return b.binary(llvm::Intrinsic::umin, old, value);
    case Rmw::UMax:
      return b.binary(llvm::Intrinsic::umax, old, value);
    case Rmw::UIncWrap:
      return b.ir.CreateSelect(b.ir.CreateICmpUGE(old, value), zero, b.ir.CreateAdd(old, one));
    case Rmw::UDecWrap:
      return b.ir.CreateSelect(
          b.ir.CreateOr(b.ir.CreateICmpEQ(old, zero), b.ir.CreateICmpUGT(old, value)), value,
          b.ir.CreateSub(old, one));
    default:
      return value;
  }
}

void emit_integer(FunctionBuilder& b, const Operation& op) {
  const Places at(op);
  b.expect_operands(op, at.value() + 1, at.value() + 1);
  const Rmw::BinOp operation = integer_operation(op);
  // An exchange may take a lock.
  if (operation == Rmw::Xchg) b.poll();
  const ptx::Space space = space_of(op);
  Value* address = b.address(b.operand(op, at.address()), space);
  Value* value = b.read(b.operand(op, at.value()), op.type.bits, op.type.is_signed());
  if (b.failed()) return;
  Value* old = space == ptx::Space::kShared
                   ? update_shared(b, address, op.type.bits, {value},
                                   [&](Value* before, Sources sources) {
                                     return combine(b, operation, before, sources[0]);
                                   })
               : op.type.bits == 128
                   ? update_wide(b, "gpurun_wide_exchange", address, {value})
                   : b.ir.CreateAtomicRMW(operation, address, value, llvm::Align(op.type.bytes()),
                                          ordering_of(op));
  finish(b, op, old);
}

Value* combine_floats(FunctionBuilder& b, const Operation& op, Value* x, Value* y) {
  if (op.has("add")) return rounded_binary(b, "add", scalar_format(op.type.format), x, y);
  return minimum_maximum(b, op.has("min"), false, x, y);
}

// Subnormals are kept. The ISA says that global f32 addition flushes them on current devices, and
// does not promise it.
Value* update_floats(FunctionBuilder& b, const Operation& op, Value* address,
                     const ptx::Operand& operand) {
  const auto operands = b.read_floats(operand, op.type);
  const Update update = [&](Value* old, Sources sources) {
    llvm::SmallVector<Value*, 2> results;
    const auto values = b.unpack_floats(old, op.type);
    for (std::size_t i = 0; i < values.size(); ++i) {
      results.push_back(combine_floats(b, op, values[i], sources[i]));
    }
    return b.pack_floats(results, op.type);
  };
  if (space_of(op) == ptx::Space::kShared) {
    return update_shared(b, address, op.type.bits, operands, update);
  }
  return update_by_exchange(b, address, op.type.bits, ordering_of(op), operands, update);
}

void emit_float(FunctionBuilder& b, const Operation& op) {
  const Places at(op);
  b.expect_operands(op, at.value() + 1, at.value() + 1);
  Value* address = b.address(b.operand(op, at.address()), space_of(op));
  if (b.failed()) return;
  finish(b, op, update_floats(b, op, address, b.operand(op, at.value())));
}

// Each element of a vector is updated separately (PTX ISA: no guarantee for the whole).
void emit_vector(FunctionBuilder& b, const Operation& op) {
  const Places at(op);
  b.expect_operands(op, at.value() + 1, at.value() + 1);
  Value* address = b.address(b.operand(op, at.address()), space_of(op));
  const std::size_t count = op.has("v8") ? 8 : op.has("v4") ? 4 : 2;
  const ptx::Operand& sources = b.operand(op, at.value());
  const bool returns = op.instruction.opcode == "atom";
  if (sources.parts.size() != count || (returns && b.operand(op, 0).parts.size() != count)) {
    return b.refuse("the vector has another length than the instruction");
  }
  llvm::SmallVector<Value*, 8> before;  // Written last: a destination may be a source.
  for (unsigned i = 0; i < count && !b.failed(); ++i) {
    Value* element = b.ir.CreateConstGEP1_64(b.int_type(8), address, i * op.type.bytes());
    before.push_back(update_floats(b, op, element, sources.parts[i]));
  }
  for (std::size_t i = 0; i < count && returns && !b.failed(); ++i) {
    b.write(b.operand(op, 0).parts[i], before[i]);
  }
}

void emit_cas(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 4, 4);
  b.poll();
  const ptx::Space space = space_of(op);
  Value* address = b.address(b.operand(op, 1), space);
  Value* expected = b.read(b.operand(op, 2), op.type.bits);
  Value* desired = b.read(b.operand(op, 3), op.type.bits);
  if (b.failed()) return;
  Value* old = nullptr;
  if (space == ptx::Space::kShared) {
    old = update_shared(
        b, address, op.type.bits, {expected, desired}, [&](Value* before, Sources sources) {
          return b.ir.CreateSelect(b.ir.CreateICmpEQ(before, sources[0]), sources[1], before);
        });
  } else if (op.type.bits == 128) {
    old = update_wide(b, "gpurun_wide_cas", address, {expected, desired});
  } else {
    const llvm::AtomicOrdering ordering = ordering_of(op);
    Value* pair =
        b.ir.CreateAtomicCmpXchg(address, expected, desired, llvm::Align(op.type.bytes()), ordering,
                                 llvm::AtomicCmpXchgInst::getStrongestFailureOrdering(ordering));
    old = b.ir.CreateExtractValue(pair, 0);
  }
  b.write(b.operand(op, 0), old);
}

#define GPURUN_ORDER "{,.relaxed,.acquire,.release,.acq_rel}{,.global,.shared}"
#define GPURUN_RED_ORDER "{,.relaxed,.release}{,.global,.shared}"

#define GPURUN_VECTORS                                                                    \
  ".{add,min,max}.noftz.{v2.f16,v4.f16,v8.f16,v2.bf16,v4.bf16,v8.bf16,v2.f16x2,v4.f16x2," \
  "v2.bf16x2,v4.bf16x2}"

constexpr VariantRow kAtomicRows[] = {
    {"atom" GPURUN_ORDER ".{and,or,xor,exch}.{b32,b64}", emit_integer},
    {"atom" GPURUN_ORDER ".exch.b128", emit_integer},
    {"atom" GPURUN_ORDER ".add.{u32,s32,u64}", emit_integer},
    {"atom" GPURUN_ORDER ".{min,max}.{u32,s32,u64,s64}", emit_integer},
    {"atom" GPURUN_ORDER ".{inc,dec}.u32", emit_integer},
    {"atom" GPURUN_ORDER ".cas.{b16,b32,b64,b128}", emit_cas},
    {"atom" GPURUN_ORDER ".add.{f32,f64}", emit_float},
    {"atom" GPURUN_ORDER ".add.noftz.{f16,f16x2,bf16,bf16x2}", emit_float},
    {"atom{,.relaxed,.acquire,.release,.acq_rel}{,.global}.add.{v2,v4}.f32", emit_vector},
    {"atom{,.relaxed,.acquire,.release,.acq_rel}{,.global}" GPURUN_VECTORS, emit_vector},
    {"red{,.relaxed,.release}{,.global}.add.{v2,v4}.f32", emit_vector},
    {"red{,.relaxed,.release}{,.global}" GPURUN_VECTORS, emit_vector},
    {"red" GPURUN_RED_ORDER ".{and,or,xor}.{b32,b64}", emit_integer},
    {"red" GPURUN_RED_ORDER ".add.{u32,s32,u64}", emit_integer},
    {"red" GPURUN_RED_ORDER ".{min,max}.{u32,s32,u64,s64}", emit_integer},
    {"red" GPURUN_RED_ORDER ".{inc,dec}.u32", emit_integer},
    {"red" GPURUN_RED_ORDER ".add.{f32,f64}", emit_float},
    {"red" GPURUN_RED_ORDER ".add.noftz.{f16,f16x2,bf16,bf16x2}", emit_float},
};

}  // namespace

std::span<const VariantRow> atomic_rows() { return kAtomicRows; }

}  // namespace gpurun::emulated
