// Warp calls: operations of a whole warp on many words. Each lane stores its inputs in its frame
// and calls the engine, which runs one function for all lanes (device_abi.h, WarpFunction).
#pragma once

#include "emulated/codegen/function_builder.h"

namespace gpurun::emulated {

// Calls the engine for `function`, a name of runtime/warp_functions.h or matrix_functions.h, and
// returns its first results. Null: only wait. `inputs` are 32-bit words. The frame's size bounds
// inputs and results.
inline constexpr unsigned kWarpInputWordsMax = 40;
inline constexpr unsigned kWarpResultWordsMax = 16;
llvm::SmallVector<llvm::Value*, 8> call_warp(FunctionBuilder& b, const Operation& op,
                                             llvm::Value* mask, const char* function,
                                             llvm::ArrayRef<llvm::Value*> inputs,
                                             unsigned result_words);

}  // namespace gpurun::emulated
