// Float math: rounding, flushing and saturation, shared by the floating-point files.
#pragma once

#include "emulated/codegen/function_builder.h"

namespace gpurun::emulated {

// +0 or -0 for a subnormal of `format` when the instruction says .ftz, else the value.
llvm::Value* flush(FunctionBuilder& b, llvm::Value* value, ptx::FloatFormat format);
llvm::Value* flush_if(FunctionBuilder& b, const Operation& op, llvm::Value* value);
// To [0, 1]. NaN becomes +0.
llvm::Value* saturate(FunctionBuilder& b, llvm::Value* value);
// max(value, +0). NaN stays.
llvm::Value* clamp_negative(FunctionBuilder& b, llvm::Value* value);
// A float or double rounded to nearest even to the format, as the float (double) of that value.
llvm::Value* round_to(FunctionBuilder& b, llvm::Value* value, ptx::FloatFormat format);
// As round_to(), towards zero.
llvm::Value* truncate_to(FunctionBuilder& b, llvm::Value* value, ptx::FloatFormat format);
// Rounds to f16 or bf16 as `mode` says: "rz", "rm" or "rp".
llvm::Value* round_directed(FunctionBuilder& b, std::string_view mode, llvm::Value* value,
                            ptx::FloatFormat format);
// The format of one half: kF16x2 is kF16.
ptx::FloatFormat scalar_format(ptx::FloatFormat format);
// "rz", "rm" or "rp" when the instruction rounds that way, else nullptr.
const char* directed_rounding(const Operation& op);
// The minimum or maximum as PTX defines it. -0 < +0, and a NaN operand gives the other operand.
llvm::Value* minimum_maximum(FunctionBuilder& b, bool minimum, bool nan_wins, llvm::Value* x,
                             llvm::Value* y);
// Sum, difference, product in the format, rounded to nearest even.
llvm::Value* rounded_binary(FunctionBuilder& b, std::string_view opcode, ptx::FloatFormat format,
                            llvm::Value* x, llvm::Value* y);
llvm::Value* rounded_fma(FunctionBuilder& b, ptx::FloatFormat format, llvm::Value* x,
                         llvm::Value* y, llvm::Value* z);

}  // namespace gpurun::emulated
