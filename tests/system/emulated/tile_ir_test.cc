// Tile IR on the emulated device, through its libcuda: kernels with most kinds of operations give
// the numbers that the host computes, whatever lies at the tensors' edges.
#include <cmath>

#include "tests/support/images/tile_images.h"
#include "tests/system/emulated/tile_world.h"

namespace gpurun::test {

const char* const kEmulatedCuda = EMULATED_CUDA;

namespace {

using namespace emulated::tile;

using TileIr = TileWorld;

TEST_F(TileIr, AddsVectorsThroughPointerTiles) {
  ASSERT_EQ(load(vector_add_image()), CUDA_SUCCESS);
  constexpr int kCount = 300;  // Two blocks of 128 and a half.
  std::vector<float> a(kCount), b(kCount), sum(kCount + 100, -1);
  for (int i = 0; i < kCount; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = 0.5f * static_cast<float>(i * i);
  }
  CUdeviceptr pa = device(a), pb = device(b), out = device(sum);
  int count = kCount;
  void* arguments[] = {&pa, &pb, &out, &count};
  ASSERT_EQ(run("add", 3, 1, arguments), CUDA_SUCCESS);
  sum = host<float>(out, sum.size());
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(sum[i], a[i] + b[i]) << i;
  for (std::size_t i = kCount; i < sum.size(); ++i) ASSERT_EQ(sum[i], -1) << i;
}

// In a block of several threads one thread computes and the others do not.
TEST_F(TileIr, MultiThreadBlockComputesOnce) {
  TileAssembler code;
  const unsigned i32 = code.tile(kI32, {}), pointer = code.pointer_tile(kI32, {});
  const unsigned token = code.token();
  TileBody body(1);
  const unsigned one = body.op({kConstant, i32, code.number<std::int32_t>(1)});
  body.op({kAtomicRmw, i32, token, 0, 1, 1, 3, 0, one}, 2);
  body.put({kReturn, 0, 0});
  code.kernel("count", {pointer}, body);
  ASSERT_EQ(load(code.image()), CUDA_SUCCESS);
  CUdeviceptr counter = device(std::vector<int>{5});
  void* arguments[] = {&counter};
  ASSERT_EQ(run("count", 7, 3, arguments, 64), CUDA_SUCCESS);
  EXPECT_EQ(host<int>(counter, 1)[0], 5 + 21);
}

// Halves of small integers, so that every sum is exact.
std::uint16_t half_of(int value) {
  if (value == 0) return 0;
  const unsigned sign = value < 0 ? 0x8000u : 0;
  unsigned size = static_cast<unsigned>(std::abs(value)), exponent = 25;
  while (size < 0x400) {
    size <<= 1;
    --exponent;
  }
  return static_cast<std::uint16_t>(sign | exponent << 10 | (size & 0x3ff));
}

TEST_F(TileIr, MultipliesMatricesOfUnevenSizes) {
  ASSERT_EQ(load(product_image()), CUDA_SUCCESS);
  for (const auto& [m, n, k] : {std::tuple{16, 32, 8}, {37, 45, 21}, {1, 1, 1}, {5, 33, 0}}) {
    std::vector<std::uint16_t> a(m * k + 1), b(k * n + 1);
    const auto value = [](int i) { return (i * 37 + 11) % 31 - 15; };
    for (int i = 0; i < m * k; ++i) a[i] = half_of(value(i));
    for (int i = 0; i < k * n; ++i) b[i] = half_of(value(i + 5));
    CUdeviceptr pa = device(a), pb = device(b);
    CUdeviceptr out = device(std::vector<float>(m * n + 50, 7));
    int sizes[] = {m, n, k};
    void* arguments[] = {&pa, &pb, &out, &sizes[0], &sizes[1], &sizes[2]};
    ASSERT_EQ(run("product", (m + 15) / 16, (n + 31) / 32, arguments), CUDA_SUCCESS);
    const std::vector<float> got = host<float>(out, m * n + 50);
    for (int i = 0; i < m * n; ++i) {
      int right = 0;
      for (int j = 0; j < k; ++j) right += value(i / n * k + j) * value(j * n + i % n + 5);
      ASSERT_EQ(got[i], static_cast<float>(right)) << m << " " << n << " " << k << ": " << i;
    }
    for (int i = m * n; i < m * n + 50; ++i) ASSERT_EQ(got[i], 7) << "behind the tensor";
  }
}

TEST_F(TileIr, LoopExitsFromSeveralPlaces) {
  ASSERT_EQ(load(control_image()), CUDA_SUCCESS);
  constexpr int kBlocks = 60;
  CUdeviceptr out = device(std::vector<int>(kBlocks));
  void* arguments[] = {&out};
  ASSERT_EQ(run("steps", kBlocks, 1, arguments), CUDA_SUCCESS);
  const std::vector<int> got = host<int>(out, kBlocks);
  bool late = false;
  for (int i = 0; i < kBlocks; ++i) {
    int right = 0;
    for (int value = i + 1; value != 1 && right >= 0;
         value = value % 2 != 0 ? 3 * value + 1 : value / 2) {
      right = right >= 100 ? -1 : right + 1;
    }
    EXPECT_EQ(got[i], right) << i;
    late |= right < 0;
  }
  EXPECT_TRUE(late);
}

// Two tiles change places in each turn, beside a sum and a counter of 64 bits.
TEST_F(TileIr, LoopSwapsCarriedTiles) {
  TileAssembler code;
  const unsigned i64 = code.tile(kI64, {}), tile = code.tile(kI32, {16});
  const unsigned one = code.pointer_tile(kI32, {1}), many = code.pointer_tile(kI32, {16});
  const unsigned pointer = code.pointer_tile(kI32, {}), token = code.token();
  TileBody body(2);
  const unsigned zero = body.op({kConstant, i64, code.number<std::int64_t>(0)});
  const unsigned step = body.op({kConstant, i64, code.number<std::int64_t>(1)});
  const unsigned iota = body.op({kIota, tile});
  const unsigned hundred = body.op({kConstant, tile, code.number<std::int32_t>(100)});
  const unsigned other = body.op({kAddI, tile, 0, iota, hundred});
  body.put({kFor, 3, tile, tile, i64, 6, zero, 1, step, iota, other, zero});
  body.put({1, 1, 4, i64, tile, tile, i64, 2});
  const unsigned outside = body.values;
  const unsigned counter = body.enter(4);
  const unsigned sum = body.op({kAddI, i64, 0, counter + 3, counter});
  body.put({kContinue, 0, 3, counter + 2, counter + 1, sum});
  body.values = outside;
  const unsigned first = body.enter(3);
  const unsigned low = body.op({kTruncI, code.tile(kI32, {}), 0, first + 2});
  const unsigned reshaped = body.op({kReshape, code.tile(kI32, {1}), low});
  const unsigned sums = body.op({kBroadcast, tile, reshaped});
  const unsigned result = body.op({kAddI, tile, 0, first, sums});
  const unsigned base = body.op({kReshape, one, 0});
  const unsigned bases = body.op({kBroadcast, many, base});
  const unsigned at = body.op({kOffset, many, bases, iota});
  body.op({kStorePtr, token, 0, 0, at, result});
  body.put({kReturn, 0, 0});
  code.kernel("swap", {pointer, i64}, body);
  ASSERT_EQ(load(code.image()), CUDA_SUCCESS);
  CUdeviceptr out = device(std::vector<int>(16));
  for (const long turns : {0L, 1L, 2L, 7L}) {
    long count = turns;
    void* arguments[] = {&out, &count};
    ASSERT_EQ(run("swap", 1, 1, arguments), CUDA_SUCCESS);
    const std::vector<int> got = host<int>(out, 16);
    for (int i = 0; i < 16; ++i) {
      EXPECT_EQ(got[i], i + (turns % 2 != 0 ? 100 : 0) + turns * (turns - 1) / 2) << turns;
    }
  }
}

// One element is a register of 32 bits. Bits beyond its type must not show later.
TEST_F(TileIr, NarrowScalarsWrap) {
  TileAssembler code;
  const unsigned i8 = code.tile(kI8, {}), i32 = code.tile(kI32, {});
  const unsigned pointer = code.pointer_tile(kI32, {}), token = code.token();
  TileBody body(3);
  const unsigned results[] = {body.op({kAddI, i8, 0, 1, 2}), body.op({kSubI, i8, 0, 2, 1}),
                              body.op({kMulI, i8, 0, 1, 2}), body.op({kNegI, i8, 2}),
                              body.op({kShLI, i8, 0, 1, 1}), body.op({kMaxI, i8, 1, 1, 2})};
  for (unsigned i = 0; i < std::size(results); ++i) {
    const unsigned wide = body.op({kExtI, i32, 0, results[i]});
    const unsigned place = body.op({kConstant, i32, code.number<std::uint32_t>(i)});
    const unsigned at = body.op({kOffset, pointer, 0, place});
    body.op({kStorePtr, token, 0, 0, at, wide});
  }
  body.put({kReturn, 0, 0});
  code.kernel("wrap", {pointer, i8, i8}, body);
  ASSERT_EQ(load(code.image()), CUDA_SUCCESS);
  CUdeviceptr out = device(std::vector<int>(6));
  unsigned char a = 203, b = 100;
  void* arguments[] = {&out, &a, &b};
  ASSERT_EQ(run("wrap", 1, 1, arguments), CUDA_SUCCESS);
  EXPECT_EQ(host<int>(out, 6),
            (std::vector<int>{(a + b) & 255, (b - a) & 255, (a * b) & 255, 156, 0, 100}));
}

// A turn of a loop does not overwrite outer values that later turns need.
TEST_F(TileIr, OuterTilesSurviveLoopIterations) {
  TileAssembler code;
  const unsigned i32 = code.tile(kI32, {}), tile = code.tile(kI32, {32});
  const unsigned pointer = code.pointer_tile(kI32, {}), token = code.token();
  TileBody body(1);
  const unsigned zero = body.op({kConstant, i32, code.number<std::int32_t>(0)});
  const unsigned one = body.op({kConstant, i32, code.number<std::int32_t>(1)});
  const unsigned turns = body.op({kConstant, i32, code.number<std::int32_t>(4)});
  const unsigned outer = body.op({kIota, tile});
  const unsigned start = body.op({kConstant, tile, code.number<std::int32_t>(0)});
  body.put({kFor, 1, tile, 4, zero, turns, one, start, 1, 1, 2, i32, tile, 4});
  const unsigned outside = body.values;
  const unsigned counter = body.enter(2);
  const unsigned square = body.op({kMulI, tile, 0, outer, outer});
  const unsigned cube = body.op({kMulI, tile, 0, square, square});
  const unsigned sum = body.op({kAddI, tile, 0, cube, counter + 1});
  body.put({kContinue, 0, 1, sum});
  body.values = outside;
  const unsigned result = body.enter(1);
  const unsigned tensor = code.tensor(kI32, {32}, {1});
  const unsigned made = body.op({kMakeTensorView, 1, tensor, 0, 0, 0});
  const unsigned view = body.op({kMakePartitionView, code.partition({32}, tensor, {0}, -1), made});
  body.op({kStoreView, 1, token, 0, 0, result, view, 1, zero});
  body.put({kReturn, 0, 0});
  code.kernel("turns", {pointer}, body);
  ASSERT_EQ(load(code.image()), CUDA_SUCCESS);
  CUdeviceptr out = device(std::vector<int>(32));
  void* arguments[] = {&out};
  ASSERT_EQ(run("turns", 1, 1, arguments), CUDA_SUCCESS);
  const std::vector<int> got = host<int>(out, 32);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(got[i], 4 * i * i * i * i) << i;
}

// A tile of 2 x 4 of a tensor of 3 x 5. Its view exchanges the dimensions. Outside the tensor reads
// give NaN, and writes change nothing.
TEST_F(TileIr, ViewsTransposeAndPad) {
  TileAssembler code;
  const unsigned i32 = code.tile(kI32, {}), pointer = code.pointer_tile(kF32, {});
  const unsigned tile = code.tile(kF32, {4, 2}), token = code.token();
  const unsigned tensor = code.tensor(kF32, {3, 5}, {5, 1});
  const unsigned view = code.partition({4, 2}, tensor, {1, 0}, 2);
  const unsigned whole = code.tensor(kF32, {4, 2}, {2, 1});
  const unsigned whole_view = code.partition({4, 2}, whole, {0, 1}, -1);
  TileBody body(2);
  const unsigned from = body.op({kMakeTensorView, 1, tensor, 0, 0, 0});
  const unsigned from_view = body.op({kMakePartitionView, view, from});
  const unsigned to = body.op({kMakeTensorView, 1, whole, 1, 0, 0});
  const unsigned to_view = body.op({kMakePartitionView, whole_view, to});
  const unsigned one = body.op({kConstant, i32, code.number<std::int32_t>(1)});
  const unsigned zero = body.op({kConstant, i32, code.number<std::int32_t>(0)});
  const unsigned got = body.op({kLoadView, 2, tile, token, 0, 0, from_view, 2, one, one}, 2);
  body.op({kStoreView, 1, token, 0, 0, got, to_view, 2, zero, zero});
  const unsigned doubled = body.op({kAddF, tile, 0, 0, got, got});
  body.op({kStoreView, 1, token, 0, 0, doubled, from_view, 2, one, one});
  body.put({kReturn, 0, 0});
  code.kernel("window", {pointer, pointer}, body);
  ASSERT_EQ(load(code.image()), CUDA_SUCCESS);
  std::vector<float> values(15 + 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  CUdeviceptr in = device(values), out = device(std::vector<float>(8));
  void* arguments[] = {&in, &out};
  ASSERT_EQ(run("window", 1, 1, arguments), CUDA_SUCCESS);
  const std::vector<float> read = host<float>(out, 8);
  std::vector<float> right = values;
  for (int i = 0; i < 8; ++i) {  // The tile's first dimension is the tensor's columns 4 to 7.
    const int row = 2 + i % 2, column = 4 + i / 2;
    if (row < 3 && column < 5) {
      EXPECT_EQ(read[i], values[row * 5 + column]) << i;
      right[row * 5 + column] *= 2;
    } else {
      EXPECT_TRUE(std::isnan(read[i])) << i;
    }
  }
  EXPECT_EQ(host<float>(in, values.size()), right);
}

}  // namespace
}  // namespace gpurun::test
