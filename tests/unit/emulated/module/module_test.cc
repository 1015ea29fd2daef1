// PTX modules: loading, linking, variables, attributes and execution, as the driver API uses them.
#include <csignal>
#include <cstdlib>

#include "module_harness.h"

namespace gpurun::emulated {
namespace {

// As CUDA's compiler writes it.
constexpr char kVectorAdd[] = R"(
.version 9.0
.target sm_90
.address_size 64

	// .globl	vectorAdd

.visible .entry vectorAdd(
	.param .u64 vectorAdd_param_0,
	.param .u64 vectorAdd_param_1,
	.param .u64 vectorAdd_param_2,
	.param .u32 vectorAdd_param_3
)
{
	.reg .pred 	%p<2>;
	.reg .f32 	%f<5>;
	.reg .b32 	%r<6>;
	.reg .b64 	%rd<11>;

	ld.param.u64 	%rd1, [vectorAdd_param_0];
	ld.param.u64 	%rd2, [vectorAdd_param_1];
	ld.param.u64 	%rd3, [vectorAdd_param_2];
	ld.param.u32 	%r2, [vectorAdd_param_3];
	mov.u32 	%r3, %ntid.x;
	mov.u32 	%r4, %ctaid.x;
	mov.u32 	%r5, %tid.x;
	mad.lo.s32 	%r1, %r3, %r4, %r5;
	setp.ge.s32 	%p1, %r1, %r2;
	@%p1 bra 	$L__BB0_2;

	cvta.to.global.u64 	%rd4, %rd1;
	mul.wide.s32 	%rd5, %r1, 4;
	add.s64 	%rd6, %rd4, %rd5;
	cvta.to.global.u64 	%rd7, %rd2;
	add.s64 	%rd8, %rd7, %rd5;
	ld.global.f32 	%f1, [%rd8];
	ld.global.f32 	%f2, [%rd6];
	add.f32 	%f3, %f2, %f1;
	add.f32 	%f4, %f3, 0f00000000;
	cvta.to.global.u64 	%rd9, %rd3;
	add.s64 	%rd10, %rd9, %rd5;
	st.global.f32 	[%rd10], %f4;

$L__BB0_2:
	ret;
}
)";

TEST_F(ModuleTest, VectorAddKernelRunsOnEngine) {
  const Status status = load_whole({kVectorAdd});
  ASSERT_TRUE(status.ok()) << status.to_string();
  ASSERT_EQ(module_->kernel_names(), std::vector<std::string>{"vectorAdd"});
  constexpr std::uint32_t kCount = 1000;
  std::vector<float> a(kCount), b(kCount), c(1024, -1.0f);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = 0.5f * static_cast<float>(i);
  }
  const GridResult result = run("vectorAdd", {4, 1, 1}, {256, 1, 1},
                                Parameters().add(a.data()).add(b.data()).add(c.data()).add(kCount));
  EXPECT_EQ(result.code, kGridOk) << result.message;
  for (std::uint32_t i = 0; i < 1024; ++i) {
    EXPECT_EQ(c[i], i < kCount ? 1.5f * static_cast<float>(i) : -1.0f) << i;
  }
  const auto code = module_->compile("vectorAdd");
  ASSERT_TRUE(code.ok());
  EXPECT_FALSE(code->needs_fibers);
  EXPECT_FALSE(code->recursive);
  const auto attributes = module_->kernel("vectorAdd");
  ASSERT_TRUE(attributes.ok());
  EXPECT_EQ((*attributes)->param_bytes, 28u);
  EXPECT_EQ((*attributes)->parameters.size(), 4u);
  EXPECT_EQ((*attributes)->parameters[3].offset, 24u);
  EXPECT_EQ((*attributes)->parameters[3].bytes, 4u);
  EXPECT_EQ((*attributes)->ptx_target, 90u);
  EXPECT_EQ((*attributes)->ptx_version, 90u);
  EXPECT_EQ((*attributes)->max_threads, 1024u);
  EXPECT_EQ(compiler_->counters().kernels, 1u);
}

TEST_F(ModuleTest, VariablesAreAllocatedAndInitialised) {
  const Status status = load({R"(
.visible .global .align 4 .u32 counter = 7;
.global .align 8 .b8 bytes[3] = {1, 2, 255};
.visible .const .align 8 .f64 factor = 0d3FF8000000000000;
.global .align 4 .f32 third[4] = {0f3F800000, 2.5};
.visible .global .align 256 .b8 wide[16];
.global .align 8 .u64 pointers[3] = {generic(counter), bytes+2, twice};
.global .align 1 .b8 split[2] = {0xFF(counter), 0xFF00(counter)};
.visible .global .attribute(.managed) .align 4 .u32 shared_with_host = 5;
.extern .global .align 4 .u32 elsewhere;
.func (.param .b32 r) twice(.param .b32 x) { ret; }
.visible .entry bump() {
  .reg .b32 %r<2>; .reg .b64 %d<2>;
  ld.global.u32 %r0, [counter];
  add.u32 %r0, %r0, 1;
  st.global.u32 [counter], %r0;
  mov.u64 %d0, wide;
  ld.global.u32 %r1, [third+4];
  st.global.u32 [%d0+12], %r1;
  ret;
})"});
  ASSERT_TRUE(status.ok()) << status.to_string();
  const auto get = [&](const char* name) {
    const auto found = module_->global(name);
    EXPECT_TRUE(found.ok()) << name;
    return found.ok() ? *found : GlobalVariable{};
  };
  const auto counter = get("counter");
  const auto* value = reinterpret_cast<const std::uint32_t*>(counter.address);
  EXPECT_EQ(counter.bytes, 4u);
  EXPECT_EQ(*value, 7u);
  const auto bytes = get("bytes");
  EXPECT_EQ(bytes.bytes, 3u);
  EXPECT_EQ(reinterpret_cast<const std::uint8_t*>(bytes.address)[2], 255);
  const auto factor = get("factor");
  EXPECT_TRUE(factor.constant);
  EXPECT_EQ(*reinterpret_cast<const double*>(factor.address), 1.5);
  const auto* third = reinterpret_cast<const float*>(get("third").address);
  EXPECT_EQ(third[0], 1.0f);
  EXPECT_EQ(third[1], 2.5f);
  EXPECT_EQ(third[2], 0.0f);
  EXPECT_EQ(get("wide").address % 256, 0u);
  const auto* pointers = reinterpret_cast<const std::uint64_t*>(get("pointers").address);
  EXPECT_EQ(pointers[0], counter.address);
  EXPECT_EQ(pointers[1], bytes.address + 2);
  EXPECT_NE(pointers[2], 0u);
  const auto* split = reinterpret_cast<const std::uint8_t*>(get("split").address);
  EXPECT_EQ(split[0], counter.address & 0xff);
  EXPECT_EQ(split[1], counter.address >> 8 & 0xff);
  EXPECT_TRUE(get("shared_with_host").managed);
  EXPECT_EQ(memory_.managed(), 1);
  EXPECT_EQ(module_->global("elsewhere").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(module_->global("nothing").status().code(), Code::kInvalidArgument);

  const GridResult result = run("bump", {1, 1, 1}, {1, 1, 1}, Parameters());
  EXPECT_EQ(result.code, kGridOk) << result.message;
  EXPECT_EQ(*value, 8u);
  EXPECT_EQ(reinterpret_cast<const float*>(get("wide").address)[3], 2.5f);
  const auto attributes = module_->kernel("bump");
  ASSERT_TRUE(attributes.ok());
  EXPECT_EQ((*attributes)->const_bytes, 8u);
  module_.reset();
  EXPECT_EQ(memory_.live(), 0u);
}

TEST_F(ModuleTest, SharedMemoryIsLaidOutForEachKernel) {
  const Status status = load({R"(
.shared .align 4 .b8 big[40000];
.shared .align 16 .b8 small[20];
.extern .shared .align 16 .b8 dynamic[];
.visible .entry uses_small(.param .u64 out) {
  .shared .align 8 .b8 own[8];
  .reg .b32 %r<4>; .reg .b64 %d<2>;
  ld.param.u64 %d0, [out];
  mov.u32 %r0, small; mov.u32 %r1, own; mov.u32 %r2, dynamic;
  st.shared.u32 [dynamic+4], 77;
  ld.shared.u32 %r3, [%r2+4];
  st.global.v4.u32 [%d0], {%r0, %r1, %r2, %r3};
  ret;
}
.visible .entry uses_big() .maxntid 16, 8, 1 .minnctapersm 2 {
  .reg .b32 %r<1>;
  mov.u32 %r0, big;
  ret;
}
.visible .entry exact() .reqntid 64 { ret; })"});
  ASSERT_TRUE(status.ok()) << status.to_string();
  std::uint32_t out[4] = {9, 9, 9, 9};
  const GridResult result = run("uses_small", {1, 1, 1}, {1, 1, 1}, Parameters().add(&out[0]), 64);
  EXPECT_EQ(result.code, kGridOk) << result.message;
  EXPECT_EQ(out[0], 0u);
  EXPECT_EQ(out[1], 24u);
  EXPECT_EQ(out[2], 32u);
  EXPECT_EQ(out[3], 77u);
  auto attributes = module_->kernel("uses_small");
  ASSERT_TRUE(attributes.ok());
  EXPECT_EQ((*attributes)->static_shared_bytes, 32u);
  EXPECT_TRUE((*attributes)->uses_dynamic_shared);
  attributes = module_->kernel("uses_big");
  ASSERT_TRUE(attributes.ok());
  EXPECT_EQ((*attributes)->static_shared_bytes, 40000u);
  EXPECT_FALSE((*attributes)->uses_dynamic_shared);
  EXPECT_EQ((*attributes)->max_threads, 128u);
  EXPECT_EQ((*attributes)->max_block[1], 8u);
  EXPECT_EQ((*attributes)->min_blocks_per_sm, 2u);
  attributes = module_->kernel("exact");
  ASSERT_TRUE(attributes.ok());
  EXPECT_EQ((*attributes)->required_block[0], 64u);
  EXPECT_EQ((*attributes)->max_threads, 64u);
}

TEST_F(ModuleTest, RefusalNamesKernelInstructionAndLine) {
  const Status status =
      load({".visible .entry good() { ret; }\n.visible .entry bad() {\n"
            ".reg .b32 %r<2>;\nadd.s9 %r0, %r1, %r1;\nret;\n}\n"
            ".visible .entry launches() {\ncall cudaLaunchDevice;\nret; }\n"});
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (int i = 0; i < 2; ++i) {
    const auto bad = module_->kernel("bad");
    EXPECT_EQ(bad.status().code(), Code::kRefused);
    for (const char* part : {"kernel bad", "add.s9", "line 7"}) {
      EXPECT_NE(bad.status().message().find(part), std::string::npos) << bad.status().message();
    }
  }
  EXPECT_EQ(module_->compile("bad").status().code(), Code::kRefused);
  EXPECT_EQ(module_->kernel("launches").status().code(), Code::kRefused);
  EXPECT_EQ(module_->kernel("absent").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(module_->compile("absent").status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(module_->kernel("good").ok());
}

TEST_F(ModuleTest, LoadRefusesBrokenTopLevel) {
  EXPECT_EQ(load_whole({"this is no PTX"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(load({".visible .global .u32 x;\n.visible .global .u32 x;\n"}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(load({".visible .global .u32 x;\n", ".visible .global .u32 x;\n"}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(load({".visible .entry k() { ret; }", ".visible .entry k() { ret; }"}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(load({".global .u64 x = missing;\n"}).code(), Code::kInvalidArgument);
  memory_.set_limit(16);
  EXPECT_EQ(load({".global .b8 x[64];\n"}).code(), Code::kResourceExhausted);
}

TEST_F(ModuleTest, KernelFaultsAreReportedNotOptimisedAway) {
  ASSERT_TRUE(load({R"(
.visible .entry null_store() { .reg .b64 %d; mov.u64 %d, 0; st.global.u32 [%d], 1; ret; }
.visible .entry null_load(.param .u64 out) {
  .reg .b64 %d<2>; .reg .b32 %r;
  ld.param.u64 %d1, [out]; mov.u64 %d0, 16;
  ld.global.u32 %r, [%d0]; st.global.u32 [%d1], %r;
  ret;
}
.visible .entry traps() { trap; }
.visible .entry falls_off() { .reg .b32 %r; mov.u32 %r, 1; }
.visible .entry nothing_after_call() { call.uni stops; }
.func stops() .noreturn { trap; }
)"})
                  .ok());
  std::uint32_t out = 0;
  const Parameters none;
  EXPECT_EQ(run("null_store", {1, 1, 1}, {1, 1, 1}, none).code, kGridIllegalAddress);
  EXPECT_EQ(run("null_load", {1, 1, 1}, {1, 1, 1}, Parameters().add(&out)).code,
            kGridIllegalAddress);
  EXPECT_EQ(run("traps", {1, 1, 1}, {1, 1, 1}, none).code, kGridLaunchFailed);
  EXPECT_EQ(run("falls_off", {1, 1, 1}, {1, 1, 1}, none).code, kGridOk);
  EXPECT_EQ(run("nothing_after_call", {1, 1, 1}, {1, 1, 1}, none).code, kGridLaunchFailed);
}

// An illegal instruction, not the next function, follows code that never returns.
TEST_F(ModuleTest, UnreachableCodeDoesNotFallThrough) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const std::uint32_t quick_above : {0u, 20000u}) {
    const auto fall = [&] {
      RuntimeFunctions runtime = runtime_functions();
      runtime.trap = [](ThreadContext*, std::uint32_t) {};  // Returns, against its contract.
      CompilerOptions options;
      options.quick_above_instructions = quick_above;
      auto compiler = Compiler::create(runtime, options);
      auto module = Module::load({std::string(kHead) + ".visible .entry k() { trap; }"}, "test",
                                 **compiler, memory_);
      const auto code = (*module)->compile("k");
      BlockContext block{};
      ThreadContext thread{};
      thread.block = &block;
      code->function(&thread);
      std::_Exit(0);
    };
    EXPECT_EXIT(fall(), testing::KilledBySignal(SIGILL), "");
  }
}

}  // namespace
}  // namespace gpurun::emulated
