// PTX parser: names resolve through scopes, and the top level is found without parsing bodies.
// Malformed or cut text is an error and never a crash.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "emulated/ptx/index.h"

namespace gpurun::emulated::ptx {
namespace {

constexpr char kText[] = R"(
.version 8.7
.target sm_90, debug
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.global .align 8 .u64 table[2][2] = {{1}, {0xFF00(generic(callee)+4), -2}};
.func (.param .b32 out) callee(.param .b32 in);
.visible .entry kernel(.param .u64 p, .param .align 8 .b8 q[12]) .maxntid 64, 2 {
  .reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %rd<2>;
  .loc_intermediate 1 13 0
  ld.param.u64 %rd1, [p+8];
$L: { .reg .b32 %r1; mov.u32 %r1, %tid.x; @!%p1 bra $L; bra $M;
$M: shfl.sync.idx.b32 %r1|%p1, %r2, -1, 31, _; }
  ret;
}
.section .debug_info { .b8 1 }
.nv_intermediate_source_section { .code_block {
.ir_name: "tile ir"
.source_begin
entry @kernel(%a: tile<ptr<f32>>) hints=<default = {}> { print "an \"{\" of /* text" }
.source_end
} }
.global .u32 behind;
)";

TEST(PtxIndex, FindsFunctionsAndVariablesWithoutParsingBodies) {
  auto index = index_module(kText);
  ASSERT_TRUE(index.ok()) << index.status().to_string();
  EXPECT_EQ(index->version, 87u);
  EXPECT_EQ(index->target, 90u);
  ASSERT_EQ(index->functions.size(), 2u);
  EXPECT_TRUE(index->functions[0].declaration);
  EXPECT_TRUE(index->functions[1].entry);
  ASSERT_EQ(index->variables.size(), 3u);
  EXPECT_EQ(index->variables[2].name, "behind");
  EXPECT_TRUE(index->variables[0].unsized());
  const Variable& table = index->variables[1];
  EXPECT_EQ(table.byte_size(), 32u);
  ASSERT_EQ(table.initializers.size(), 3u);
  EXPECT_EQ(table.initializers[1].element, 2u);  // The first row is padded.
  EXPECT_EQ(table.initializers[1].mask, 0xff00u);
  EXPECT_EQ(table.initializers[1].bits, 4u);
  EXPECT_EQ(table.initializers[2].bits, ~std::uint64_t{1});
}

TEST(PtxParser, ResolvesRegistersLabelsAndPairsThroughScopes) {
  auto index = index_module(kText);
  ASSERT_TRUE(index.ok());
  auto function = parse_function(index->functions[1]);
  ASSERT_TRUE(function.ok()) << function.status().to_string();
  EXPECT_EQ(function->max_block[0], 64u);
  EXPECT_EQ(function->max_block[2], 1u);
  EXPECT_EQ(function->signature.parameters[1].byte_size(), 12u);
  ASSERT_EQ(function->body.size(), 8u);
  const Instruction& load = function->body[0].instruction;
  EXPECT_EQ(load.operands[1].bits, 8u);
  EXPECT_EQ(load.operands[1].parts[0].kind, Operand::Kind::kVariable);
  const Instruction& move = function->body[2].instruction;
  EXPECT_EQ(move.operands[1].name, "%tid.x");
  EXPECT_NE(move.operands[0].index, 3u) << "the inner %r1 hides the outer one";
  const Instruction& back = function->body[3].instruction;
  EXPECT_TRUE(back.guard_negated);
  EXPECT_EQ(back.operands[0].kind, Operand::Kind::kLabel);
  EXPECT_EQ(back.operands[0].index, function->body[1].label);
  const Instruction& shuffle = function->body[6].instruction;
  EXPECT_EQ(shuffle.operands[0].second, 1u);
  EXPECT_EQ(shuffle.operands[2].bits, ~std::uint64_t{0});
}

// The first error of the index, or of a function.
Status parsed(const std::string& text) {
  const auto index = index_module(text);
  if (!index.ok()) return index.status();
  for (const FunctionRange& range : index->functions) {
    const auto function = parse_function(range);
    if (!function.ok()) return function.status();
  }
  return {};
}

TEST(PtxParser, SurvivesTruncatedText) {
  const std::string text(kText);
  for (std::size_t length = 0; length < text.size(); ++length) {
    const std::string cut = text.substr(0, length);
    auto index = index_module(cut);
    if (!index.ok()) continue;
    for (const FunctionRange& range : index->functions) (void)parse_function(range);
  }
}

// Text that ends within a statement is an error, of the index or of the function. Text that ends
// behind a statement is a module with fewer of them.
TEST(PtxParser, RejectsTextThatIsCutWithinStatement) {
  const std::string text(kText);
  struct Statement {
    const char* start;
    const char* end;
  };
  for (const Statement& statement :
       {Statement{".extern .shared", "dynamic[];"}, Statement{".global .align", "-2}};"},
        Statement{".func (.param", ".param .b32 in);"}, Statement{".visible .entry", "ret;\n}"},
        Statement{".section", ".b8 1 }"},
        Statement{".nv_intermediate_source_section", ".source_end\n} }"}}) {
    SCOPED_TRACE(statement.start);
    const std::size_t start = text.find(statement.start);
    const std::size_t end = text.find(statement.end, start) + std::strlen(statement.end);
    ASSERT_LT(start, end);
    EXPECT_TRUE(parsed(text.substr(0, start)).ok());
    EXPECT_TRUE(parsed(text.substr(0, end)).ok());
    for (std::size_t length = start + 1; length < end; ++length) {
      const Status cut = parsed(text.substr(0, length));
      EXPECT_FALSE(cut.ok()) << text.substr(start, length - start);
      EXPECT_NE(cut.message(), "");
    }
  }
}

TEST(PtxParser, ErrorsNameTheLine) {
  const std::string text = ".version 8.0\n.target sm_75\n.visible .entry k() {\n  add.u32 [;\n}\n";
  auto index = index_module(text);
  ASSERT_TRUE(index.ok());
  auto function = parse_function(index->functions[0]);
  ASSERT_FALSE(function.ok());
  EXPECT_NE(function.status().message().find("line 4"), std::string::npos);
}

}  // namespace
}  // namespace gpurun::emulated::ptx
