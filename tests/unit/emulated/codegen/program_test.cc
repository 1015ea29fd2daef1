// Translated programs: control flow, calls, memory and refusals of the translator.
#include <gtest/gtest.h>

#include "kernel_harness.h"

namespace gpurun::emulated {
namespace {

constexpr char kHead[] = ".version 8.7\n.target sm_90\n.address_size 64\n";

TEST(TranslatedKernel, ExecutesLoopsCallsAndBranchTables) {
  const std::string text = std::string(kHead) + R"(
.func (.param .b32 result) square(.param .b32 x) {
  .reg .b32 %r<2>;
  ld.param.u32 %r0, [x];
  mul.lo.u32 %r1, %r0, %r0;
  st.param.b32 [result], %r1;
  ret;
}
.entry k(.param .u64 in, .param .u64 out) {
  .reg .pred %p; .reg .b32 %i, %sum, %n, %t, %mode; .reg .b64 %in, %out;
  ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
  ld.global.v2.u32 {%n, %mode}, [%in];
  mov.u32 %i, 0; mov.u32 %sum, 0;
$loop:
  setp.ge.u32 %p, %i, %n;
  @%p bra $done;
  { .param .b32 argument; .param .b32 answer;
    st.param.b32 [argument], %i;
    call.uni (answer), square, (argument);
    ld.param.b32 %t, [answer]; }
  add.u32 %sum, %sum, %t;
  add.u32 %i, %i, 1;
  bra.uni $loop;
$done:
  $targets: .branchtargets $zero, $one;
  brx.idx %mode, $targets;
$zero:
  st.global.u32 [%out], %sum;
  exit;
$one:
  neg.s32 %sum, %sum;
  st.global.u32 [%out], %sum;
  ret;
})";
  const std::uint32_t plain[] = {10, 0};
  const std::uint32_t negated[] = {10, 1};
  std::uint32_t out = 0;
  Status status = run_kernel(text, plain, &out);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(out, 285u);
  status = run_kernel(text, negated, &out);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(out, 0u - 285u);
}

TEST(TranslatedKernel, HandlesLocalMemoryVectorsAndSignExtension) {
  const std::string text = std::string(kHead) + R"(
.entry k(.param .u64 in, .param .u64 out) {
  .local .align 16 .b8 frame[16]; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .b64 %in, %out, %f;
  ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
  ld.s8 %r0, [%in];
  mov.u64 %f, frame;
  cvta.local.u64 %f, %f;
  st.v2.b32 [%f+8], {%r0, 7};
  ld.local.v4.u16 {%h0, %h1, %h2, %h3}, [frame+8];
  mov.b32 %r1, {%h2, %h0};
  st.u32 [%out], %r0;
  st.u32 [%out+4], %r1;
  ret;
})";
  const std::int8_t in = -3;
  std::uint32_t out[2] = {0, 0};
  const Status status = run_kernel(text, &in, out);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(out[0], 0xfffffffdu);
  EXPECT_EQ(out[1], 0xfffd0007u);
}

TEST(TranslatedKernel, TrapEndsTheGridWithLaunchFailed) {
  const std::string text = std::string(kHead) + ".entry k() {\ntrap;\n}\n";
  const Status status = run_grid(text, {2, 64}, nullptr, nullptr);
  EXPECT_NE(status.message().find("719"), std::string::npos) << status.to_string();
  record_text(text);
}

TEST(TranslatedKernel, UnknownInstructionIsRefusedByName) {
  const std::string text =
      std::string(kHead) + ".entry k() {\n.reg .b32 %r<2>;\nadd.s9 %r0, %r1, %r1;\nret;\n}\n";
  const Status status = run_kernel(text, nullptr, nullptr);
  EXPECT_EQ(status.code(), Code::kRefused);
  EXPECT_NE(status.message().find("add.s9"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("line 6"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace gpurun::emulated
