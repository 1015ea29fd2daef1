// Tile IR's operations that move, join and reduce elements, its constants and variables.
#include "tests/support/images/tile_images.h"
#include "tests/system/emulated/tile_world.h"

namespace gpurun::test {
namespace {

using namespace emulated::tile;

class TileShapes : public TileWorld {
 protected:
  // A view of a whole tensor that a kernel's parameter points to, with known sizes.
  unsigned whole(TileBody& body, unsigned parameter, TileTag tag,
                 const std::vector<std::int32_t>& shape) {
    std::vector<std::int64_t> sizes(shape.begin(), shape.end()), strides(shape.size());
    std::vector<std::int32_t> map;
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) strides[i] = stride;
    for (std::size_t i = 0; i < shape.size(); ++i) map.push_back(static_cast<std::int32_t>(i));
    const unsigned tensor = code_of_.tensor(tag, sizes, strides);
    const unsigned made = body.op({kMakeTensorView, 1, tensor, parameter, 0, 0});
    return body.op({kMakePartitionView, code_of_.partition(shape, tensor, map, -1), made});
  }
  unsigned read(TileBody& body, unsigned parameter, TileTag tag,
                const std::vector<std::int32_t>& shape) {
    const unsigned view = whole(body, parameter, tag, shape);
    const unsigned tile = code_of_.tile(tag, {shape.begin(), shape.end()});
    const unsigned zero = zero_of(body);
    body.put({kLoadView, 2, tile, code_of_.token(), 0, 0, view, shape.size()});
    for (std::size_t i = 0; i < shape.size(); ++i) body.put({zero});
    return body.enter(2);
  }
  void write(TileBody& body, unsigned parameter, TileTag tag, unsigned value,
             const std::vector<std::int32_t>& shape) {
    const unsigned view = whole(body, parameter, tag, shape);
    const unsigned zero = zero_of(body);
    body.put({kStoreView, 1, code_of_.token(), 0, 0, value, view, shape.size()});
    for (std::size_t i = 0; i < shape.size(); ++i) body.put({zero});
    body.enter(1);
  }
  unsigned zero_of(TileBody& body) {
    return body.op({kConstant, code_of_.tile(kI32, {}), code_of_.number<std::int32_t>(0)});
  }
  // Runs `body`, which has one parameter of i32 in and one out.
  std::vector<int> result(TileBody& body, const std::vector<int>& in, std::size_t count) {
    body.put({kReturn, 0, 0});
    const unsigned pointer = code_of_.pointer_tile(kI32, {});
    code_of_.kernel("shapes", {pointer, pointer}, body);
    EXPECT_EQ(load(code_of_.image()), CUDA_SUCCESS);
    CUdeviceptr from = device(in), to = device(std::vector<int>(count, -7));
    void* arguments[] = {&from, &to};
    EXPECT_EQ(run("shapes", 1, 1, arguments), CUDA_SUCCESS);
    return host<int>(to, count);
  }
  static std::vector<int> numbers(int count) {
    std::vector<int> all(count);
    for (int i = 0; i < count; ++i) all[i] = i * i + 3;
    return all;
  }

  TileAssembler code_of_;
};

TEST_F(TileShapes, PermuteReordersDimensions) {
  TileBody body(2);
  const unsigned in = read(body, 0, kI32, {2, 4, 8});
  body.put({kPermute, code_of_.tile(kI32, {8, 2, 4}), 3});
  for (const std::int32_t dimension : {2, 0, 1}) put_fixed(&body.bytes, dimension);
  body.put({in});
  write(body, 1, kI32, body.enter(1), {8, 2, 4});
  const std::vector<int> from = numbers(64), got = result(body, from, 64);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(got[i], from[i / 4 % 2 * 32 + i % 4 * 8 + i / 8]) << i;
}

TEST_F(TileShapes, ReshapeAndBroadcastRepeatElements) {
  TileBody body(2);
  const unsigned in = read(body, 0, kI32, {8});
  const unsigned square = body.op({kReshape, code_of_.tile(kI32, {2, 1, 4}), in});
  const unsigned wide = body.op({kBroadcast, code_of_.tile(kI32, {2, 4, 4}), square});
  write(body, 1, kI32, wide, {2, 4, 4});
  const std::vector<int> from = numbers(8), got = result(body, from, 32);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(got[i], from[i / 16 * 4 + i % 4]) << i;
}

TEST_F(TileShapes, ExtractReadsConcatenatedTile) {
  TileBody body(2);
  const unsigned in = read(body, 0, kI32, {4, 4});
  const unsigned twice = body.op({kAddI, code_of_.tile(kI32, {4, 4}), 0, in, in});
  const unsigned both = body.op({kCat, code_of_.tile(kI32, {4, 8}), 1, in, twice});
  const unsigned one =
      body.op({kConstant, code_of_.tile(kI32, {}), code_of_.number<std::int32_t>(1)});
  const unsigned two =
      body.op({kConstant, code_of_.tile(kI32, {}), code_of_.number<std::int32_t>(2)});
  const unsigned part = body.op({kExtract, 1, code_of_.tile(kI32, {2, 2}), 3, both, one, two});
  write(body, 1, kI32, part, {2, 2});
  const std::vector<int> from = numbers(16), got = result(body, from, 4);
  EXPECT_EQ(got, (std::vector<int>{2 * from[8], 2 * from[9], 2 * from[12], 2 * from[13]}));
}

// The greatest of each column and its row: two tiles at once.
TEST_F(TileShapes, ReducesTwoTilesAtOnce) {
  TileBody body(2);
  const unsigned i32 = code_of_.tile(kI32, {}), truth = code_of_.tile(kI1, {});
  const unsigned in = read(body, 0, kI32, {8, 4});
  const unsigned rows = body.op({kIota, code_of_.tile(kI32, {8})});
  const unsigned tall = body.op({kReshape, code_of_.tile(kI32, {8, 1}), rows});
  const unsigned places = body.op({kBroadcast, code_of_.tile(kI32, {8, 4}), tall});
  const unsigned line = code_of_.tile(kI32, {4});
  // Identities: integers of 32 bits.
  const std::uint64_t word = code_of_.element(kI32);
  body.put({kReduce, 2, line, line, 0, 2, 1, word, 0, 1, word, 0, 2, in, places});
  body.put({1, 1, 4, i32, i32, i32, i32, 4});
  const unsigned outside = body.values;
  const unsigned mine = body.enter(4);
  const unsigned more = body.op({kCmpI, truth, 4, 1, mine, mine + 1});
  const unsigned best = body.op({kSelect, i32, more, mine, mine + 1});
  const unsigned place = body.op({kSelect, i32, more, mine + 2, mine + 3});
  body.put({kYield, 0, 2, best, place});
  body.values = outside;
  const unsigned greatest = body.enter(2);
  const unsigned both = body.op({kCat, code_of_.tile(kI32, {8}), 0, greatest, greatest + 1});
  write(body, 1, kI32, both, {8});
  std::vector<int> from(32);
  for (int i = 0; i < 32; ++i) from[i] = (i * 29 + 7) % 101;
  const std::vector<int> got = result(body, from, 8);
  for (int column = 0; column < 4; ++column) {
    int row = 0;
    for (int i = 1; i < 8; ++i) row = from[i * 4 + column] > from[row * 4 + column] ? i : row;
    EXPECT_EQ(got[column], from[row * 4 + column]);
    EXPECT_EQ(got[4 + column], row);
  }
}

// Rows first: elements inside the reduced dimension stay adjacent.
TEST_F(TileShapes, ReducesMiddleDimension) {
  TileBody body(2);
  const unsigned i32 = code_of_.tile(kI32, {});
  const unsigned in = read(body, 0, kI32, {2, 4, 2});
  const std::uint64_t word = code_of_.element(kI32);
  body.put({kReduce, 1, code_of_.tile(kI32, {2, 2}), 1, 1, 1, word, 0, 1, in});
  body.put({1, 1, 2, i32, i32, 2});
  const unsigned outside = body.values;
  const unsigned mine = body.enter(2);
  const unsigned sum = body.op({kAddI, i32, 0, mine, mine + 1});
  body.put({kYield, 0, 1, sum});
  body.values = outside;
  write(body, 1, kI32, body.enter(1), {2, 2});
  const std::vector<int> from = numbers(16), got = result(body, from, 4);
  for (int i = 0; i < 4; ++i) {
    int right = 0;
    for (int j = 0; j < 4; ++j) right += from[i / 2 * 8 + j * 2 + i % 2];
    EXPECT_EQ(got[i], right) << i;
  }
}

TEST_F(TileShapes, ConstantsAndGlobalsHoldTheirValues) {
  TileBody body(2);
  const unsigned i32 = code_of_.tile(kI32, {8}), pointer = code_of_.pointer_tile(kI32, {});
  std::string words;
  for (int i = 0; i < 8; ++i) put_fixed<std::int32_t>(&words, 10 - 3 * i);
  const unsigned many = body.op({kConstant, i32, code_of_.constant(words)});
  // Truth values are packed: 0, 2, 5, 7.
  const unsigned truths = body.op({kConstant, code_of_.tile(kI1, {8}), code_of_.constant("\xa5")});
  const unsigned none = body.op({kConstant, i32, code_of_.number<std::int32_t>(1000)});
  const unsigned chosen = body.op({kSelect, i32, truths, many, none});
  std::string first;
  for (int i = 0; i < 8; ++i) put_fixed<std::int32_t>(&first, 100 * i);
  code_of_.global("table", i32, code_of_.constant(first), 16);
  const unsigned table = body.op({kGetGlobal, pointer, code_of_.text("table")});
  const unsigned held = read(body, table, kI32, {8});
  const unsigned sum = body.op({kAddI, i32, 0, chosen, held});
  write(body, 1, kI32, sum, {8});
  const std::vector<int> got = result(body, {0}, 8);
  for (int i = 0; i < 8; ++i) {
    const bool truth = (0xa5 >> i & 1) != 0;
    EXPECT_EQ(got[i], (truth ? 10 - 3 * i : 1000) + 100 * i) << i;
  }
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  EXPECT_EQ(CALL(cuLibraryGetGlobal, &address, &bytes, code_, "table"), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 32u);
  EXPECT_EQ(host<int>(address, 8)[7], 700);
}

// Batches of matrices of bytes, with and without a sign.
TEST_F(TileShapes, MultipliesByteMatrices) {
  TileBody body(2);
  const unsigned in = read(body, 0, kI8, {2, 4, 16});
  body.put({kPermute, code_of_.tile(kI8, {2, 16, 4}), 3});
  for (const std::int32_t dimension : {0, 2, 1}) put_fixed(&body.bytes, dimension);
  body.put({in});
  const unsigned turned = body.enter(1);
  const unsigned sums = code_of_.tile(kI32, {2, 4, 4});
  const unsigned one = body.op({kConstant, sums, code_of_.number<std::int32_t>(1)});
  const unsigned product = body.op({kMmaI, sums, 1, 0, in, turned, one});
  write(body, 1, kI32, product, {2, 4, 4});
  body.put({kReturn, 0, 0});
  code_of_.kernel("bytes", {code_of_.pointer_tile(kI8, {}), code_of_.pointer_tile(kI32, {})}, body);
  ASSERT_EQ(load(code_of_.image()), CUDA_SUCCESS);
  std::vector<signed char> bytes(128);
  for (int i = 0; i < 128; ++i) bytes[i] = static_cast<signed char>(i * 37);
  CUdeviceptr from = device(bytes), to = device(std::vector<int>(32));
  void* arguments[] = {&from, &to};
  ASSERT_EQ(run("bytes", 1, 1, arguments), CUDA_SUCCESS);
  const std::vector<int> got = host<int>(to, 32);
  for (int i = 0; i < 32; ++i) {
    const int batch = i / 16, row = i / 4 % 4, column = i % 4;
    int right = 1;
    for (int k = 0; k < 16; ++k) {
      right += bytes[batch * 64 + row * 16 + k] *
               static_cast<unsigned char>(bytes[batch * 64 + column * 16 + k]);
    }
    EXPECT_EQ(got[i], right) << i;
  }
}

// Additions of later bytecode versions, with their flags.
TEST_F(TileShapes, LaterBytecodeVersionsAddUnsignedLoops) {
  for (const int minor : {1, 2, 3}) {
    TileAssembler code;
    const unsigned i32 = code.tile(kI32, {}), pointer = code.pointer_tile(kI32, {});
    TileBody body(1);
    const unsigned bound = body.op({kConstant, i32, code.number<std::uint32_t>(0xfffffff0)});
    const unsigned first = body.op({kConstant, i32, code.number<std::int32_t>(1)});
    const unsigned none = body.op({kConstant, i32, code.number<std::int32_t>(0)});
    const unsigned by = body.op({kConstant, i32, code.number<std::int32_t>(0x20000000)});
    body.put({kFor, 1, i32});
    if (minor >= 2) body.put({1});
    body.put({4, none, bound, by, none, 1, 1, 2, i32, i32, 2});
    const unsigned outside = body.values;
    const unsigned turn = body.enter(2);
    const unsigned more = body.op({kAddI, i32, 0, turn + 1, first});
    body.put({kContinue, 0, 1, more});
    body.values = outside;
    const unsigned turns = body.enter(1);
    body.put({kNegI, i32});
    if (minor >= 2) body.put({0});
    body.put({turns});
    const unsigned negative = body.enter(1);
    body.op({kStorePtr, code.token(), 0, 0, 0, negative});
    body.put({kReturn, 0, 0});
    code.kernel("turns", {pointer}, body);
    ASSERT_EQ(load(code.image(minor)), CUDA_SUCCESS) << minor;
    CUdeviceptr to = device(std::vector<int>{9});
    void* arguments[] = {&to};
    ASSERT_EQ(run("turns", 1, 1, arguments), CUDA_SUCCESS);
    EXPECT_EQ(host<int>(to, 1)[0], minor >= 2 ? -8 : 0) << minor;
  }
}

}  // namespace
}  // namespace gpurun::test
