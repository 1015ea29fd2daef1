// The one table of instruction variants that the translator accepts: opcode with modifiers and
// types. What is not in it is refused by name; nothing is guessed. The golden tests walk the same
// table, and a variant that none of them executes fails them (tests/unit/.../coverage_check.cc).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/emulated/ptx/ast.h"

namespace gpurun::emulated {

class FunctionBuilder;
struct Operation;

using EmitFunction = void (*)(FunctionBuilder&, const Operation&);

// `pattern` stands for several names: "add{,.sat}.{u32,s32}" has alternatives in braces, which do
// not nest.
struct VariantRow {
  const char* pattern;
  EmitFunction emit;
};

// The instruction's name without what changes nothing on this device: cache and eviction hints,
// memory scopes (everything is as strong as .sys), .uni, .aligned.
std::string canonical_name(const ptx::Instruction& instruction);

// What instructions of one variant have in common: their canonical name with the modifiers sorted
// that may come in any order.
std::string variant_key(const ptx::Instruction& instruction);
std::string variant_key(std::string_view canonical_name);

// nullptr when the variant is not accepted. Modifiers may come in any order, but types, spaces and
// layouts in theirs.
EmitFunction find_variant(std::string_view canonical_name);

// Every accepted canonical name, sorted.
const std::vector<std::string>& accepted_variants();

// The rows of each subject; one function a file.
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
