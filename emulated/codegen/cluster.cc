// Clusters of blocks (PTX ISA, sections 9.7.9 mapa and getctarank, 9.7.13 barrier.cluster). For
// compiled code a cluster is one block, so it can only name its own shared memory.
#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/variant_table.h"

namespace gpurun::emulated {
namespace {

using llvm::Value;

void emit_arrive(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 0, 0);
  b.call_runtime("cluster_arrive", llvm::Type::getVoidTy(b.context()), {});
}

void emit_wait(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 0, 0);
  b.call_runtime("cluster_wait", llvm::Type::getVoidTy(b.context()), {});
}

// mapa d, a, rank: the address of the same variable in that block, which can only be this one.
void emit_mapa(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 3, 3);
  b.write(b.operand(op, 0), b.read(b.operand(op, 1), op.type.bits));
}

void emit_getctarank(FunctionBuilder& b, const Operation& op) {
  b.expect_operands(op, 2, 2);
  b.write(b.operand(op, 0), b.constant(32, 0));
}

constexpr VariantRow kClusterRows[] = {
    {"barrier.cluster.arrive{,.release,.relaxed}", emit_arrive},
    {"barrier.cluster.wait{,.acquire}", emit_wait},
    {"{mapa.shared.u32,mapa.u64}", emit_mapa},
    {"{getctarank.shared.u32,getctarank.u64}", emit_getctarank},
};

}  // namespace

std::span<const VariantRow> cluster_rows() { return kClusterRows; }

}  // namespace gpurun::emulated
