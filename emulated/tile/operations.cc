// The table of operations.
#include "emulated/tile/operations.h"

#include <algorithm>
#include <iterator>

namespace gpurun::emulated::tile {
namespace {

struct Row {
  std::uint32_t code;
  OperationForm form;
};

// By number.
constexpr Row kRows[] = {
    {kAbsF, {"absf", 1, "", "o", 0, true}},
    {kAbsI, {"absi", 1, "", "o", 0, true}},
    {kAddF, {"addf", 1, "eu?", "oo", 0, true}},
    {kAddI, {"addi", 1, "e", "oo", 0, true}},
    {kAndI, {"andi", 1, "", "oo", 0, true}},
    {kAssert, {"assert", 0, "s", "o", 0, false}},
    {kAssume, {"assume", 1, "P", "o", 0, true}},
    {kAtomicCas, {"atomic_cas_tko", 2, "ee", "ooo??", 0, false}},
    {kAtomicRmw, {"atomic_rmw_tko", 2, "eee", "oo??", 0, false}},
    {kBitcast, {"bitcast", 1, "", "o", 0, true}},
    {kBreak, {"break", 0, "", "*", 0, false}},
    {kBroadcast, {"broadcast", 1, "", "o", 0, false}},
    {kCat, {"cat", 1, "I", "oo", 0, false}},
    {kCeil, {"ceil", 1, "", "o", 0, true}},
    {kCmpF, {"cmpf", 1, "ee", "oo", 0, true}},
    {kCmpI, {"cmpi", 1, "ee", "oo", 0, true}},
    {kConstant, {"constant", 1, "C", "", 0, false}},
    {kContinue, {"continue", 0, "", "*", 0, false}},
    {kCos, {"cos", 1, "", "o", 0, true}},
    {kDivF, {"divf", 1, "eu?", "oo", 0, true}},
    {kDivI, {"divi", 1, "ee", "oo", 0, true}},
    {kExp, {"exp", 1, "e3", "o", 0, true}},
    {kExp2, {"exp2", 1, "u?", "o", 0, true}},
    {kExtI, {"exti", 1, "e", "o", 0, true}},
    {kExtract, {"extract", 1, "", "o*", 0, false}},
    {kFloor, {"floor", 1, "", "o", 0, true}},
    {kFma, {"fma", 1, "eu?", "ooo", 0, true}},
    {kFor, {"for", -1, "u?2", "ooo*", 1, false}},
    {kFToF, {"ftof", 1, "e", "o", 0, true}},
    {kFToI, {"ftoi", 1, "ee", "o", 0, true}},
    {kGetGlobal, {"get_global", 1, "s", "", 0, false}},
    {kGetIndexSpaceShape, {"get_index_space_shape", -1, "", "o", 0, false}},
    {kGetNumTileBlocks, {"get_num_tile_blocks", 3, "", "", 0, false}},
    {kGetTensorShape, {"get_tensor_shape", -1, "", "o", 0, false}},
    {kGetTileBlockId, {"get_tile_block_id", 3, "", "", 0, false}},
    {kIf, {"if", -1, "", "o", 2, false}},
    {kIntToPtr, {"int_to_ptr", 1, "", "o", 0, true}},
    {kIota, {"iota", 1, "", "", 0, false}},
    {kIToF, {"itof", 1, "ee", "o", 0, true}},
    {kJoinTokens, {"join_tokens", 1, "", "*", 0, false}},
    {kLoadPtr, {"load_ptr_tko", 2, "ee?h?", "o???", 0, false}},
    {kLoadView, {"load_view_tko", 2, "ee?h?", "o*?", 0, false}},
    {kLog, {"log", 1, "", "o", 0, true}},
    {kLog2, {"log2", 1, "", "o", 0, true}},
    {kLoop, {"loop", -1, "", "*", 1, false}},
    {kMakePartitionView, {"make_partition_view", 1, "", "o", 0, false}},
    {kMakeTensorView, {"make_tensor_view", 1, "", "o**", 0, false}},
    {kMakeToken, {"make_token", 1, "", "", 0, false}},
    {kMaxF, {"maxf", 1, "u?u?", "oo", 0, true}},
    {kMaxI, {"maxi", 1, "e", "oo", 0, true}},
    {kMinF, {"minf", 1, "u?u?", "oo", 0, true}},
    {kMinI, {"mini", 1, "e", "oo", 0, true}},
    {kMmaF, {"mmaf", 1, "u?3", "ooo", 0, false}},
    {kMmaI, {"mmai", 1, "ee", "ooo", 0, false}},
    {kMulF, {"mulf", 1, "eu?", "oo", 0, true}},
    {kMulhiI, {"mulhii", 1, "", "oo", 0, true}},
    {kMulI, {"muli", 1, "e", "oo", 0, true}},
    {kNegF, {"negf", 1, "", "o", 0, true}},
    {kNegI, {"negi", 1, "e2", "o", 0, true}},
    {kOffset, {"offset", 1, "", "oo", 0, true}},
    {kOrI, {"ori", 1, "", "oo", 0, true}},
    {kPermute, {"permute", 1, "L", "o", 0, false}},
    {kPtrToInt, {"ptr_to_int", 1, "", "o", 0, true}},
    {kPtrToPtr, {"ptr_to_ptr", 1, "", "o", 0, true}},
    {kReduce, {"reduce", -1, "iA", "*", 1, false}},
    {kRemI, {"remi", 1, "e", "oo", 0, true}},
    {kReshape, {"reshape", 1, "", "o", 0, false}},
    {kReturn, {"return", 0, "", "*", 0, false}},
    {kRsqrt, {"rsqrt", 1, "u?", "o", 0, true}},
    {kSelect, {"select", 1, "", "ooo", 0, true}},
    {kShLI, {"shli", 1, "e", "oo", 0, true}},
    {kShRI, {"shri", 1, "e", "oo", 0, true}},
    {kSin, {"sin", 1, "", "o", 0, true}},
    {kSqrt, {"sqrt", 1, "eu?", "o", 0, true}},
    {kStorePtr, {"store_ptr_tko", 1, "ee?h?", "oo??", 0, false}},
    {kStoreView, {"store_view_tko", 1, "ee?h?", "oo*?", 0, false}},
    {kSubF, {"subf", 1, "eu?", "oo", 0, true}},
    {kSubI, {"subi", 1, "e", "oo", 0, true}},
    {kTanH, {"tanh", 1, "e2", "o", 0, true}},
    {kTruncI, {"trunci", 1, "e", "o", 0, true}},
    {kXOrI, {"xori", 1, "", "oo", 0, true}},
    {kYield, {"yield", 0, "", "*", 0, false}},
};

struct Name {
  std::uint32_t code;
  const char* name;
};

constexpr Name kNotTranslated[] = {
    {0x13, "cosh"},
    {0x54, "pow"},
    {0x55, "print_tko"},
    {0x59, "remf"},
    {0x5e, "scan"},
    {0x63, "sinh"},
    {0x69, "tan"},
    {0x6e, "atan2"},
    {0x6f, "pack"},
    {0x70, "unpack"},
    {0x71, "alloca"},
    {0x72, "mmaf_scaled"},
    {0x73, "make_gather_scatter_view"},
    {0x74, "make_strided_view"},
    {0x75, "atomic_red_view_tko"},
};

}  // namespace

const OperationForm* form_of(std::uint32_t code) {
  const Row* row = std::lower_bound(std::begin(kRows), std::end(kRows), code,
                                    [](const Row& a, std::uint32_t b) { return a.code < b; });
  return row != std::end(kRows) && row->code == code ? &row->form : nullptr;
}

const char* operation_name(std::uint32_t code) {
  if (const OperationForm* form = form_of(code)) return form->name;
  for (const Name& other : kNotTranslated) {
    if (other.code == code) return other.name;
  }
  return nullptr;
}

}  // namespace gpurun::emulated::tile
