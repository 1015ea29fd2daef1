// Operations: the operations of Tile IR by their numbers in the bytecode, and the form in which
// each is written there. Source: NVIDIA's repository cuda-tile
// (include/cuda_tile/Dialect/CudaTile/IR: BytecodeOpcodes.td, Ops.td). Version 13.1 of the
// bytecode, with the additions of 13.2 and 13.3.
#pragma once

#include <cstdint>

namespace gpurun::emulated::tile {

enum Code : std::uint32_t {
  kAbsF = 0x00,
  kAbsI = 0x01,
  kAddF = 0x02,
  kAddI = 0x03,
  kAndI = 0x04,
  kAssert = 0x05,
  kAssume = 0x06,
  kAtomicCas = 0x07,
  kAtomicRmw = 0x08,
  kBitcast = 0x09,
  kBreak = 0x0a,
  kBroadcast = 0x0b,
  kCat = 0x0c,
  kCeil = 0x0d,
  kCmpF = 0x0e,
  kCmpI = 0x0f,
  kConstant = 0x10,
  kContinue = 0x11,
  kCos = 0x12,
  kDivF = 0x14,
  kDivI = 0x15,
  kExp = 0x17,
  kExp2 = 0x18,
  kExtI = 0x25,
  kExtract = 0x26,
  kFloor = 0x27,
  kFma = 0x28,
  kFor = 0x29,
  kFToF = 0x2a,
  kFToI = 0x2b,
  kGetGlobal = 0x2c,
  kGetIndexSpaceShape = 0x2d,
  kGetNumTileBlocks = 0x2e,
  kGetTensorShape = 0x2f,
  kGetTileBlockId = 0x30,
  kIf = 0x32,
  kIntToPtr = 0x33,
  kIota = 0x3a,
  kIToF = 0x3b,
  kJoinTokens = 0x3c,
  kLoadPtr = 0x3d,
  kLoadView = 0x3e,
  kLog = 0x3f,
  kLog2 = 0x40,
  kLoop = 0x41,
  kMakePartitionView = 0x42,
  kMakeTensorView = 0x43,
  kMakeToken = 0x44,
  kMaxF = 0x45,
  kMaxI = 0x46,
  kMinF = 0x47,
  kMinI = 0x48,
  kMmaF = 0x49,
  kMmaI = 0x4a,
  kMulF = 0x4c,
  kMulhiI = 0x4d,
  kMulI = 0x4e,
  kNegF = 0x4f,
  kNegI = 0x50,
  kOffset = 0x51,
  kOrI = 0x52,
  kPermute = 0x53,
  kPtrToInt = 0x56,
  kPtrToPtr = 0x57,
  kReduce = 0x58,
  kRemI = 0x5a,
  kReshape = 0x5b,
  kReturn = 0x5c,
  kRsqrt = 0x5d,
  kSelect = 0x5f,
  kShLI = 0x60,
  kShRI = 0x61,
  kSin = 0x62,
  kSqrt = 0x64,
  kStorePtr = 0x65,
  kStoreView = 0x66,
  kSubF = 0x67,
  kSubI = 0x68,
  kTanH = 0x6a,
  kTruncI = 0x6b,
  kXOrI = 0x6c,
  kYield = 0x6d,
};

// The form of what follows an operation's number. It is written in this order.
// - The types of its results, after their number if results or operands may be many.
// - The flags of what is optional, if something is.
// - The attributes, the operands, the regions.
struct OperationForm {
  const char* name;
  // The number of results. -1: many.
  int results;
  // One letter for each attribute: e enumerator, u nothing except its flag, h hints for the
  // optimiser. L list of 32-bit numbers, C constant, P predicate, i 32-bit integer, I 64-bit
  // integer, s string, A list of scalars. A `?` after it: optional. A digit after it: present since
  // that version (13.2, 13.3), and 0 before.
  const char* attributes;
  // o one, ? one or none, * many. Forms with a ? or with two * have flags, and numbers for each. In
  // others `*` has the number of all operands, before the first operand.
  const char* operands;
  unsigned regions;
  // The result has the operands' shape. Each of its elements depends only on the operands' elements
  // at the same place.
  bool elementwise;
};

// nullptr: there is no such operation, or it is not translated.
const OperationForm* form_of(std::uint32_t code);
// The name, such as "print_tko", also of an operation that is not translated. nullptr: there is no
// such operation.
const char* operation_name(std::uint32_t code);

}  // namespace gpurun::emulated::tile
