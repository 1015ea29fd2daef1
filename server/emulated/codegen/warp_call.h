// How translated code does something with many words that takes a whole warp: each lane leaves its
// inputs in its frame and calls the engine, which runs one function for all lanes (device_abi.h,
// WarpFunction).
#pragma once

#include "server/emulated/codegen/function_builder.h"

namespace gpurun::emulated {

// Calls the engine for `function` (a name of runtime/warp_functions.h or
// matrix_functions.h; null: only wait) with the
// 32-bit `inputs`, and gives the function's first results. Both are bounded by the frame's room.
inline constexpr unsigned kWarpInputWordsMax = 40;
inline constexpr unsigned kWarpResultWordsMax = 16;
llvm::SmallVector<llvm::Value*, 8> call_warp(FunctionBuilder& b, const Operation& op,
                                             llvm::Value* mask, const char* function,
                                             llvm::ArrayRef<llvm::Value*> inputs,
                                             unsigned result_words);

}  // namespace gpurun::emulated
