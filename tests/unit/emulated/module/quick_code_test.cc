// Quick code: a large kernel starts with code that was generated fast. Good code that computes the
// same bits takes its place between two launches, once the kernel is hot. Neither an unload nor the
// end of the process waits for the compilation.
#include <bit>
#include <cmath>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>

#include "emulated/jit/backend.h"
#include "module_harness.h"

namespace gpurun::emulated {
namespace {

constexpr int kRegisters = 24;

std::string reg(char kind, unsigned number) {
  return std::string("%") + kind + std::to_string(number % kRegisters);
}

// The operation, and a multiplication by `factor`, below a half, so that no result becomes
// infinite. The bits of a NaN are not the same in quick and good code.
std::string float_operation(const std::string& name, char kind, unsigned to, unsigned from,
                            unsigned other, const std::string& factor) {
  const std::string result = reg(kind, to);
  const std::string scaled = "mul.rn." + name.substr(name.size() - 3) + " " + result + ", ";
  std::string text = name + " " + result + ", " + reg(kind, from) + ", ";
  if (name.starts_with("div") || name.starts_with("mul")) {
    return text + factor + ";\n" + scaled + result + ", " + factor + ";\n";
  }
  if (name.starts_with("fma")) text += factor + ", ";
  return text + reg(kind, other) + ";\n" + scaled + result + ", " + factor + ";\n";
}

// A kernel k(out) of more than `instructions`, with branches, a loop and all kinds of rounding.
// Each thread stores all of its registers.
std::string large_kernel(int instructions) {
  std::string text =
      std::string(kHead) +
      ".visible .entry k(.param .u64 out) {\n.reg .b32 %r<24>, %i; .reg .f32 %f<24>; "
      ".reg .f64 %d<24>; .reg .f32 %t; .reg .pred %p<2>; .reg .b64 %out, %w;\n"
      "ld.param.u64 %out, [out]; mov.u32 %i, %tid.x;\n"
      "mul.wide.u32 %w, %i, 384; add.s64 %out, %out, %w; mov.u32 %r0, %i;\n";
  for (unsigned i = 0; i < kRegisters; ++i) {
    text += "mad.lo.u32 " + reg('r', i) + ", %i, " + std::to_string(i * 7 + 1) + ", " +
            std::to_string(i * 2654435761u) + "; cvt.rn.f32.u32 " + reg('f', i) + ", " +
            reg('r', i) + "; cvt.rn.f64.u32 " + reg('d', i) + ", " + reg('r', i) + ";\n";
  }
  text += "mov.u32 %i, 0;\nagain:\n";
  constexpr const char* kFloat[] = {"fma.rn.f32", "add.rm.f32", "mul.rz.f32",     "add.ftz.f32",
                                    "div.rn.f32", "min.f32",    "mul.rn.ftz.f32", "sub.rp.f32"};
  constexpr const char* kDouble[] = {"fma.rn.f64", "add.rz.f64", "mul.rp.f64", "sub.rn.f64"};
  unsigned random = 12345;
  const auto next = [&random] { return (random = random * 1664525u + 1013904223u) >> 8; };
  for (int done = 0; done < instructions; done += 10) {
    const std::string label = "skip" + std::to_string(done);
    const std::string name = kFloat[next() % 8];
    if (done % 40 == 0) {
      text += "setp.gt.u32 %p0, " + reg('r', next()) + ", " + reg('r', next()) + ";\n@%p0 bra " +
              label + ";\n";
    }
    text += float_operation(name, 'f', next(), next(), next(), "0f3EE00000");
    text += float_operation(kDouble[next() % 4], 'd', next(), next(), next(), "0d3FDC000000000000");
    // Must not become one operation.
    text += "mul.rn.f32 %t, " + reg('f', next()) + ", 0f3E99999A; add.rn.f32 " + reg('f', next()) +
            ", %t, " + reg('f', next()) + ";\n";
    // Fresh numbers in place of what has become small.
    const unsigned fresh = next();
    text += "cvt.rn.f32.u32 " + reg('f', fresh) + ", " + reg('r', fresh + 1) + "; cvt.rn.f64.s32 " +
            reg('d', fresh) + ", " + reg('r', fresh + 2) + ";\n";
    text += "mad.lo.s32 " + reg('r', next()) + ", " + reg('r', next()) + ", " + reg('r', next()) +
            ", " + std::to_string(done) + ";\nxor.b32 " + reg('r', next()) + ", " +
            reg('r', next()) + ", " + reg('r', next()) + ";\n";
    if (done % 40 == 0) text += label + ":\n";
  }
  text += "add.u32 %i, %i, 1; setp.lt.u32 %p1, %i, 3;\n@%p1 bra again;\n";
  for (unsigned i = 0; i < kRegisters; ++i) {
    const std::string at = "[%out+" + std::to_string(16 * i);
    text += "st.global.u32 " + at + "], " + reg('r', i) + "; st.global.f32 " + at + "+4], " +
            reg('f', i) + "; st.global.f64 " + at + "+8], " + reg('d', i) + ";\n";
  }
  return text + "ret; }\n";
}

class QuickCode : public ModuleTest {
 protected:
  static constexpr unsigned kThreads = 40;

  std::vector<std::uint64_t> run_kernel() {
    std::vector<std::uint64_t> out(kThreads * 2 * kRegisters);
    const GridResult result = run("k", {1, 1, 1}, {kThreads, 1, 1}, Parameters().add(out.data()));
    EXPECT_EQ(result.code, kGridOk) << result.message;
    return out;
  }

  // Reports that the kernel has run for long.
  CompiledKernel heat() {
    const auto code = module_->compile("k");
    EXPECT_TRUE(code.ok());
    code->fast->ran_without(std::chrono::hours(1), kThreads);
    return *code;
  }

  // Waits until all background work before this call is done.
  void finish_background() {
    std::promise<void> done;
    ASSERT_TRUE(compiler_->backend().background().add(
        this, [&done](BackgroundWork::Job&) { done.set_value(); }));
    done.get_future().wait();
  }
};

TEST_F(QuickCode, LargeKernelStartsQuicklyAndBecomesGood) {
  ASSERT_TRUE(load_whole({large_kernel(2100)}).ok());
  const auto first = run_kernel();
  for (std::size_t i = 1; i < first.size(); i += 2) {
    ASSERT_TRUE(std::isfinite(std::bit_cast<double>(first[i]))) << i;
  }
  EXPECT_EQ(compiler_->counters().quick_kernels, 1u);
  EXPECT_EQ(compiler_->counters().replacements, 0u);
  const CompiledKernel code = heat();
  EXPECT_EQ(code.fast->code(), nullptr);
  while (code.fast->better() == nullptr) std::this_thread::yield();  // The test's limit bounds it.
  EXPECT_EQ(compiler_->counters().replacements, 1u);
  EXPECT_NE(code.threaded().function, code.function);
  EXPECT_LT(code.threaded().stack_bytes, code.stack_bytes) << "good code spills less";
  EXPECT_EQ(run_kernel(), first);
  EXPECT_EQ(compiler_->counters().kernels, 1u);
}

TEST_F(QuickCode, OtherKernelsAreGoodAtOnce) {
  CompilerOptions options;
  options.quick_above_instructions = 3000;
  start(options);
  ASSERT_TRUE(load_whole({large_kernel(2100)}).ok());
  const auto good = run_kernel();
  EXPECT_EQ(compiler_->counters().quick_kernels, 0u);
  heat();
  finish_background();
  EXPECT_EQ(compiler_->counters().replacements, 0u);
  start({});
  ASSERT_TRUE(load_whole({large_kernel(2100)}).ok());
  EXPECT_EQ(run_kernel(), good);
  EXPECT_EQ(compiler_->counters().quick_kernels, 1u);
}

TEST_F(QuickCode, KernelsBeyondBoundAreNotReplaced) {
  CompilerOptions options;
  options.replaced_up_to_instructions = 2000;
  start(options);
  ASSERT_TRUE(load_whole({large_kernel(2100)}).ok());
  run_kernel();
  heat();
  finish_background();
  EXPECT_EQ(compiler_->counters().replacements, 0u);
}

// Kernels that good code serves from the start with more threads.
class FewThreads : public QuickCode {
 protected:
  void SetUp() override {
    CompilerOptions options;
    options.tier = Tier::kAuto;
    options.quick_up_to_threads = kFew;
    start(options);
    ASSERT_TRUE(load_whole({large_kernel(40)}).ok());
  }
  static constexpr std::uint64_t kFew = 1000;
};

TEST_F(FewThreads, SmallKernelStartsQuicklyAndGetsItsFastForm) {
  launch_threads_ = kFew;
  const auto first = run_kernel();
  EXPECT_EQ(compiler_->counters().quick_kernels, 1u);
  const auto code = module_->compile("k", kFew);
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(code->fast->better(), nullptr) << "no launch has needed good code";
  code->fast->ran_without(std::chrono::hours(1), kThreads);
  while (code->fast->code() == nullptr) std::this_thread::yield();  // The test's limit bounds it.
  EXPECT_TRUE(code->serves(kFew + 1)) << "the fast form serves all of its launches";
  EXPECT_FALSE(code->serves(kAnyLaunch)) << "this launch cannot use the fast form";
  launch_threads_ = kAnyLaunch;
  EXPECT_EQ(run_kernel(), first);
  EXPECT_EQ(compiler_->counters().replacements, 1u);
  EXPECT_TRUE(code->serves(kAnyLaunch));
}

TEST_F(FewThreads, LaunchOfManyThreadsWaitsForGoodCode) {
  launch_threads_ = kFew;
  const auto first = run_kernel();
  const auto quick = module_->compile("k", kFew);
  ASSERT_TRUE(quick.ok());
  EXPECT_EQ(compiler_->counters().replacements, 0u);
  const auto good = module_->compile("k", kFew + 1);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(compiler_->counters().replacements, 1u);
  EXPECT_NE(good->threaded().function, quick->function);
  EXPECT_EQ(quick->threaded().function, good->threaded().function) << "for later launches of few";
  EXPECT_EQ(run_kernel(), first);
  ASSERT_TRUE(module_->compile("k", kFew + 1).ok());
  EXPECT_EQ(compiler_->counters().replacements, 1u) << "once";
}

TEST_F(FewThreads, FirstLaunchOfManyThreadsHasGoodCodeAtOnce) {
  launch_threads_ = kFew + 1;
  run_kernel();
  EXPECT_EQ(compiler_->counters().quick_kernels, 0u);
  EXPECT_EQ(compiler_->counters().replacements, 0u);
}

TEST_F(FewThreads, LargeKernelStaysQuickForManyThreads) {
  ASSERT_TRUE(load_whole({large_kernel(2100)}).ok());
  launch_threads_ = kFew + 1;
  run_kernel();
  EXPECT_EQ(compiler_->counters().quick_kernels, 1u);
  EXPECT_EQ(compiler_->counters().replacements, 0u);
}

// Without the automatic tier nothing replaces the code of a small kernel.
TEST_F(FewThreads, FixedTiersHaveGoodCode) {
  for (const Tier tier : {Tier::kFibers, Tier::kRegions}) {
    CompilerOptions options;
    options.tier = tier;
    start(options);
    ASSERT_TRUE(load_whole({large_kernel(40)}).ok());
    launch_threads_ = 1;
    run_kernel();
    EXPECT_EQ(compiler_->counters().quick_kernels, 0u);
  }
}

// Its compilation takes many seconds.
TEST_F(QuickCode, HugeKernelBecomesGoodOnlyAfterSeconds) {
  ASSERT_TRUE(load_whole({large_kernel(20100)}).ok());
  const auto code = module_->compile("k");
  ASSERT_TRUE(code.ok());
  code->fast->ran_without(std::chrono::seconds(1), kThreads);
  finish_background();
  EXPECT_EQ(compiler_->counters().replacements, 0u);
  code->fast->ran_without(std::chrono::seconds(10), kThreads);
  while (!compiler_->backend().background().busy()) std::this_thread::yield();
}

// Also while code is generated, when the unload does not wait for it.
TEST_F(QuickCode, ModuleUnloadsDuringReplacement) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(load_whole({large_kernel(2100)}).ok());
    const CompiledKernel code = heat();
    if (i > 0) {
      while (!compiler_->backend().background().busy() && code.fast->better() == nullptr) {
        std::this_thread::yield();
      }
    }
    module_.reset();
  }
  // The thread goes on with the next kernel.
  ASSERT_TRUE(load_whole({large_kernel(2100)}).ok());
  const CompiledKernel code = heat();
  while (code.fast->better() == nullptr) std::this_thread::yield();
}

[[noreturn]] void end_while_compiling() {
  static Compiler* compiler = nullptr;
  CompilerOptions options;
  options.before_background = [] { std::atexit([] { compiler->stop_background(); }); };
  compiler = std::move(*Compiler::create(runtime_functions(), options)).release();
  static HostMemory memory;
  static Module* const module =
      std::move(*Module::load({large_kernel(15000)}, "test", *compiler, memory)).release();
  module->compile("k")->fast->ran_without(std::chrono::hours(1), 32);
  while (!compiler->backend().background().busy()) std::this_thread::yield();
  std::exit(compiler->counters().replacements == 0 ? 0 : 1);
}

TEST(QuickCodeDeathTest, ProcessExitsDuringReplacement) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(end_while_compiling(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpurun::emulated
