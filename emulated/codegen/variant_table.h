// Variant table: the only table of instruction variants that the translator accepts: opcode with
// modifiers and types. Other variants are refused by name, and nothing is guessed. The golden tests
// walk the same table. A variant that no golden test executes fails them
// (tests/unit/emulated/codegen/coverage_check.cc).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "emulated/ptx/ast.h"

namespace gpurun::emulated {

class FunctionBuilder;
struct Operation;

using EmitFunction = void (*)(FunctionBuilder&, const Operation&);

// `pattern` stands for several names. "add{,.sat}.{u32,s32}" has alternatives in braces, which do
// not nest.
struct VariantRow {
  const char* pattern;
  EmitFunction emit;
};

// The instruction's name without the modifiers that change nothing on this device. These are cache
// and eviction hints, memory scopes (everything is as strong as .sys), .uni and .aligned.
std::string canonical_name(const ptx::Instruction& instruction);

// The key that all instructions of one variant share. It is the canonical name, with the modifiers
// of free order sorted.
std::string variant_key(const ptx::Instruction& instruction);
std::string variant_key(std::string_view canonical_name);

// nullptr when the variant is not accepted. Modifiers may come in any order, except types, spaces
// and layouts.
EmitFunction find_variant(std::string_view canonical_name);

// The device has no multicast object (CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED is 0), so no address
// is right for a multimem instruction. NCCL's kernels have such instructions and do not reach them.
void emit_multimem(FunctionBuilder& builder, const Operation& operation);

// Every accepted canonical name, sorted. Without multimem.
const std::vector<std::string>& accepted_variants();

// The rows of each group of instructions, one function per file.
std::span<const VariantRow> integer_rows();
std::span<const VariantRow> bit_rows();
std::span<const VariantRow> float_rows();
std::span<const VariantRow> math_rows();
std::span<const VariantRow> convert_rows();
std::span<const VariantRow> narrow_convert_rows();
std::span<const VariantRow> video_rows();
std::span<const VariantRow> space_rows();
std::span<const VariantRow> compare_rows();
std::span<const VariantRow> memory_rows();
std::span<const VariantRow> control_rows();
std::span<const VariantRow> barrier_rows();
std::span<const VariantRow> cluster_rows();
std::span<const VariantRow> warp_rows();
std::span<const VariantRow> atomic_rows();
std::span<const VariantRow> async_rows();
std::span<const VariantRow> matrix_rows();
std::span<const VariantRow> texture_rows();
std::span<const VariantRow> surface_rows();

}  // namespace gpurun::emulated
