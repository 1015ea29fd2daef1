// Faults: a kernel's mistake ends its grid with the right code. The process, the engine and the
// program's own signal handlers continue to work.
#include <setjmp.h>
#include <signal.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/unit/emulated/engine/kernels.h"

namespace gpurun::emulated::test {
namespace {

struct Wild {
  std::uint64_t address;
  std::uint32_t thread;
  std::atomic<std::uint32_t>* passed;
};

// Sanitizers must ignore this access, and so must the compiler, which may know the address.
__attribute__((noinline, no_sanitize("address", "undefined", "thread"))) void touch(
    std::uint64_t address) {
  *reinterpret_cast<volatile std::uint32_t*>(address) = 1;
}

void wild_kernel(ThreadContext* thread) {
  const Wild& p = params<Wild>(thread);
  if (thread->thread_linear == p.thread && block_index(thread) == 2) touch(p.address);
  rt().barrier_sync(thread, 0, 0);
  p.passed->fetch_add(1);
}

void fine_kernel(ThreadContext* thread) {
  rt().barrier_sync(thread, 0, 0);
  params<Wild>(thread).passed->fetch_add(1);
}

void expect_fine(Engine& engine) {
  std::atomic<std::uint32_t> passed{0};
  const Wild p{0, 0, &passed};
  EXPECT_EQ(engine.run(launch(fine_kernel, {4, 1, 1}, {64, 1, 1}, &p)).code, kGridOk);
  EXPECT_EQ(passed.load(), 256u);
}

TEST(EngineFault, BadAddressReportsAddressAndThread) {
  auto engine = make_engine(2);
  std::atomic<std::uint32_t> passed{0};
  const Wild p{0x10, 37, &passed};
  const GridResult result = engine->run(launch(wild_kernel, {3, 1, 1}, {16, 4, 1}, &p));
  EXPECT_EQ(result.code, kGridIllegalAddress);
  EXPECT_EQ(result.address, 0x10u);
  EXPECT_EQ(result.block.x, 2u);
  EXPECT_EQ(result.thread.x, 5u);
  EXPECT_EQ(result.thread.y, 2u);
  EXPECT_NE(result.message.find("0x10"), std::string::npos);
  expect_fine(*engine);
}

TEST(EngineFault, ConcurrentFaultsAreContained) {
  auto engine = make_engine(3);
  std::atomic<std::uint32_t> passed{0};
  const Wild p{0x20, 1, &passed};
  Finish finish;
  std::thread guest([&] {
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(engine->run(launch(wild_kernel, {4, 1, 1}, {33, 1, 1}, &p)).code,
                kGridIllegalAddress);
    }
  });
  for (int i = 0; i < 100; ++i) {
    engine->submit(launch(wild_kernel, {4, 1, 1}, {33, 1, 1}, &p), finish.keep());
  }
  finish.wait(100);
  guest.join();
  for (const GridResult& result : finish.results()) EXPECT_EQ(result.code, kGridIllegalAddress);
  expect_fine(*engine);
}

void shared_kernel(ThreadContext* thread) {
  touch(reinterpret_cast<std::uint64_t>(thread->block->shared) + 0x80000);
}

TEST(EngineFault, SharedMemoryFaultReportsOffset) {
  auto engine = make_engine(1);
  const Wild p{};
  const GridResult result = engine->run(launch(shared_kernel, {1, 1, 1}, {1, 1, 1}, &p));
  EXPECT_EQ(result.code, kGridIllegalAddress);
  EXPECT_NE(result.message.find("offset 524288 of 0 bytes"), std::string::npos) << result.message;
}

// Only without sanitizers, which have their own check for a stack's end.
#if !defined(GPURUN_ASAN) && !defined(GPURUN_TSAN)
__attribute__((noinline)) std::uint32_t deep(volatile std::uint32_t* depth) {
  volatile std::uint32_t frame[64];
  frame[*depth % 64] = *depth;
  *depth = *depth + 1;
  if (*depth == 1u << 30) return 0;  // Never: the stack ends long before.
  return deep(depth) + frame[*depth % 64];
}
void recursive_kernel(ThreadContext* thread) {
  volatile std::uint32_t depth = thread->thread_linear;
  deep(&depth);
}

TEST(EngineFault, StackOverflowReturnsHardwareStackError) {
  auto engine = make_engine(1);
  const Wild p{};
  const GridResult result = engine->run(launch(recursive_kernel, {1, 1, 1}, {2, 1, 1}, &p));
  EXPECT_EQ(result.code, kGridHardwareStackError) << result.message;
  expect_fine(*engine);
}
#endif

void trap_kernel(ThreadContext* thread) {
  if (thread->thread_linear == 9) rt().trap(thread, 4);
  rt().barrier_sync(thread, 0, 0);
}

TEST(EngineFault, TrapReturnsLaunchFailed) {
  auto engine = make_engine(1);
  const Wild p{};
  const GridResult result = engine->run(launch(trap_kernel, {1, 1, 1}, {64, 1, 1}, &p));
  EXPECT_EQ(result.code, kGridLaunchFailed);
  EXPECT_EQ(result.thread.x, 9u);
  expect_fine(*engine);
}

void illegal_kernel(ThreadContext*) { __builtin_trap(); }

TEST(EngineFault, IllegalInstructionIsContained) {
  auto engine = make_engine(1);
  const Wild p{};
  EXPECT_EQ(engine->run(launch(illegal_kernel, {1, 1, 1}, {1, 1, 1}, &p)).code,
            kGridIllegalInstruction);
  expect_fine(*engine);
}

void free_kernel(ThreadContext* thread) { rt().release(thread, 0x1234560); }

TEST(EngineFault, InvalidFreeEndsGrid) {
  auto engine = make_engine(1);
  ContextRuntime context;
  const Wild p{};
  LaunchRequest request = launch(free_kernel, {1, 1, 1}, {1, 1, 1}, &p);
  request.context = &context;
  EXPECT_EQ(engine->run(request).code, kGridLaunchFailed);
}

// CUDA's own example prints one line for each failing thread (cuda-samples, simpleAssert).
void assert_kernel(ThreadContext* thread) {
  if (global_index(thread) >= 60) {
    rt().assert_fail(thread, reinterpret_cast<std::uint64_t>("gtid < N"),
                     reinterpret_cast<std::uint64_t>("a.cu"), 47,
                     reinterpret_cast<std::uint64_t>("void testKernel(int)"), 1);
  }
}

TEST(EngineFault, AssertPrintsEveryFailingThreadOfTheWarp) {
  auto engine = make_engine(1);
  ContextRuntime context;
  std::string text;
  context.output().set_sink([&](DeviceOutput::Target target, const std::string& record) {
    EXPECT_EQ(target, DeviceOutput::Target::kStderr);
    text += record;
  });
  const Wild p{};
  LaunchRequest request = launch(assert_kernel, {2, 1, 1}, {32, 1, 1}, &p);
  request.context = &context;
  const GridResult result = engine->run(request);
  EXPECT_EQ(result.code, kGridAssert);
  context.output().flush();
  std::string expected;
  for (int t = 28; t < 32; ++t) {
    expected += "a.cu:47: void testKernel(int): block: [1,0,0], thread: [" + std::to_string(t) +
                ",0,0] Assertion `gtid < N` failed.\n";
  }
  EXPECT_EQ(text, expected);
}

// The program's own handler, for faults of its own code.
sigjmp_buf own_return;
volatile sig_atomic_t own_faults = 0;
void own_handler(int) {
  own_faults = own_faults + 1;
  siglongjmp(own_return, 1);
}

TEST(EngineFault, HostFaultsReachProgramsHandler) {
  struct sigaction own {};
  struct sigaction before {};
  own.sa_handler = own_handler;
  own.sa_flags = SA_NODEFER;
  sigaction(SIGSEGV, &own, &before);
  {
    auto engine = make_engine(1);
    expect_fine(*engine);
    own_faults = 0;
    if (sigsetjmp(own_return, 1) == 0) touch(0x30);
    EXPECT_EQ(own_faults, 1);
    std::atomic<std::uint32_t> passed{0};
    const Wild p{0x10, 0, &passed};
    EXPECT_EQ(engine->run(launch(wild_kernel, {3, 1, 1}, {1, 1, 1}, &p)).code, kGridIllegalAddress);
    EXPECT_EQ(own_faults, 1);
  }
  struct sigaction now {};
  sigaction(SIGSEGV, &before, &now);
  EXPECT_EQ(now.sa_handler, own_handler) << "the engine did not put the handler back";
}

}  // namespace
}  // namespace gpurun::emulated::test
