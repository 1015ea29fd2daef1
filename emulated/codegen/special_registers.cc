// Special registers (PTX ISA, section 10).
#include <array>

#include "emulated/codegen/function_builder.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {
namespace {

struct VectorRegister {
  std::string_view name;
  std::size_t offset;
  bool of_thread;
};

constexpr std::array kVectors = {
    VectorRegister{"%tid", offsetof(ThreadContext, thread_id), true},
    VectorRegister{"%ntid", offsetof(BlockContext, block_dim), false},
    VectorRegister{"%ctaid", offsetof(BlockContext, block_id), false},
    VectorRegister{"%nctaid", offsetof(BlockContext, grid_dim), false},
    // A cluster is one block.
    VectorRegister{"%clusterid", offsetof(BlockContext, block_id), false},
    VectorRegister{"%nclusterid", offsetof(BlockContext, grid_dim), false},
};

struct ScalarRegister {
  std::string_view name;
  std::size_t offset;
  unsigned bits;
};

constexpr std::array kScalars = {
    ScalarRegister{"%smid", offsetof(BlockContext, sm_id), 32},
    ScalarRegister{"%nsmid", offsetof(BlockContext, sm_count), 32},
    ScalarRegister{"%gridid", offsetof(BlockContext, grid_id), 64},
    ScalarRegister{"%dynamic_smem_size", offsetof(BlockContext, dynamic_shared_bytes), 32},
    ScalarRegister{"%total_smem_size", offsetof(BlockContext, total_shared_bytes), 32},
    ScalarRegister{"%aggr_smem_size", offsetof(BlockContext, total_shared_bytes), 32},
};

struct ConstantRegister {
  std::string_view name;
  std::uint32_t value;
};

constexpr std::array kConstants = {
    ConstantRegister{"%cluster_ctaid.x", 0},
    ConstantRegister{"%cluster_ctaid.y", 0},
    ConstantRegister{"%cluster_ctaid.z", 0},
    ConstantRegister{"%cluster_nctaid.x", 1},
    ConstantRegister{"%cluster_nctaid.y", 1},
    ConstantRegister{"%cluster_nctaid.z", 1},
    ConstantRegister{"%cluster_ctarank", 0},
    ConstantRegister{"%cluster_nctarank", 1},
    ConstantRegister{"%is_explicit_cluster", 0},
    ConstantRegister{"%warpsize", 32},
    ConstantRegister{"%reserved_smem_offset_begin", 0},
    ConstantRegister{"%reserved_smem_offset_end", 0},
    ConstantRegister{"%reserved_smem_offset_cap", 0},
    ConstantRegister{"%reserved_smem_offset_0", 0},
    ConstantRegister{"%reserved_smem_offset_1", 0},
};

}  // namespace

llvm::Value* FunctionBuilder::special_register(std::string_view name) {
  for (const VectorRegister& known : kVectors) {
    if (name.size() != known.name.size() + 2 || !name.starts_with(known.name)) continue;
    const char component = name.back();
    if (component < 'x' || component > 'z') return constant(32, 0);  // .w
    const std::size_t offset = known.offset + 4u * static_cast<unsigned>(component - 'x');
    return known.of_thread ? thread_field(offset, int_type(32)) : block_field(offset, int_type(32));
  }
  for (const ScalarRegister& known : kScalars) {
    if (name == known.name) return block_field(known.offset, int_type(known.bits));
  }
  for (const ConstantRegister& known : kConstants) {
    if (name == known.name) return constant(32, known.value);
  }
  if (name == "%laneid") return lane();
  if (name == "%warpid") return ir.CreateLShr(thread_linear(), 5);
  if (name == "%nwarpid") {
    Value* threads = constant(32, 1);
    for (std::size_t i = 0; i < 3; ++i) {
      threads = ir.CreateMul(threads,
                             block_field(offsetof(BlockContext, block_dim) + 4 * i, int_type(32)));
    }
    return ir.CreateLShr(ir.CreateAdd(threads, constant(32, 31)), 5);
  }
  if (name.starts_with("%lanemask_")) {
    Value* bit = ir.CreateShl(constant(32, 1), lane());
    Value* below = ir.CreateSub(bit, constant(32, 1));
    const std::string_view which = name.substr(10);
    if (which == "eq") return bit;
    if (which == "lt") return below;
    if (which == "le") return ir.CreateOr(bit, below);
    if (which == "ge") return ir.CreateNot(below);
    if (which == "gt") return ir.CreateNot(ir.CreateOr(bit, below));
  }
  if (name.starts_with("%clock") || name.starts_with("%globaltimer")) {
    Value* now = name.starts_with("%clock") ? intrinsic(llvm::Intrinsic::readcyclecounter, {}, {})
                                            : call_runtime("global_timer", int_type(64), {});
    if (name == "%clock64" || name == "%globaltimer") return now;
    if (name == "%clock" || name == "%globaltimer_lo") return ir.CreateTrunc(now, int_type(32));
    if (name == "%clock_hi" || name == "%globaltimer_hi") {
      return ir.CreateTrunc(ir.CreateLShr(now, 32), int_type(32));
    }
  }
  if (name == "%envreg1" || name == "%envreg2") {
    Value* workspace = block_field(offsetof(BlockContext, grid_workspace), int_type(64));
    if (name == "%envreg1") workspace = ir.CreateLShr(workspace, 32);
    return ir.CreateTrunc(workspace, int_type(32));
  }
  refuse("unknown special register " + std::string(name));
  return constant(32, 0);
}

}  // namespace gpurun::emulated
