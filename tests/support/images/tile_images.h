// Tile images: images of Tile IR that several tests use.
#pragma once

#include <string>

#include "emulated/tile/operations.h"
#include "tests/support/images/tile_assembler.h"

namespace gpurun::test {

// add(a, b, sum: pointers to f32, count: i32): each block adds 128 elements by tiles of pointers.
// It neither reads nor writes beyond `count`.
inline std::string vector_add_image() {
  using namespace emulated::tile;
  TileAssembler code;
  const unsigned i32 = code.tile(kI32, {}), one = code.tile(kI32, {1});
  const unsigned many = code.tile(kI32, {128}), truth = code.tile(kI1, {128});
  const unsigned floats = code.tile(kF32, {128});
  const unsigned pointer = code.pointer_tile(kF32, {}), pointer_one = code.pointer_tile(kF32, {1});
  const unsigned pointers = code.pointer_tile(kF32, {128});
  const unsigned token = code.token();
  TileBody body(4);
  const auto spread = [&](unsigned value, unsigned as_one, unsigned as_many) {
    const unsigned reshaped = body.op({kReshape, as_one, value});
    return body.op({kBroadcast, as_many, reshaped});
  };
  const unsigned block = body.op({kGetTileBlockId, i32, i32, i32}, 3);
  const unsigned size = body.op({kConstant, i32, code.number<std::int32_t>(128)});
  const unsigned start = body.op({kMulI, i32, 0, block, size});
  const unsigned lane = body.op({kIota, many});
  const unsigned index = body.op({kAddI, many, 0, lane, spread(start, one, many)});
  const unsigned mask = body.op({kCmpI, truth, 2, 1, index, spread(3, one, many)});
  const unsigned zero = body.op({kConstant, floats, code.number(0.f)});
  unsigned loaded[2];
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned base = spread(i, pointer_one, pointers);
    const unsigned at = body.op({kOffset, pointers, base, index});
    // Flags: a mask (bit 2) and a padding (bit 3).
    loaded[i] = body.op({kLoadPtr, floats, token, 0xc, 0, at, mask, zero}, 2);
  }
  const unsigned sum = body.op({kAddF, floats, 0, 0, loaded[0], loaded[1]});
  const unsigned base = spread(2, pointer_one, pointers);
  const unsigned at = body.op({kOffset, pointers, base, index});
  body.op({kStorePtr, token, 4, 0, at, sum, mask});
  body.put({kReturn, 0, 0});
  code.kernel("add", {pointer, pointer, pointer, i32}, body);
  return code.image();
}

// product(a, b: pointers to f16, out: pointer to f32, m, n, k: i32): out = a * b, all row by row. A
// block makes 16 x 32 elements, 8 of k at a time. Its views give 0 outside the tensors.
inline std::string product_image() {
  using namespace emulated::tile;
  TileAssembler code;
  const unsigned i32 = code.tile(kI32, {});
  const unsigned half = code.pointer_tile(kF16, {}), single = code.pointer_tile(kF32, {});
  const unsigned a_tile = code.tile(kF16, {16, 8}), b_tile = code.tile(kF16, {8, 32});
  const unsigned sums = code.tile(kF32, {16, 32});
  const unsigned halves = code.tensor(kF16, {kAnySize, kAnySize}, {kAnySize, 1});
  const unsigned singles = code.tensor(kF32, {kAnySize, kAnySize}, {kAnySize, 1});
  const unsigned a_view = code.partition({16, 8}, halves, {0, 1}, 0);
  const unsigned b_view = code.partition({8, 32}, halves, {0, 1}, 0);
  const unsigned out_view = code.partition({16, 32}, singles, {0, 1}, -1);
  const unsigned token = code.token();
  TileBody body(6);
  const unsigned m = 3, n = 4, k = 5;
  const auto view = [&](unsigned tensor, unsigned partition, unsigned base, unsigned rows,
                        unsigned columns) {
    const unsigned made = body.op({kMakeTensorView, 1, tensor, base, 2, rows, columns, 1, columns});
    return body.op({kMakePartitionView, partition, made});
  };
  const unsigned a = view(halves, a_view, 0, m, k);
  const unsigned b = view(halves, b_view, 1, k, n);
  const unsigned out = view(singles, out_view, 2, m, n);
  const unsigned row = body.op({kGetTileBlockId, i32, i32, i32}, 3);
  const unsigned zero = body.op({kConstant, i32, code.number<std::int32_t>(0)});
  const unsigned one = body.op({kConstant, i32, code.number<std::int32_t>(1)});
  const unsigned eight = body.op({kConstant, i32, code.number<std::int32_t>(8)});
  const unsigned steps = body.op({kDivI, i32, 1, 3, k, eight});  // Rounded up.
  const unsigned none = body.op({kConstant, sums, code.number(0.f)});
  body.put({kFor, 1, sums, 4, zero, steps, one, none, 1, 1, 2, i32, sums, 4});
  const unsigned before = body.values;
  const unsigned step = body.enter(2);
  const unsigned left = body.op({kLoadView, 2, a_tile, token, 0, 0, a, 2, row, step}, 2);
  const unsigned right = body.op({kLoadView, 2, b_tile, token, 0, 0, b, 2, step, row + 1}, 2);
  const unsigned next = body.op({kMmaF, sums, left, right, step + 1});
  body.put({kContinue, 0, 1, next});
  body.values = before;
  const unsigned sum = body.enter(1);
  body.op({kStoreView, 1, token, 0, 0, sum, out, 2, row, row + 1});
  body.put({kReturn, 0, 0});
  code.kernel("product", {half, half, single, i32, i32, i32}, body);
  return code.image();
}

// steps(out: pointer to i32): out[block] is the number of steps that the rule "half of it, or three
// times it and one" needs from block + 1 to 1. It is -1 after 100 steps. The loop has two exits.
inline std::string control_image() {
  using namespace emulated::tile;
  TileAssembler code;
  const unsigned i32 = code.tile(kI32, {}), truth = code.tile(kI1, {});
  const unsigned pointer = code.pointer_tile(kI32, {});
  const unsigned token = code.token();
  TileBody body(1);
  const unsigned block = body.op({kGetTileBlockId, i32, i32, i32}, 3);
  const unsigned one = body.op({kConstant, i32, code.number<std::int32_t>(1)});
  const unsigned zero = body.op({kConstant, i32, code.number<std::int32_t>(0)});
  const unsigned first = body.op({kAddI, i32, 0, block, one});
  // The loop carries the number and the steps, and has eleven operations.
  body.put({kLoop, 1, i32, 2, first, zero, 1, 1, 2, i32, i32, 11});
  const unsigned outside = body.values;
  const unsigned value = body.enter(2), steps = value + 1;
  const unsigned done = body.op({kCmpI, truth, 0, 1, value, one});
  body.put({kIf, 0, done, 2, 1, 0, 1, kBreak, 0, 1, steps, 0});
  const unsigned hundred = body.op({kConstant, i32, code.number<std::int32_t>(100)});
  const unsigned late = body.op({kCmpI, truth, 5, 1, steps, hundred});
  body.put({kIf, 0, late, 2, 1, 0, 2});
  unsigned inside = body.values;
  const unsigned minus = body.op({kConstant, i32, code.number<std::int32_t>(-1)});
  body.put({kBreak, 0, 1, minus, 0});
  body.values = inside;
  const unsigned two = body.op({kConstant, i32, code.number<std::int32_t>(2)});
  const unsigned rest = body.op({kRemI, i32, 1, value, two});
  const unsigned odd = body.op({kCmpI, truth, 0, 1, rest, one});
  body.put({kIf, 1, i32, odd, 2, 1, 0, 4});
  inside = body.values;
  const unsigned three = body.op({kConstant, i32, code.number<std::int32_t>(3)});
  const unsigned tripled = body.op({kMulI, i32, 0, value, three});
  const unsigned up = body.op({kAddI, i32, 0, tripled, one});
  body.put({kYield, 0, 1, up, 1, 0, 2});
  body.values = inside;
  const unsigned down = body.op({kDivI, i32, 1, 1, value, two});
  body.put({kYield, 0, 1, down});
  body.values = inside;
  const unsigned next = body.enter(1);
  const unsigned more = body.op({kAddI, i32, 0, steps, one});
  body.put({kContinue, 0, 2, next, more});
  body.values = outside;
  const unsigned needed = body.enter(1);
  const unsigned at = body.op({kOffset, pointer, 0, block});
  body.op({kStorePtr, token, 0, 0, at, needed});
  body.put({kReturn, 0, 0});
  code.kernel("steps", {pointer}, body);
  return code.image();
}

}  // namespace gpurun::test
