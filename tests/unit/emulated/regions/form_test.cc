// Fast form: which kernels get one, and when.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <future>
#include <string>
#include <thread>

#include "both_tiers.h"
#include "emulated/jit/backend.h"
#include "emulated/jit/background_work.h"
#include "emulated/jit/compiler.h"
#include "emulated/module/module.h"
#include "emulated/regions/regions.h"
#include "tests/unit/emulated/module/host_memory.h"

namespace gpurun::emulated {
namespace {

// A kernel that waits for other blocks, prints, or calls an unknown function must stay threads.
TEST(FastForm, KernelsThatNeedThreadsAreRefused) {
  EXPECT_EQ(refusal_of(kernel_text("", "st.global.u32 [%own], 1;")), "");
  EXPECT_EQ(
      refusal_of(kernel_text("", "ld.volatile.global.u32 %r2, [%own]; st.global.u32 [%own], %r2;")),
      "refused");
  EXPECT_EQ(refusal_of(kernel_text("", "atom.global.cas.b32 %r2, [%own], 0, 1;")), "refused");
  EXPECT_EQ(refusal_of(kernel_text("", "activemask.b32 %r2; st.global.u32 [%own], %r2;")),
            "refused");
  const std::string shared = ".shared .align 4 .b32 s;\n";
  EXPECT_EQ(refusal_of(kernel_text(shared, "st.volatile.shared.u32 [s], %n;")), "refused");
  EXPECT_EQ(refusal_of(kernel_text(shared, "st.shared.u32 [s], %n;")), "");
  EXPECT_EQ(refusal_of(kernel_text("", "nanosleep.u32 5;")), "refused");
  EXPECT_EQ(refusal_of(kernel_text("", "bar.sync %n; st.global.u32 [%own], 1;")), "refused");
  EXPECT_EQ(refusal_of(kernel_text(
                ".local .align 4 .b8 l[65536];\n",
                "mov.u64 %w0, l; mul.wide.u32 %w1, %n, 4; add.s64 %w0, %w0, %w1; st.local.u32 "
                "[%w0], 1; bar.sync 0; ld.local.u32 %r2, [%w0+4]; st.global.u32 [%own], %r2;")),
            "refused");
}

TEST(FastForm, HotKernelCompilesInBackground) {
  CompilerOptions options;
  options.tier = Tier::kAuto;
  auto compiler = Compiler::create(runtime_functions(), options);
  ASSERT_TRUE(compiler.ok());
  HostMemory memory;
  auto module =
      Module::load({kernel_text("", "st.global.u32 [%own], 1;")}, "test", **compiler, memory);
  ASSERT_TRUE(module.ok());
  auto code = (*module)->compile("k");
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(code->fast->code(), nullptr) << "compiled before it was hot";
  code->fast->ran_without(std::chrono::milliseconds(1), 32);
  EXPECT_EQ((*compiler)->counters().fast_forms, 0u);
  code->fast->ran_without(std::chrono::hours(1), 32);
  while (code->fast->code() == nullptr)
    std::this_thread::yield();  // The test's limit is the bound.
  EXPECT_EQ((*compiler)->counters().fast_forms, 1u);
  EXPECT_EQ(code->fast->code()->program->cut_count, 0u);
}

// The rest of a row runs lane by lane. If that were most of the row, slices are narrow.
TEST(FastForm, SliceWidthFollowsBlockRow) {
  for (const std::uint32_t row : {1u, 7u, 16u, 17u, 32u, 100u, 256u, 200u, 1024u}) {
    EXPECT_EQ(slice_lanes_for(row), kSliceLanes) << row;
  }
  for (const std::uint32_t row : {8u, 15u, 24u, 40u, 120u}) {
    EXPECT_EQ(slice_lanes_for(row), kNarrowSliceLanes) << row;
  }
}

// A module may be unloaded while its kernel is compiled or waits for compilation.
TEST(FastForm, ModuleUnloadsDuringCompilation) {
  CompilerOptions options;
  options.tier = Tier::kAuto;
  auto compiler = Compiler::create(runtime_functions(), options);
  ASSERT_TRUE(compiler.ok());
  for (int i = 0; i < 20; ++i) {
    HostMemory memory;
    auto module =
        Module::load({kernel_text("", "st.global.u32 [%own], 1;")}, "test", **compiler, memory);
    ASSERT_TRUE(module.ok());
    auto code = (*module)->compile("k");
    ASSERT_TRUE(code.ok());
    code->fast->ran_without(std::chrono::hours(1), 32);
  }
}

// Long enough that its compilation takes a while.
std::string long_kernel(int length) {
  std::string body = "mov.u32 %r2, %x;\n";
  for (int i = 0; i < length; ++i) {
    body += "mad.lo.u32 %r2, %r2, %n, " + std::to_string(i) + "; xor.b32 %r2, %r2, %r1;\n";
  }
  return kernel_text("", body + "st.global.u32 [%own], %r2;");
}

// A program that ends while its hot kernel is compiled.
[[noreturn]] void end_while_compiling() {
  mallopt(M_PERTURB, 0xa5);  // Makes a use of freed memory visible.
  static Compiler* compiler = nullptr;
  CompilerOptions options;
  options.tier = Tier::kAuto;
  options.before_background = [] { std::atexit([] { compiler->stop_background(); }); };
  compiler = std::move(*Compiler::create(runtime_functions(), options)).release();
  static HostMemory memory;
  static Module* const module =
      std::move(*Module::load({long_kernel(300)}, "test", *compiler, memory)).release();
  module->compile("k")->fast->ran_without(std::chrono::hours(1), 32);
  while (!compiler->backend().background().busy()) std::this_thread::yield();
  std::exit(0);
}

// Otherwise the end of the process would wait for it.
TEST(FastForm, VeryLongKernelsAreNotCompiledInBackground) {
  CompilerOptions options;
  options.tier = Tier::kAuto;
  auto compiler = Compiler::create(runtime_functions(), options);
  ASSERT_TRUE(compiler.ok());
  HostMemory memory;
  auto module = Module::load({long_kernel(1000)}, "test", **compiler, memory);
  ASSERT_TRUE(module.ok());
  auto code = (*module)->compile("k");
  ASSERT_TRUE(code.ok());
  code->fast->ran_without(std::chrono::hours(1), 32);
  EXPECT_FALSE((*compiler)->backend().background().busy());
  (*compiler)->stop_background();
  EXPECT_EQ((*compiler)->counters().fast_forms, 0u);
}

// LLVM's own tables end with the process, too. A thread that still needs them would crash.
TEST(FastFormDeathTest, ProcessExitsDuringCompilation) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(end_while_compiling(), testing::ExitedWithCode(0), "");
}

TEST(BackgroundWork, RejectsWorkBeyondBound) {
  BackgroundWork work;
  std::promise<void> started, go;
  ASSERT_TRUE(work.add(&work, [&](BackgroundWork::Job&) {
    started.set_value();
    go.get_future().wait();
  }));
  started.get_future().wait();
  std::atomic<int> done{0};
  const int other = 0;
  for (std::size_t i = 0; i < BackgroundWork::kWaitingMax; ++i) {
    EXPECT_TRUE(work.add(&other, [&](BackgroundWork::Job&) { ++done; }));
  }
  EXPECT_FALSE(work.add(&other, [&](BackgroundWork::Job&) { ++done; }));
  work.forget(&other);
  EXPECT_TRUE(work.add(&other, [&](BackgroundWork::Job&) { ++done; }));
  go.set_value();
  work.forget(&work);
  work.stop();
  EXPECT_LE(done.load(), 1);
  EXPECT_FALSE(work.add(&other, [](BackgroundWork::Job&) {}));
}

// An owner may go while its work runs, unless the work needs it at this moment.
TEST(BackgroundWork, DetachedWorkLosesItsOwner) {
  BackgroundWork work;
  const int owner = 0;
  std::promise<void> detached, forgotten;
  std::promise<bool> attached, stopped;
  ASSERT_TRUE(work.add(&owner, [&](BackgroundWork::Job& job) {
    job.detach();
    detached.set_value();
    forgotten.get_future().wait();
    stopped.set_value(job.stop());
    attached.set_value(job.attach());
  }));
  detached.get_future().wait();
  work.forget(&owner);  // Returns while the item is still running.
  forgotten.set_value();
  EXPECT_TRUE(stopped.get_future().get());
  EXPECT_FALSE(attached.get_future().get());
  // The next item of the same owner is a new one.
  std::promise<bool> again, unstopped;
  ASSERT_TRUE(work.add(&owner, [&](BackgroundWork::Job& job) {
    unstopped.set_value(!job.stop());
    job.detach();
    again.set_value(job.attach());
  }));
  EXPECT_TRUE(unstopped.get_future().get());
  EXPECT_TRUE(again.get_future().get());
}

}  // namespace
}  // namespace gpurun::emulated
