// Tile IR translation: malformed or untranslated images are refused with their place and name. No
// changed byte of an image causes a crash. Tiles share memory, because there is little.
#include "emulated/tile/translate.h"

#include <gtest/gtest.h>

#include "emulated/ptx/index.h"
#include "emulated/tile/ir.h"
#include "emulated/tile/plan.h"
#include "tests/support/images/tile_images.h"

namespace gpurun::emulated::tile {
namespace {

using test::TileAssembler;
using test::TileBody;

Result<std::string> translated(const std::string& image) {
  return translate(byte_view(image.data(), image.size()), 121);
}

// The error "218: kernel k, byte 0, print_tko: ..." of an image with kernel k. The kernel has these
// operations and one parameter, a pointer to f32.
std::string refusal(TileAssembler& code, const TileBody& body, int minor = 1) {
  code.kernel("k", {code.pointer_tile(test::kF32, {})}, body);
  const auto text = translated(code.image(minor));
  if (text.ok()) return "";
  const std::string& message = text.status().message();
  EXPECT_EQ(message.rfind("Tile IR image: ", 0), 0u) << message;
  return std::to_string(text.status().cuda_error()) + ": " + message.substr(15);
}

TEST(TileTranslate, RefusalNamesUntranslatedOperation) {
  for (const auto& [number, name] :
       {std::pair{0x55u, "print_tko"}, {0x5eu, "scan"}, {0x54u, "pow"}, {0x72u, "mmaf_scaled"}}) {
    TileAssembler code;
    TileBody body(1);
    const unsigned i32 = code.tile(test::kI32, {});
    body.op({kConstant, i32, code.number<std::int32_t>(0)});
    body.put({number, 1, 2, 3});
    EXPECT_EQ(refusal(code, body),
              "218: kernel k, byte 4: the operation " + std::string(name) + " is not translated");
  }
  TileAssembler code;
  TileBody body(1);
  const unsigned f32 = code.tile(test::kF32, {});
  const unsigned zero = body.op({kConstant, f32, code.number(0.f)});
  body.op({kAddF, f32, 0, 5, zero, zero});  // A rounding mode of quotients.
  body.put({kReturn, 0, 0});
  EXPECT_EQ(refusal(code, body), "218: kernel k, byte 3, addf: its rounding is not translated");
  const auto later = translated(TileAssembler().image(4));
  EXPECT_EQ(later.status().cuda_error(), 218);
  EXPECT_EQ(later.status().message(),
            "Tile IR image: bytecode 13.4 is not known (13.1 to 13.3 are)");
}

TEST(TileTranslate, RejectsUnknownOperationsAndValues) {
  TileAssembler code;
  TileBody body(1);
  body.put({300, 1});
  EXPECT_EQ(refusal(code, body), "200: kernel k, byte 2: there is no operation 300");
  TileAssembler other;
  TileBody missing(1);
  const unsigned i32 = other.tile(test::kI32, {});
  missing.op({kAddI, i32, 0, 0, 7});
  EXPECT_EQ(refusal(other, missing), "200: kernel k, byte 5: there is no value 7");
}

TEST(TileTranslate, RejectsMismatchedTypes) {
  {
    TileAssembler code;
    TileBody body(1);
    const unsigned i32 = code.tile(test::kI32, {}), many = code.tile(test::kI32, {4});
    const unsigned one = body.op({kConstant, i32, code.number<std::int32_t>(0)});
    const unsigned four = body.op({kConstant, many, code.number<std::int32_t>(0)});
    body.op({kAddI, i32, 0, one, four});
    body.put({kReturn, 0, 0});
    EXPECT_EQ(refusal(code, body),
              "200: kernel k, byte 6, addi: operands of another shape than the result");
  }
  {
    TileAssembler code;
    TileBody body(1);
    body.op({kAddF, code.pointer_tile(test::kF32, {}), 0, 0, 0, 0});
    body.put({kReturn, 0, 0});
    EXPECT_EQ(refusal(code, body), "200: kernel k, byte 0, addf: arithmetic with pointers");
  }
  {
    TileAssembler code;
    TileBody body(1);
    const unsigned i32 = code.tile(test::kI32, {});
    body.op({kLoadPtr, i32, code.token(), 0, 0, 0}, 2);  // From a pointer to f32.
    body.put({kReturn, 0, 0});
    EXPECT_EQ(refusal(code, body), "200: kernel k, byte 0, load_ptr_tko: operands of other types");
  }
  {
    TileAssembler code;
    TileBody body(1);
    const unsigned a = code.tile(test::kF16, {4, 8}), b = code.tile(test::kF16, {4, 2});
    const unsigned sums = code.tile(test::kF32, {4, 2});
    const unsigned left = body.op({kConstant, a, code.constant(std::string(2, '\0'))});
    const unsigned right = body.op({kConstant, b, code.constant(std::string(2, '\0'))});
    const unsigned sum = body.op({kConstant, sums, code.number(0.f)});
    body.op({kMmaF, sums, left, right, sum});
    body.put({kReturn, 0, 0});
    EXPECT_EQ(refusal(code, body), "200: kernel k, byte 9, mmaf: shapes that do not fit");
  }
}

TEST(TileTranslate, RejectsMalformedRegions) {
  {
    TileAssembler code;
    TileBody body(1);
    body.put({kContinue, 0, 0});
    EXPECT_EQ(refusal(code, body), "200: kernel k, byte 0, continue: not here");
  }
  {
    TileAssembler code;
    TileBody body(1);
    body.op({kMakeToken, code.token()});
    EXPECT_EQ(refusal(code, body),
              "200: kernel k, byte 0, make_token: a block that does not end with what leaves it");
  }
  {
    TileAssembler code;
    TileBody body(1);
    const unsigned i32 = code.tile(test::kI32, {});
    const unsigned zero = body.op({kConstant, i32, code.number<std::int32_t>(0)});
    // A loop that carries one value, with a block that has none.
    body.put({kLoop, 1, i32, 1, zero, 1, 1, 0, 1, kContinue, 0, 0});
    body.put({kReturn, 0, 0});
    EXPECT_EQ(refusal(code, body), "200: kernel k, byte 3, loop: its region does not fit");
  }
  {
    TileAssembler code;
    TileBody body(1);
    // Each inside the one before.
    for (unsigned i = 0; i < 40; ++i) body.put({kLoop, 0, 0, 1, 1, 0, 1});
    body.put({kBreak, 0, 0});
    EXPECT_EQ(refusal(code, body), "200: kernel k, byte 228: regions too deep in each other");
  }
}

TEST(TileTranslate, RejectsInvalidTileSizesAndNames) {
  {
    TileAssembler code;
    TileBody body(1);
    code.tile(test::kF32, {4096, 8192});
    body.put({kReturn, 0, 0});
    EXPECT_EQ(refusal(code, body), "200: type 1, byte 19: a tile of more than 16777216 elements");
  }
  {
    TileAssembler code;
    TileBody body(1);
    code.tile(test::kF32, {3});
    body.put({kReturn, 0, 0});
    EXPECT_EQ(refusal(code, body), "200: type 1, byte 11: a tile's size is no power of two");
  }
  {
    TileAssembler code;
    TileBody body(1);
    code.tile(test::kF32, std::vector<std::int64_t>(9, 1));
    body.put({kReturn, 0, 0});
    EXPECT_EQ(refusal(code, body), "200: type 1, byte 3: the number 9, over 8");
  }
  TileAssembler code;
  TileBody body(0);
  body.put({kReturn, 0, 0});
  code.kernel("not a name", {}, body);
  EXPECT_EQ(translated(code.image()).status().message(),
            "Tile IR image: functions, byte 2: an invalid name");
}

// Tiles of 128 KiB: `length` of them one after the other, or with `together` all at the same time.
std::string chain(unsigned length, bool together) {
  TileAssembler code;
  TileBody body(1);
  const unsigned tile = code.tile(test::kI32, {128, 256}), row = code.tile(test::kI32, {32768});
  std::vector<unsigned> values;
  for (unsigned i = 0; i < length; ++i) {
    const unsigned flat = body.op({kIota, row});
    const unsigned fresh = body.op({kReshape, tile, flat});
    values.push_back(i == 0 || together ? fresh : body.op({kAddI, tile, 0, fresh, values.back()}));
  }
  unsigned sum = values.back();
  for (const unsigned value : values) {
    if (together) sum = body.op({kAddI, tile, 0, sum, value});
  }
  body.put({kReturn, 0, 0});
  return refusal(code, body);
}

TEST(TileTranslate, TilesShareMemory) {
  EXPECT_EQ(chain(20, false), "");
  EXPECT_EQ(chain(3, true), "");
  EXPECT_EQ(chain(5, true), "218: kernel k: its tiles need over 512 KiB at a time");
}

// The needs of each of many nested loops are noted once, and the text does not grow without bound.
TEST(TileTranslate, BoundsNestingCostAndTextSize) {
  TileAssembler code;
  TileBody body(1);
  const unsigned tile = code.tile(test::kI32, {64});
  const unsigned value = body.op({kIota, tile});
  for (unsigned i = 0; i < 30; ++i) body.put({kLoop, 0, 0, 1, 1, 0, 2});
  unsigned inside = body.values;
  body.op({kAddI, tile, 0, value, value});
  body.values = inside;
  body.put({kBreak, 0, 0});
  for (unsigned i = 0; i < 29; ++i) body.put({kBreak, 0, 0});
  body.put({kReturn, 0, 0});
  EXPECT_EQ(refusal(code, body), "");

  TileAssembler large;
  TileBody constants(1);
  const unsigned words = large.tile(test::kI8, {1 << 16});
  std::string bytes(1 << 16, '\1');
  bytes[7] = 2;
  const unsigned constant = large.constant(bytes);
  for (unsigned i = 0; i < 1000; ++i) constants.op({kConstant, words, constant});
  constants.put({kReturn, 0, 0});
  const std::string why = refusal(large, constants);
  EXPECT_EQ(why.substr(0, 4), "218:");
  EXPECT_NE(why.find("constant: more than 64 MiB of PTX"), std::string::npos) << why;
}

std::vector<std::string> images() {
  return {test::vector_add_image(), test::product_image(), test::control_image()};
}

TEST(TileTranslate, EveryTruncationIsRefused) {
  for (const std::string& image : images()) {
    ASSERT_TRUE(translated(image).ok()) << translated(image).status().to_string();
    for (std::size_t length = 0; length < image.size(); ++length) {
      EXPECT_FALSE(translated(image.substr(0, length)).ok()) << length;
    }
  }
}

// Accepted images translate to PTX.
TEST(TileTranslate, SurvivesEveryChangedByte) {
  for (const std::string& image : images()) {
    for (std::size_t at = 12; at < image.size(); ++at) {
      for (const char with : {'\0', '\1', '\3', '\x7f', '\xff'}) {
        std::string bad = image;
        bad[at] = with;
        const auto text = translated(bad);
        if (!text.ok()) continue;
        const auto index = ptx::index_module(*text);
        ASSERT_TRUE(index.ok()) << at << ": " << index.status().to_string();
        for (const ptx::FunctionRange& range : index->functions) {
          ASSERT_TRUE(ptx::parse_function(range).ok()) << at;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gpurun::emulated::tile
