// Warp functions: what the .sync warp instructions compute for a whole warp at once. They are pure
// functions of the lanes that are present (WarpFunction, device_abi.h). Compiled code refers to
// them by name, and the engine calls them when the last lane has arrived.
#pragma once

#include <span>

#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {

// `in` and `out` are arrays of 32-bit words per lane.
//   gpurun_warp_shfl_{up,down,bfly,idx}   in: a, b, c          out: d, p (0 or 1).
//   gpurun_warp_vote_{all,any,uni}        in: p                out: 0 or 1.
//   gpurun_warp_vote_ballot               in: p                out: the mask.
//   gpurun_warp_match_{any,all}           in: low, high half   out: d, p.
//   gpurun_warp_redux_{add,and,or,xor}, gpurun_warp_redux_{min,max}_{s32,u32}   in: a   out: d.
//   gpurun_warp_elect                     in: nothing          out: leader's lane, p.
struct WarpFunctionName {
  const char* name;
  WarpFunction function;
  WordsFunction words_function;
};
// A words_function is named as its function, with this suffix.
inline constexpr char kWordsSuffix[] = "_words";
std::span<const WarpFunctionName> warp_functions();

}  // namespace gpurun::emulated
