// Calls: parameters and results, structs by value, recursion, function pointers, functions of other
// texts, functions of the device runtime, and exits inside called functions.
#include "module_harness.h"

namespace gpurun::emulated {
namespace {

class CallsTest : public ModuleTest {
 protected:
  // Loads the texts and runs kernel k(out) on `threads` threads.
  GridResult run_k(std::vector<std::string> texts, void* out, std::uint32_t threads = 1) {
    const Status status = load(std::move(texts));
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) return {};
    return run("k", {1, 1, 1}, {threads, 1, 1}, Parameters().add(out));
  }
};

TEST_F(CallsTest, PassesStructsByValueAndSeveralWidths) {
  struct Out {
    std::uint64_t sum;
    std::uint32_t narrow;
    float scaled;
  } out = {};
  const GridResult result = run_k({R"(
.func (.param .align 8 .b8 r[16]) combine(.param .align 8 .b8 s[24], .param .b32 n, .param .b64 w,
                                          .param .b32 f) {
  .reg .b64 %d<6>; .reg .b32 %r<3>; .reg .f32 %f<2>;
  ld.param.u64 %d0, [s];
  ld.param.u64 %d1, [s+8];
  ld.param.u32 %r0, [s+16];
  ld.param.u8 %r1, [s+20];
  ld.param.u64 %d2, [w];
  ld.param.u32 %r2, [n];
  ld.param.f32 %f0, [f];
  add.u64 %d3, %d0, %d1; add.u64 %d3, %d3, %d2;
  add.u32 %r0, %r0, %r1; add.u32 %r0, %r0, %r2;
  mul.f32 %f1, %f0, 0f40000000;
  st.param.b64 [r], %d3; st.param.b32 [r+8], %r0; st.param.f32 [r+12], %f1;
  ret;
}
.visible .entry k(.param .u64 out) {
  .reg .b64 %d<4>; .reg .b32 %r<3>; .reg .f32 %f<1>;
  ld.param.u64 %d0, [out];
  { .param .align 8 .b8 s[24]; .param .b32 n; .param .b64 w; .param .b32 f;
    .param .align 8 .b8 r[16];
    st.param.b64 [s], 1000000000000; st.param.v2.b32 [s+8], {5, 1}; st.param.b32 [s+16], 30;
    st.param.b8 [s+20], 200;
    st.param.b32 [n], -7; st.param.b64 [w], 17; st.param.f32 [f], 0f3FC00000;
    call.uni (r), combine, (s, n, w, f);
    ld.param.b64 %d1, [r]; ld.param.v2.b32 {%r0, %r1}, [r+8]; }
  st.global.u64 [%d0], %d1; st.global.v2.u32 [%d0+8], {%r0, %r1};
  ret;
})"},
                                  &out);
  EXPECT_EQ(result.code, kGridOk) << result.message;
  EXPECT_EQ(out.sum, 1000000000000u + 5u + (1ull << 32) + 17u);
  EXPECT_EQ(out.narrow, 30u + 200u - 7u);
  EXPECT_EQ(out.scaled, 3.0f);
}

constexpr char kFactorial[] = R"(
.visible .func (.param .b64 r) factorial(.param .b64 n) {
  .reg .b64 %d<4>; .reg .pred %p;
  ld.param.u64 %d0, [n];
  setp.gt.u64 %p, %d0, 1;
  @%p bra more;
  st.param.b64 [r], 1;
  ret;
more:
  sub.u64 %d1, %d0, 1;
  { .param .b64 a; .param .b64 b;
    st.param.b64 [a], %d1;
    call.uni (b), factorial, (a);
    ld.param.b64 %d2, [b]; }
  mul.lo.u64 %d3, %d2, %d0;
  st.param.b64 [r], %d3;
  ret;
}
)";

constexpr char kCallFactorial[] = R"(
.visible .entry k(.param .u64 out) {
  .reg .b64 %d<3>; .reg .b32 %r;
  ld.param.u64 %d0, [out];
  { .param .b64 a; .param .b64 b;
    st.param.b64 [a], 20;
    call.uni (b), factorial, (a);
    ld.param.b64 %d1, [b]; }
  st.global.u64 [%d0], %d1;
  ret;
}
)";

TEST_F(CallsTest, RecursionIsCorrectAndFlagged) {
  std::uint64_t out = 0;
  const GridResult result = run_k({std::string(kFactorial) + kCallFactorial}, &out);
  EXPECT_EQ(result.code, kGridOk) << result.message;
  EXPECT_EQ(out, 2432902008176640000u);
  const auto code = module_->compile("k");
  ASSERT_TRUE(code.ok());
  EXPECT_TRUE(code->recursive);
}

TEST_F(CallsTest, LinksFunctionsAndVariablesOfOtherTexts) {
  const std::string user = std::string(R"(
.extern .func (.param .b64 r) factorial(.param .b64 n);
.extern .global .align 8 .u64 shared_counter;
.global .align 8 .u64 hidden = 5;
)") + kCallFactorial + R"(
.visible .entry counts() {
  .reg .b64 %d<2>;
  ld.global.u64 %d0, [shared_counter]; ld.global.u64 %d1, [hidden];
  add.u64 %d0, %d0, %d1;
  st.global.u64 [shared_counter], %d0;
  ret;
})";
  const std::string provider = std::string(kFactorial) + R"(
.visible .global .align 8 .u64 shared_counter = 100;
.global .align 8 .u64 hidden = 1000;
.weak .func unused() { ret; }
)";
  std::uint64_t out = 0;
  GridResult result = run_k({user, provider, ".weak .func unused() { trap; }\n"}, &out);
  EXPECT_EQ(result.code, kGridOk) << result.message;
  EXPECT_EQ(out, 2432902008176640000u);
  result = run("counts", {1, 1, 1}, {1, 1, 1}, Parameters());
  EXPECT_EQ(result.code, kGridOk) << result.message;
  const auto counter = module_->global("shared_counter");
  ASSERT_TRUE(counter.ok());
  EXPECT_EQ(*reinterpret_cast<const std::uint64_t*>(counter->address), 105u);

  // Alone, the kernel that needs the other text is refused. The module still loads.
  ASSERT_TRUE(load({user}).ok());
  const auto kernel = module_->kernel("k");
  EXPECT_EQ(kernel.status().code(), Code::kRefused);
  EXPECT_NE(kernel.status().message().find("factorial"), std::string::npos);
}

// Function pointers in a table, chosen at run time, with shared memory on both sides.
constexpr char kPointers[] = R"(
.shared .align 4 .b8 unrelated[400];
.shared .align 4 .u32 cell;
.extern .shared .align 16 .b8 dynamic[];
.func (.param .b32 r) add_cell(.param .b32 x) {
  .reg .b32 %r<3>;
  ld.param.u32 %r0, [x];
  ld.shared.u32 %r1, [cell];
  add.u32 %r0, %r0, %r1;
  ld.shared.u32 %r2, [dynamic];
  add.u32 %r0, %r0, %r2;
  st.param.b32 [r], %r0;
  ret;
}
.func (.param .b32 r) triple(.param .b32 x) {
  .reg .b32 %r<1>;
  ld.param.u32 %r0, [x];
  mul.lo.u32 %r0, %r0, 3;
  st.param.b32 [r], %r0;
  ret;
}
.func (.param .b32 r) quits(.param .b32 x) { exit; }
.global .align 8 .u64 table[3] = {add_cell, triple, quits};
.visible .entry k(.param .u64 out) {
  .shared .align 4 .b8 mine[12];
  .reg .b64 %d<5>; .reg .b32 %r<4>; .reg .pred %p;
  ld.param.u64 %d0, [out];
  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p, %r0, 0;
  @%p bra ready;
  st.shared.u32 [cell], 1000;
  st.shared.u32 [mine], 55;
  st.shared.u32 [dynamic], 7;
ready:
  bar.sync 0;
  rem.u32 %r1, %r0, 3;
  mul.wide.u32 %d1, %r1, 8;
  mov.u64 %d2, table;
  add.u64 %d1, %d1, %d2;
  ld.global.u64 %d3, [%d1];
  { .param .b32 a; .param .b32 b;
    st.param.b32 [a], %r0;
    prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _);
    call (b), %d3, (a), prototype_0;
    ld.param.b32 %r2, [b]; }
  mul.wide.u32 %d4, %r0, 4;
  add.u64 %d4, %d4, %d0;
  st.global.u32 [%d4], %r2;
  ret;
})";

TEST_F(CallsTest, CallsFunctionsThroughPointers) {
  ASSERT_TRUE(load({kPointers}).ok());
  std::vector<std::uint32_t> out(96, 12345);
  const GridResult result = run("k", {1, 1, 1}, {96, 1, 1}, Parameters().add(out.data()), 64);
  EXPECT_EQ(result.code, kGridOk) << result.message;
  for (std::uint32_t i = 0; i < 96; ++i) {
    const std::uint32_t want[3] = {i + 1007, 3 * i, 12345};
    EXPECT_EQ(out[i], want[i % 3]) << i;
  }
  const auto code = module_->compile("k");
  ASSERT_TRUE(code.ok());
  EXPECT_TRUE(code->recursive);
  EXPECT_TRUE(code->needs_fibers);
  const auto attributes = module_->kernel("k");
  ASSERT_TRUE(attributes.ok());
  EXPECT_LT((*attributes)->static_shared_bytes, 400u);
}

TEST_F(CallsTest, UntranslatablePointerTargetEndsGrid) {
  std::uint32_t out = 0;
  const GridResult result = run_k({R"(
.func bad() { .reg .b32 %r; add.s9 %r, %r, %r; ret; }
.visible .entry k(.param .u64 out) {
  .reg .b64 %d;
  mov.u64 %d, bad;
  prototype_0 : .callprototype _ ();
  call %d, (), prototype_0;
  ret;
})"},
                                  &out);
  EXPECT_EQ(result.code, kGridLaunchFailed);
}

TEST_F(CallsTest, NullFunctionPointerReturnsIllegalAddress) {
  std::uint32_t out = 0;
  const GridResult result = run_k({R"(
.visible .entry k(.param .u64 out) {
  .reg .b64 %d;
  mov.u64 %d, 0;
  prototype_0 : .callprototype _ ();
  call %d, (), prototype_0;
  ret;
})"},
                                  &out);
  EXPECT_EQ(result.code, kGridIllegalAddress);
}

TEST_F(CallsTest, KernelsCallPrintfMallocAndFree) {
  std::string shown;
  context_.output().set_sink([&](DeviceOutput::Target, const std::string& text) { shown += text; });
  std::uint64_t out[3] = {0, 0, 0};
  const GridResult result = run_k({R"(
.extern .func (.param .b32 func_retval0) vprintf(.param .b64 p0, .param .b64 p1);
.extern .func (.param .b64 func_retval0) malloc(.param .b64 p0);
.extern .func free(.param .b64 p0);
.global .align 1 .b8 format[] = {105, 61, 37, 100, 32, 37, 46, 49, 102, 10, 0};
.visible .entry k(.param .u64 out) {
  .local .align 8 .b8 frame[16];
  .reg .b64 %d<6>; .reg .b32 %r<2>;
  ld.param.u64 %d0, [out];
  add.u64 %d1, %d0, 0;
  mov.u64 %d2, frame;
  cvta.local.u64 %d2, %d2;
  st.local.u32 [frame], 42;
  st.local.f64 [frame+8], 0d3FF8000000000000;
  mov.u64 %d3, format;
  cvta.global.u64 %d3, %d3;
  { .param .b64 a; .param .b64 b; .param .b32 r;
    st.param.b64 [a], %d3; st.param.b64 [b], %d2;
    call.uni (r), vprintf, (a, b);
    ld.param.b32 %r0, [r]; }
  { .param .b64 a; .param .b64 r;
    st.param.b64 [a], 24;
    call.uni (r), malloc, (a);
    ld.param.b64 %d4, [r]; }
  st.b64 [%d4+16], 99;
  ld.b64 %d5, [%d4+16];
  st.global.u64 [%d0], %d5;
  cvt.u64.u32 %d5, %r0;
  st.global.u64 [%d0+8], %d5;
  { .param .b64 a;
    st.param.b64 [a], %d4;
    call.uni free, (a); }
  ret;
})"},
                                  out);
  EXPECT_EQ(result.code, kGridOk) << result.message;
  context_.output().flush();
  EXPECT_EQ(shown, "i=42 1.5\n");
  EXPECT_EQ(out[0], 99u);
  EXPECT_EQ(out[1], 2u);
  EXPECT_EQ(context_.heap().bytes_used(), 0u);
  const auto code = module_->compile("k");
  ASSERT_TRUE(code.ok());
  EXPECT_FALSE(code->needs_fibers);
}

// A text's declaration and call of a function that the device runtime provides.
struct BuiltIn {
  const char* name;
  const char* result;  // The type of its result. nullptr: no result.
  std::vector<const char*> arguments;
};
std::string call_of(const BuiltIn& function, bool declared, bool taken) {
  const std::string result = function.result != nullptr ? function.result : "b32";
  std::string parameters;
  std::string variables;
  std::string arguments;
  for (std::size_t i = 0; i < function.arguments.size(); ++i) {
    const std::string comma = i == 0 ? "" : ", ";
    const std::string name = "a" + std::to_string(i);
    const std::string type = function.arguments[i];
    const std::string variable =
        type == "dim3" ? ".param .align 4 .b8 " + name + "[12]" : ".param ." + type + " " + name;
    parameters += comma + variable;
    variables += variable + "; ";
    arguments += comma + name;
  }
  return std::string(".extern .func ") + (declared ? "(.param ." + result + " r) " : "") +
         function.name + "(" + parameters + ");\n.visible .entry k(.param .u64 out) { { " +
         variables + ".param ." + result + " q; call.uni " + (taken ? "(q), " : "") +
         function.name + ", (" + arguments + "); } ret; }";
}

TEST_F(CallsTest, BuiltInFunctionsCompileWithAndWithoutResult) {
  const std::vector<BuiltIn> functions = {
      {"vprintf", "b32", {"b64", "b64"}},
      {"malloc", "b64", {"b64"}},
      {"free", nullptr, {"b64"}},
      {"__assertfail", nullptr, {"b64", "b64", "b32", "b64", "b64"}},
      {"__cuda_syscall_CGS_get_intrinsic_handle", "b64", {"b32"}},
      {"__cuda_syscall_CGS_sync", "b32", {"b64", "b32"}},
      {"__cuda_syscall_CGS_get_size", "b32", {"b64", "b64", "b64"}},
      {"__cuda_syscall_CGS_get_rank", "b32", {"b64", "b64", "b64"}},
      {"cnpSetLastError", "b32", {"b32"}},
      {"cnpGetLastError", "b32", {}},
      {"cnpGetParameterBuffer", "b64", {"b32", "b32"}},
      {"__cuda_syscall_cnpv2GetParameterBufferV2", "b64", {"b64", "dim3", "dim3", "b32"}},
      {"__cuda_syscall_cnpv2LaunchDevice", "b32", {"b64", "b64", "b64", "b64", "b32", "b64"}},
      {"__cuda_syscall_cnpv2LaunchDeviceV2", "b32", {"b64", "b64"}},
      {"cnpStreamCreate", "b32", {"b64", "b32"}},
      {"cnpStreamDestroy", "b32", {"b64"}},
      {"cnpStreamWaitEvent", "b32", {"b64", "b64", "b32"}},
      {"cnpEventCreate", "b32", {"b64", "b32"}},
      {"cnpEventRecord", "b32", {"b64", "b64"}},
      {"cnpEventDestroy", "b32", {"b64"}},
      {"cnpFuncGetAttribute", "b32", {"b64", "b32", "b64"}},
      {"cnpDeviceGetAttribute", "b32", {"b64", "b32", "b32"}},
      {"cnpGetDeviceCount", "b32", {"b64"}},
      {"cnpGetDevice", "b32", {"b64"}},
      {"cnpGetLimit", "b32", {"b64", "b32"}},
      {"cnpGetCacheConfig", "b32", {"b64"}},
      {"cnpGetSharedMemConfig", "b32", {"b64"}},
      {"cnpMaxActiveBlocksPerMultiprocessor", "b32", {"b64", "b64", "b32", "b64"}},
      {"__cuda_syscall_cnpv2MaxActiveBlocksPerMultiprocessorWithFlags",
       "b32",
       {"b64", "b64", "b32", "b64", "b32"}},
  };
  for (const BuiltIn& function : functions) {
    for (const bool declared : {false, true}) {
      for (const bool taken : {false, true}) {
        const std::string text = call_of(function, declared, taken);
        ASSERT_TRUE(load({text}).ok()) << text;
        const auto code = module_->compile("k");
        EXPECT_TRUE(code.ok()) << code.status().to_string() << "\n" << text;
      }
    }
  }
}

// Taichi declares vprintf like this. The function works although the program drops its result. A
// missing argument is 0.
TEST_F(CallsTest, BuiltInFunctionsWorkWhenResultIsDropped) {
  std::string shown;
  context_.output().set_sink([&](DeviceOutput::Target, const std::string& text) { shown += text; });
  std::uint64_t out[2] = {9, 9};
  const GridResult result = run_k({R"(
.extern .func vprintf(.param .b64 a, .param .b64 b);
.extern .func malloc(.param .b64 a);
.extern .func (.param .b64 r) free(.param .b64 a);
.global .align 1 .b8 format[] = {104, 105, 10, 0};
.visible .entry k(.param .u64 out) {
  .reg .b64 %d<4>;
  ld.param.u64 %d0, [out]; mov.u64 %d1, format;
  { .param .b64 a; .param .b64 b; st.param.b64 [a], %d1; st.param.b64 [b], 0;
    call.uni vprintf, (a, b); }
  { .param .b64 a; st.param.b64 [a], 24; call.uni malloc, (a); }
  { .param .b64 a; .param .b64 q; st.param.b64 [a], 0; call.uni (q), free, (a);
    ld.param.b64 %d2, [q]; }
  st.global.u64 [%d0], %d2;
  ret;
})"},
                                  out);
  EXPECT_EQ(result.code, kGridOk) << result.message;
  context_.output().flush();
  EXPECT_EQ(shown, "hi\n");
  EXPECT_EQ(out[0], 0u);
  EXPECT_GT(context_.heap().bytes_used(), 0u);
}

// As libcudadevrt's cudaCG functions call them. Without a cooperative launch there is no grid
// group.
TEST_F(CallsTest, GridGroupIsUnavailableWithoutCooperativeLaunch) {
  std::uint64_t out[3] = {9, 9, 9};
  const GridResult result = run_k({R"(
.extern .func (.param .b64 r) __cuda_syscall_CGS_get_intrinsic_handle(.param .b32 a);
.extern .func (.param .b32 r) __cuda_syscall_CGS_sync(.param .b64 a, .param .b32 b);
.extern .func (.param .b32 r) __cuda_syscall_CGS_get_size(
    .param .b64 a, .param .b64 b, .param .b64 c);
.extern .func (.param .b32 r) __cuda_syscall_CGS_get_rank(
    .param .b64 a, .param .b64 b, .param .b64 c);
.visible .entry k(.param .u64 out) {
  .reg .b64 %d<3>; .reg .b32 %r<4>;
  ld.param.u64 %d0, [out];
  { .param .b32 a; .param .b64 r; st.param.b32 [a], 1;
    call.uni (r), __cuda_syscall_CGS_get_intrinsic_handle, (a); ld.param.b64 %d1, [r]; }
  { .param .b64 a; .param .b32 b; .param .b32 r; st.param.b64 [a], %d1; st.param.b32 [b], 0;
    call.uni (r), __cuda_syscall_CGS_sync, (a, b); ld.param.b32 %r0, [r]; }
  { .param .b64 a; .param .b64 b; .param .b64 c; .param .b32 r;
    st.param.b64 [a], %d0; st.param.b64 [b], %d0; st.param.b64 [c], %d1;
    call.uni (r), __cuda_syscall_CGS_get_size, (a, b, c); ld.param.b32 %r1, [r];
    call.uni (r), __cuda_syscall_CGS_get_rank, (a, b, c); ld.param.b32 %r2, [r]; }
  shl.b32 %r1, %r1, 8;
  or.b32 %r1, %r1, %r2;
  st.global.u64 [%d0], %d1;
  cvt.u64.u32 %d2, %r0;
  st.global.u64 [%d0+8], %d2;
  cvt.u64.u32 %d2, %r1;
  st.global.u64 [%d0+16], %d2;
  ret;
})"},
                                  out);
  EXPECT_EQ(result.code, kGridOk) << result.message;
  EXPECT_EQ(out[0], 0u);
  EXPECT_EQ(out[1], 1u);  // cudaErrorInvalidValue
  EXPECT_EQ(out[2], 0x101u);
}

TEST_F(CallsTest, AssertionEndsGridAndPrintsMessage) {
  std::string shown;
  context_.output().set_sink([&](DeviceOutput::Target, const std::string& text) { shown += text; });
  std::uint32_t out = 1;
  const GridResult result = run_k({R"(
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d,
                           .param .b64 e) .noreturn;
.global .align 1 .b8 text[] = {120, 62, 48, 0};
.visible .entry k(.param .u64 out) {
  .reg .b64 %d<2>;
  ld.param.u64 %d0, [out];
  mov.u64 %d1, text;
  { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
    st.param.b64 [a], %d1; st.param.b64 [b], %d1; st.param.b32 [c], 17; st.param.b64 [d], %d1;
    st.param.b64 [e], 1;
    call.uni __assertfail, (a, b, c, d, e); }
  st.global.u32 [%d0], 2;
  trap;
})"},
                                  &out);
  EXPECT_EQ(result.code, kGridAssert);
  EXPECT_EQ(out, 1u);
  context_.output().flush();
  EXPECT_NE(shown.find("x>0:17: x>0"), std::string::npos) << shown;
}

TEST_F(CallsTest, ExitInCalleeEndsOnlyItsThread) {
  std::vector<std::uint32_t> out(64, 0);
  const GridResult result = run_k({R"(
.func maybe_exit(.param .b32 x) .noreturn {
  .reg .b32 %r; .reg .pred %p;
  ld.param.u32 %r, [x];
  setp.ge.u32 %p, %r, 40;
  @%p exit;
  ret;
}
.visible .entry k(.param .u64 out) {
  .reg .b64 %d<2>; .reg .b32 %r;
  ld.param.u64 %d0, [out];
  mov.u32 %r, %tid.x;
  { .param .b32 a; st.param.b32 [a], %r; call.uni maybe_exit, (a); }
  bar.sync 0;
  mul.wide.u32 %d1, %r, 4;
  add.u64 %d1, %d1, %d0;
  st.global.u32 [%d1], 1;
  ret;
})"},
                                  out.data(), 64);
  EXPECT_EQ(result.code, kGridOk) << result.message;
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i < 40 ? 1u : 0u) << i;
}

TEST_F(CallsTest, MeasuresStackUse) {
  ASSERT_TRUE(load({R"(
.func (.param .b32 r) deep(.param .b32 x) {
  .local .align 4 .b8 space[20000];
  .reg .b32 %r<2>; .reg .b64 %d<2>;
  ld.param.u32 %r0, [x];
  mul.wide.u32 %d0, %r0, 4;
  mov.u64 %d1, space;
  add.u64 %d0, %d0, %d1;
  st.local.u32 [%d0], %r0;
  bar.sync 0;
  ld.local.u32 %r1, [%d0];
  st.param.b32 [r], %r1;
  ret;
}
.visible .entry k(.param .u64 out) {
  .reg .b32 %r<2>; .reg .b64 %d<2>;
  ld.param.u64 %d0, [out];
  mov.u32 %r0, %tid.x;
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r0; call.uni (b), deep, (a);
    ld.param.b32 %r1, [b]; }
  mul.wide.u32 %d1, %r0, 4;
  add.u64 %d1, %d1, %d0;
  st.global.u32 [%d1], %r1;
  ret;
}
.visible .entry shallow() { ret; })"})
                  .ok());
  const auto deep = module_->compile("k");
  const auto shallow = module_->compile("shallow");
  ASSERT_TRUE(deep.ok() && shallow.ok());
  EXPECT_GE(deep->stack_bytes, 20000u);
  EXPECT_LT(deep->stack_bytes, 24000u);
  EXPECT_LT(shallow->stack_bytes, 512u);
  const auto attributes = module_->kernel("k");
  ASSERT_TRUE(attributes.ok());
  EXPECT_EQ((*attributes)->local_bytes, 20000u);
  std::vector<std::uint32_t> out(128, 0);
  const GridResult result = run("k", {1, 1, 1}, {128, 1, 1}, Parameters().add(out.data()));
  EXPECT_EQ(result.code, kGridOk) << result.message;
  for (std::uint32_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], i);
}

}  // namespace
}  // namespace gpurun::emulated
