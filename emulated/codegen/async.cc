// Asynchronous copies, mbarriers and cache hints (PTX ISA, sections 9.7.9.25 cp.async, 9.7.13.15
// mbarrier). Copies are done at once, which is one of the orders that PTX allows. So there is never
// anything to wait for, except arrivals.
#include <string>

#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;
using Kind = ptx::Operand::Kind;

llvm::Type* nothing(FunctionBuilder& b) { return llvm::Type::getVoidTy(b.context()); }

bool is_predicate(FunctionBuilder& b, const ptx::Operand& operand) {
  return operand.kind == Kind::kRegister && b.function().registers[operand.index].is_predicate();
}

// How many bytes of the source exist. Operand 3 is that number, or a predicate that means none.
Value* source_bytes(FunctionBuilder& b, const Operation& op, std::uint64_t bytes) {
  const std::size_t optional = op.operand_count() - (op.has("L2::cache_hint") ? 1 : 0);
  if (optional < 4) return nullptr;
  const ptx::Operand& operand = b.operand(op, 3);
  if (is_predicate(b, operand)) {
    return b.ir.CreateSelect(b.read_predicate(operand), b.constant(64, 0), b.constant(64, bytes));
  }
  Value* count = b.ir.CreateZExt(b.read(operand, 32), b.int_type(64));
  return b.binary(llvm::Intrinsic::umin, count, b.constant(64, bytes));
}

void emit_copy(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 4);
  const ptx::Operand& size = b.operand(op, 2);
  const std::uint64_t bytes = size.kind == Kind::kInteger ? size.bits : 0;
  if (bytes != 4 && bytes != 8 && bytes != 16) return b.refuse("4, 8 or 16 bytes expected");
  Value* to = b.address(b.operand(op, 0), ptx::Space::kShared);
  Value* from = b.address(b.operand(op, 1), ptx::Space::kGlobal);
  Value* present = source_bytes(b, op, bytes);
  if (b.failed()) return;
  const llvm::Align one(1);
  llvm::BasicBlock* next = nullptr;
  if (present != nullptr) {  // Missing bytes become zero and are not read.
    llvm::BasicBlock* part = b.new_block();
    llvm::BasicBlock* all = b.new_block();
    next = b.new_block();
    b.ir.CreateCondBr(b.ir.CreateICmpEQ(present, b.constant(64, bytes)), all, part);
    b.ir.SetInsertPoint(part);
    b.ir.CreateMemSet(to, b.constant(8, 0), b.constant(64, bytes), one);
    b.ir.CreateMemCpy(to, one, from, one, present);
    b.ir.CreateBr(next);
    b.ir.SetInsertPoint(all);
  }
  llvm::Type* type = b.int_type(static_cast<unsigned>(bytes * 8));
  b.ir.CreateAlignedStore(b.ir.CreateAlignedLoad(type, from, one), to, one);
  if (next == nullptr) return;
  b.ir.CreateBr(next);
  b.ir.SetInsertPoint(next);
}

void emit_nothing(FunctionBuilder&, const Operation&) {}

// cp.async.bulk [to], [from], bytes, and for copies to shared memory the mbarrier that counts them.
void emit_bulk_copy(FunctionBuilder& b, const Operation& op) {
  const bool counted = op.has("mbarrier::complete_tx::bytes");
  b.expect_operands(op, counted ? 4 : 3, counted ? 4 : 3);
  ptx::Space spaces[2] = {ptx::Space::kNone, ptx::Space::kNone};
  std::size_t found = 0;
  for (std::string_view modifier : op.instruction.modifiers) {
    const ptx::Space space = ptx::parse_space(modifier);
    if (space != ptx::Space::kNone && found < 2) spaces[found++] = space;
  }
  Value* to = b.address(b.operand(op, 0), spaces[0]);
  Value* from = b.address(b.operand(op, 1), spaces[1]);
  Value* bytes = b.read(b.operand(op, 2), 32);
  if (b.failed()) return;
  b.ir.CreateMemCpy(to, llvm::Align(1), from, llvm::Align(1),
                    b.ir.CreateZExt(bytes, b.int_type(64)));
  if (!counted) return;
  Value* object = b.address(b.operand(op, 3), ptx::Space::kShared);
  b.call_helper("gpurun_mbarrier_complete_tx", nothing(b), {object, bytes}, false);
}

// mbarriers ---------------------------------------------------------------------------------------

ptx::Space mbarrier_space(const Operation& op) {
  for (std::string_view modifier : op.instruction.modifiers) {
    if (ptx::parse_space(modifier) == ptx::Space::kShared) return ptx::Space::kShared;
  }
  return ptx::Space::kNone;
}

Value* object_at(FunctionBuilder& b, const Operation& op, std::size_t index) {
  return b.address(b.operand(op, index), mbarrier_space(op));
}

void emit_init(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  b.call_helper("gpurun_mbarrier_init", nothing(b),
                {object_at(b, op, 0), b.read(b.operand(op, 1), 32)}, false);
}

void emit_inval(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 1, 1);
  b.ir.CreateAlignedStore(b.constant(64, 0), object_at(b, op, 0), llvm::Align(1));
}

void emit_tx(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  const char* name =
      op.has("expect_tx") ? "gpurun_mbarrier_expect_tx" : "gpurun_mbarrier_complete_tx";
  b.call_helper(name, nothing(b), {object_at(b, op, 0), b.read(b.operand(op, 1), 32)}, false);
}

void emit_arrive(FunctionBuilder& b, const Operation& op) {
  const bool expects = op.has("expect_tx");
  b.expect_operands(op, expects ? 3 : 2, 3);
  Value* last = op.operand_count() == 3 ? b.read(b.operand(op, 2), 32) : nullptr;
  Value* count = last != nullptr && !expects ? last : b.constant(32, 1);
  Value* bytes = last != nullptr && expects ? last : b.constant(32, 0);
  const char* name =
      op.has("arrive_drop") ? "gpurun_mbarrier_arrive_drop" : "gpurun_mbarrier_arrive";
  b.write(b.operand(op, 0),
          b.call_helper(name, b.int_type(64), {object_at(b, op, 1), count, bytes}, false));
}

// The copies are done. With .noinc that is one arrival. Without it, the arriving thread has raised
// the count.
void emit_copy_arrive(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 1, 1);
  Value* object = object_at(b, op, 0);
  if (!op.has("noinc")) return;
  b.call_helper("gpurun_mbarrier_arrive", b.int_type(64),
                {object, b.constant(32, 1), b.constant(32, 0)}, false);
}

void emit_test(FunctionBuilder& b, const Operation& op) {
  const bool parity = op.has("parity");
  b.expect_operands(op, 3, op.has("try_wait") ? 4 : 3);
  Value* object = object_at(b, op, 1);
  Value* which = b.read(b.operand(op, 2), parity ? 32 : 64);
  const char* name = parity ? "gpurun_mbarrier_test_parity" : "gpurun_mbarrier_test";
  const auto test = [&] {
    return b.ir.CreateICmpNE(b.call_helper(name, b.int_type(32), {object, which}, false),
                             b.constant(32, 0));
  };
  if (!op.has("try_wait")) {
    b.poll();  // A loop around this waits for others.
    return b.write(b.operand(op, 0), test());
  }
  // try_wait may wait. Other threads run once before it gives up.
  Value* result = b.stack_slot(b.int_type(1), 1);
  Value* first = test();
  b.ir.CreateStore(first, result);
  llvm::BasicBlock* wait = b.new_block();
  llvm::BasicBlock* next = b.new_block();
  b.ir.CreateCondBr(first, next, wait);
  b.ir.SetInsertPoint(wait);
  b.call_runtime("yield", nothing(b), {});
  b.ir.CreateStore(test(), result);
  b.ir.CreateBr(next);
  b.ir.SetInsertPoint(next);
  b.write(b.operand(op, 0), b.ir.CreateLoad(b.int_type(1), result));
}

void emit_pending_count(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  b.write(b.operand(op, 0), b.call_helper("gpurun_mbarrier_pending_count", b.int_type(32),
                                          {b.read(b.operand(op, 1), 64)}, true));
}

// Cache policies are numbers that this device ignores.
void emit_policy(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 1, 4);
  b.write(b.operand(op, 0), b.constant(64, 0));
}

constexpr VariantRow kAsyncRows[] = {
    {"cp.async.shared.global", emit_copy},
    {"cp.async.{commit_group,wait_group,wait_all}", emit_nothing},
    {"cp.async.mbarrier.arrive{,.noinc}{,.shared}.b64", emit_copy_arrive},
    {"cp.async.bulk.shared.{global,shared}.mbarrier::complete_tx::bytes", emit_bulk_copy},
    {"cp.async.bulk.global.shared.bulk_group", emit_bulk_copy},
    {"cp.async.bulk.{commit_group,wait_group,wait_group.read}", emit_nothing},
    {"cp.async.bulk.prefetch.L2.global", emit_nothing},
    {"mbarrier.init{,.shared}.b64", emit_init},
    {"mbarrier.inval{,.shared}.b64", emit_inval},
    {"mbarrier.{expect_tx,complete_tx}{,.relaxed}{,.shared}.b64", emit_tx},
    {"mbarrier.{arrive,arrive_drop}{,.expect_tx}{,.release,.relaxed}{,.shared}.b64", emit_arrive},
    {"mbarrier.{arrive,arrive_drop}.noComplete{,.release}{,.shared}.b64", emit_arrive},
    {"mbarrier.{test_wait,try_wait}{,.parity}{,.acquire,.relaxed}{,.shared}.b64", emit_test},
    {"mbarrier.pending_count.b64", emit_pending_count},
    {"createpolicy.{fractional,range,range.global}.b64", emit_policy},
    {"createpolicy.cvt.L2.b64", emit_policy},
    {"discard{,.global}.L2", emit_nothing},
    {"applypriority{,.global}", emit_nothing},
};

}  // namespace

std::span<const VariantRow> async_rows() { return kAsyncRows; }

}  // namespace gpurun::emulated
