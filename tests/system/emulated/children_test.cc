// Launches from kernels, through the driver API and with PTX that calls the functions of CUDA's
// device runtime. Covers order, completion, memory, errors and bounds.
// tests/programs/behaviour/children.cu covers the runtime's own functions.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"

namespace {

void* library() {
  static void* const opened = [] {
    setenv("GPURUN_EMULATED", "memory=256MiB,threads=2,watchdog=5,watchdog_kills=1,cache=off", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return dlopen(EMULATED_CUDA, RTLD_NOW | RTLD_LOCAL);
  }();
  return opened;
}

template <typename Function>
Function* get(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(library(), name));
}
#define CALL(name, ...) get(#name, static_cast<decltype(&::name)>(nullptr))(__VA_ARGS__)

// Declarations of libcudadevrt. start() launches kernel(log, tag) with one block and returns the
// runtime's error. note() appends a tag to a log. The first word of the log is its length.
constexpr char kHead[] = R"(.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 r) __cuda_syscall_cnpv2GetParameterBufferV2(.param .b64 f,
    .param .align 4 .b8 g[12], .param .align 4 .b8 b[12], .param .b32 s);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2LaunchDeviceV2(.param .b64 p, .param .b64 s);
.extern .func (.param .b64 r) __cuda_syscall_cnpv2GetParameterBuffer(.param .b32 a, .param .b32 n);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2LaunchDevice(.param .b64 f, .param .b64 p,
    .param .b64 g, .param .b64 b, .param .b32 s, .param .b64 t);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2StreamCreate(.param .b64 p, .param .b32 f);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2StreamDestroy(.param .b64 s);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2StreamWaitEvent(.param .b64 s, .param .b64 e,
    .param .b32 f);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2EventCreate(.param .b64 p, .param .b32 f);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2EventRecord(.param .b64 e, .param .b64 s);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2EventDestroy(.param .b64 e);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2SetLastError(.param .b32 e);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2GetLastError();
.extern .func (.param .b32 r) __cuda_syscall_cnpv2FuncGetAttribute(.param .b64 p, .param .b32 a,
    .param .b64 f);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2DeviceGetAttribute(.param .b64 p, .param .b32 a,
    .param .b32 d);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2GetDeviceCount(.param .b64 p);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2GetDevice(.param .b64 p);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2GetLimit(.param .b64 p, .param .b32 l);
.extern .func (.param .b32 r) __cuda_syscall_cnpv2MaxActiveBlocksPerMultiprocessor(.param .b64 p,
    .param .b64 f, .param .b32 t, .param .b64 s);
.func (.param .b32 r) start(.param .b64 f, .param .b32 threads, .param .b32 shared,
                            .param .b64 stream, .param .b64 log, .param .b32 tag)
{
  .reg .b32 %r<5>; .reg .b64 %d<5>; .reg .pred %p;
  ld.param.u64 %d0, [f]; ld.param.u32 %r0, [threads]; ld.param.u32 %r1, [shared];
  ld.param.u64 %d1, [stream]; ld.param.u64 %d2, [log]; ld.param.u32 %r2, [tag];
  { .param .b64 a; .param .align 4 .b8 b[12]; .param .align 4 .b8 c[12]; .param .b32 d;
    .param .b64 e;
    st.param.b64 [a], %d0;
    st.param.b32 [b], 1; st.param.b32 [b+4], 1; st.param.b32 [b+8], 1;
    st.param.b32 [c], %r0; st.param.b32 [c+4], 1; st.param.b32 [c+8], 1;
    st.param.b32 [d], %r1;
    call.uni (e), __cuda_syscall_cnpv2GetParameterBufferV2, (a, b, c, d);
    ld.param.b64 %d3, [e]; }
  mov.u32 %r3, 1000;
  setp.eq.u64 %p, %d3, 0;
  @%p bra out;
  st.u64 [%d3], %d2; st.u32 [%d3+8], %r2;
  { .param .b64 a; .param .b64 b; .param .b32 e;
    st.param.b64 [a], %d3; st.param.b64 [b], %d1;
    call.uni (e), __cuda_syscall_cnpv2LaunchDeviceV2, (a, b);
    ld.param.b32 %r3, [e]; }
out:
  st.param.b32 [r], %r3;
  ret;
}
.func append(.param .b64 log, .param .b32 tag)
{
  .reg .b32 %r<2>; .reg .b64 %d<3>;
  ld.param.u64 %d0, [log]; ld.param.u32 %r0, [tag];
  atom.add.u32 %r1, [%d0], 1;
  mul.wide.u32 %d1, %r1, 4; add.u64 %d2, %d0, %d1;
  st.u32 [%d2+4], %r0;
  ret;
}
.visible .entry note(.param .u64 log, .param .u32 tag)
{
  .reg .b32 %r0; .reg .b64 %d0;
  ld.param.u64 %d0, [log]; ld.param.u32 %r0, [tag];
  { .param .b64 a; .param .b32 b; st.param.b64 [a], %d0; st.param.b32 [b], %r0;
    call.uni append, (a, b); }
  ret;
}
)";

// Statements, each in a scope of its own. %d0: the log. Results: %r9, %d9.
std::string word(const char* name, const std::string& value, int bits) {
  const std::string type = "b" + std::to_string(bits);
  return ".param ." + type + " " + name + "; st.param." + type + " [" + name + "], " + value +
         ";\n";
}
std::string start(const std::string& kernel, const std::string& stream, const std::string& tag,
                  const std::string& threads = "1", const std::string& shared = "0") {
  return "mov.u64 %d8, " + kernel + ";\n{ " + word("a", "%d8", 64) + word("b", threads, 32) +
         word("c", shared, 32) + word("d", stream, 64) + word("e", "%d0", 64) + word("f", tag, 32) +
         ".param .b32 g; call.uni (g), start, (a, b, c, d, e, f); ld.param.b32 %r9, [g]; }\n";
}
std::string append(const std::string& tag) {
  return "{ " + word("a", "%d0", 64) + word("b", tag, 32) + "call.uni append, (a, b); }\n";
}
// Calls __cuda_syscall_cnpv2NAME with arguments "64:%d1" or "32:7", and appends its result.
std::string ask(const std::string& name, const std::vector<std::string>& arguments) {
  std::string text = "{ ", names;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string letter = "a" + std::to_string(i);
    text += word(letter.c_str(), arguments[i].substr(3), std::stoi(arguments[i]));
    names += (i == 0 ? "" : ", ") + letter;
  }
  return text + ".param .b32 r0; call.uni (r0), __cuda_syscall_cnpv2" + name + ", (" + names +
         "); ld.param.b32 %r9, [r0]; }\n" + append("%r9");
}
std::string kernel(const std::string& name, const std::string& body) {
  return ".visible .entry " + name +
         "(.param .u64 log, .param .u32 tag) {\n.local .align 8 .b8 place[64];\n"
         ".reg .b32 %r<20>; .reg .b64 %d<20>; .reg .pred %p<4>;\n"
         "ld.param.u64 %d0, [log]; ld.param.u32 %r0, [tag]; cvta.local.u64 %d1, place;\n" +
         body + "ret;\n}\n";
}

class DeviceSideLaunch : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(library(), nullptr) << dlerror();
    ASSERT_EQ(CALL(cuInit, 0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuCtxCreate_v2, &context_, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuMemAlloc_v2, &log_, kLogWords * 4), CUDA_SUCCESS);
    clear();
  }
  void TearDown() override { EXPECT_EQ(CALL(cuCtxDestroy_v2, context_), CUDA_SUCCESS); }

  void clear() {
    ASSERT_EQ(CALL(cuMemsetD8_v2, log_, 0, kLogWords * 4), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuCtxSynchronize), CUDA_SUCCESS);
  }
  CUresult load(const std::string& kernels) {
    return CALL(cuModuleLoadData, &module_, (kHead + kernels).c_str());
  }
  // Runs kernel `name`(log, tag) to its end.
  CUresult run(const char* name, unsigned tag = 0, unsigned threads = 1) {
    CUfunction function = nullptr;
    EXPECT_EQ(CALL(cuModuleGetFunction, &function, module_, name), CUDA_SUCCESS) << name;
    void* parameters[] = {&log_, &tag};
    const CUresult launched =
        CALL(cuLaunchKernel, function, 1, 1, 1, threads, 1, 1, 0, nullptr, parameters, nullptr);
    return launched == CUDA_SUCCESS ? CALL(cuCtxSynchronize) : launched;
  }
  std::vector<unsigned> log() {
    unsigned words[kLogWords] = {};
    EXPECT_EQ(CALL(cuMemcpyDtoH_v2, words, log_, sizeof words), CUDA_SUCCESS);
    return {words + 1, words + 1 + std::min<std::size_t>(words[0], kLogWords - 1)};
  }

  static constexpr std::size_t kLogWords = 4096;
  using Log = std::vector<unsigned>;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUdeviceptr log_ = 0;
};

// In each stream, launches run in order. A grid's descendants run before the work behind the grid.
// The tail stream runs after all of them, even if it was used first.
TEST_F(DeviceSideLaunch, ChildrenRunInStreamOrderBeforeNextWork) {
  ASSERT_EQ(
      load(kernel("twig", start("note", "3", "29") + start("note", "4", "21") +
                              start("note", "0", "22") + append("2")) +
           kernel("tree", start("note", "3", "8") + start("note", "0", "1") +
                              ask("StreamCreate", {"64:%d1", "32:1"}) +
                              "ld.local.u64 %d2, [place];\n" + start("twig", "%d2", "0") +
                              ask("StreamDestroy", {"64:%d2"}) + start("note", "2", "3") +
                              start("twig", "3", "0") + start("note", "3", "9") + append("100"))),
      CUDA_SUCCESS);
  ASSERT_EQ(run("tree"), CUDA_SUCCESS);
  EXPECT_EQ(log(), (Log{0, 0, 100, 1, 2, 21, 22, 29, 3, 8, 2, 21, 22, 29, 9}));
}

// The host sees a launch complete only when all its descendants are, also by event.
TEST_F(DeviceSideLaunch, HostEventWaitsForAllChildren) {
  std::string chain;
  for (int i = 0; i < 20; ++i) chain += start("note", "0", std::to_string(i));
  ASSERT_EQ(load(kernel("chain", chain)), CUDA_SUCCESS);
  CUstream stream = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  CUfunction function = nullptr;
  ASSERT_EQ(CALL(cuModuleGetFunction, &function, module_, "chain"), CUDA_SUCCESS);
  unsigned tag = 0, count = 0;
  void* parameters[] = {&log_, &tag};
  ASSERT_EQ(CALL(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr),
            CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuEventRecord, event, stream), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuEventSynchronize, event), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuMemcpyDtoHAsync_v2, &count, log_, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuStreamSynchronize, stream), CUDA_SUCCESS);
  EXPECT_EQ(count, 20U);
}

TEST_F(DeviceSideLaunch, InvalidLaunchesReturnErrorCodes) {
  const std::string wrong =
      start("note", "0", "0", "0") + append("%r9") + start("note", "0", "0", "2048") +
      append("%r9") + start("small", "0", "0", "65") + append("%r9") +
      start("exact", "0", "0", "16") + append("%r9") + start("note", "0", "0", "1", "1048576") +
      append("%r9") + start("note", "4711", "0") + append("%r9") + start("counter", "0", "0") +
      append("%r9") + ask("GetLastError", {}) + ask("SetLastError", {"32:0"}) +
      ask("GetLastError", {}) + ask("LaunchDeviceV2", {"64:%d0", "64:0"}) +
      start("pair", "0", "0", "2") + append("%r9");
  ASSERT_EQ(load(".global .align 8 .u64 counter;\n"
                 ".visible .entry small() .maxntid 64, 1, 1 { ret; }\n"
                 ".visible .entry exact() .reqntid 8, 4, 1 { ret; }\n"
                 ".visible .entry pair() .reqnctapercluster 2, 1, 1 { ret; }\n" +
                 kernel("wrong", wrong)),
            CUDA_SUCCESS);
  ASSERT_EQ(run("wrong"), CUDA_SUCCESS);
  EXPECT_EQ(log(), (Log{7, 7, 6, 1, 7, 1, 1000, 1, 0, 0, 1, 14}));
}

TEST_F(DeviceSideLaunch, ValidatesStreamsAndEvents) {
  const std::string use =
      ask("StreamCreate", {"64:%d1", "32:0"}) + ask("EventCreate", {"64:%d1", "32:0"}) +
      ask("StreamCreate", {"64:0", "32:1"}) + ask("StreamCreate", {"64:%d1", "32:1"}) +
      "ld.local.u64 %d2, [place];\n" + ask("EventCreate", {"64:%d1", "32:2"}) +
      "ld.local.u64 %d3, [place];\n" + ask("EventRecord", {"64:%d3", "64:%d2"}) +
      ask("StreamWaitEvent", {"64:0", "64:%d3", "32:0"}) +
      ask("StreamWaitEvent", {"64:0", "64:%d2", "32:0"}) + ask("EventRecord", {"64:%d3", "64:3"}) +
      ask("EventRecord", {"64:%d3", "64:4"}) + ask("EventDestroy", {"64:%d3"}) +
      ask("EventDestroy", {"64:%d3"}) + ask("StreamDestroy", {"64:%d2"}) +
      start("note", "%d2", "0") + append("%r9");
  ASSERT_EQ(load(kernel("use", use)), CUDA_SUCCESS);
  ASSERT_EQ(run("use"), CUDA_SUCCESS);
  EXPECT_EQ(log(), (Log{1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 1, 0, 1}));
}

// Handles and buffers that a kernel makes and never uses are bounded, and end with its grid.
TEST_F(DeviceSideLaunch, LimitsHandlesAndBuffersOfGrid) {
  const auto until_refused = [](const std::string& call, const std::string& refused) {
    static int label = 0;
    const std::string name = "more" + std::to_string(++label);
    return "mov.u32 %r1, 0;\n" + name + ":\n" + call + "add.u32 %r1, %r1, 1;\n" + refused +
           "@!%p1 bra " + name + ";\n" + append("%r1");
  };
  const auto created = [&](const std::string& what, const std::string& flags) {
    return until_refused("{ " + word("a", "%d1", 64) + word("b", flags, 32) +
                             ".param .b32 r; call.uni (r), __cuda_syscall_cnpv2" + what +
                             "Create, (a, b); ld.param.b32 %r2, [r]; }\n",
                         "setp.ne.u32 %p1, %r2, 0;\n");
  };
  const std::string buffers = until_refused(
      "{ " + word("a", "16", 32) + word("b", "16", 32) +
          ".param .b64 r; call.uni (r), __cuda_syscall_cnpv2GetParameterBuffer, (a, b);\n"
          "ld.param.b64 %d2, [r]; }\n",
      "setp.eq.u64 %p1, %d2, 0;\n");
  ASSERT_EQ(load(kernel("much", created("Stream", "1") + append("%r2") + created("Event", "2") +
                                    buffers + ask("GetLastError", {}))),
            CUDA_SUCCESS);
  for (int round = 0; round < 2; ++round) {
    clear();
    ASSERT_EQ(run("much"), CUDA_SUCCESS);
    EXPECT_EQ(log(), (Log{65537, 4, 65537, 65537, 2}));
  }
}

// The first form: the launch names function, buffer and dimensions.
TEST_F(DeviceSideLaunch, AcceptsFirstLaunchForm) {
  const std::string launch =
      "st.local.u32 [place], 3; st.local.u32 [place+4], 1; st.local.u32 [place+8], 1;\n"
      "st.local.u32 [place+12], 2; st.local.u32 [place+16], 1; st.local.u32 [place+20], 1;\n"
      "add.u64 %d3, %d1, 12; mov.u64 %d4, note;\n";
  const std::string buffer =
      "{ .param .b32 a; .param .b32 b; .param .b64 r; st.param.b32 [a], 64; st.param.b32 [b], 12;\n"
      "call.uni (r), __cuda_syscall_cnpv2GetParameterBuffer, (a, b); ld.param.b64 %d2, [r]; }\n"
      "st.u64 [%d2], %d0; st.u32 [%d2+8], 5;\n";
  const std::string now =
      ask("LaunchDevice", {"64:%d4", "64:%d2", "64:%d1", "64:%d3", "32:0", "64:0"});
  ASSERT_EQ(load(kernel("first", launch + buffer + now + now)), CUDA_SUCCESS);
  ASSERT_EQ(run("first"), CUDA_SUCCESS);
  EXPECT_EQ(log(), (Log{0, 1, 5, 5, 5, 5, 5, 5}));  // A buffer is for one launch.
}

TEST_F(DeviceSideLaunch, EnforcesPendingLaunchLimit) {
  std::string five;
  for (int i = 0; i < 5; ++i) five += start("note", "0", "77") + append("%r9");
  ASSERT_EQ(load(kernel("five", five)), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuCtxSetLimit, CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 3), CUDA_SUCCESS);
  for (int round = 0; round < 2; ++round) {  // Completed launches no longer count.
    clear();
    ASSERT_EQ(run("five"), CUDA_SUCCESS);
    EXPECT_EQ(log(), (Log{0, 0, 0, 12, 12, 77, 77, 77}));
  }
}

// 24 levels below the host's launch. A tail launch replaces its grid, so a chain of them has no
// bound.
TEST_F(DeviceSideLaunch, ChildrenNestUpTo24Levels) {
  ASSERT_EQ(
      load(kernel("deeper", "add.u32 %r1, %r0, 1;\n" + append("%r0") + start("deeper", "0", "%r1") +
                                append("%r9")) +
           kernel("again", "setp.eq.u32 %p1, %r0, 0;\n@%p1 bra done;\nsub.u32 %r1, %r0, 1;\n" +
                               start("again", "3", "%r1") + append("%r9") + "done:\n")),
      CUDA_SUCCESS);
  ASSERT_EQ(run("deeper"), CUDA_SUCCESS);
  const Log levels = log();
  ASSERT_EQ(levels.size(), 50U);
  for (unsigned level = 0; level < 25; ++level) {
    EXPECT_EQ(levels[2 * level], level);
    EXPECT_EQ(levels[2 * level + 1], level < 24 ? 0U : 5U);
  }
  clear();
  ASSERT_EQ(run("again", 300), CUDA_SUCCESS);
  EXPECT_EQ(log(), Log(300, 0));
}

TEST_F(DeviceSideLaunch, ChildFaultEndsContext) {
  ASSERT_EQ(load(".visible .entry stop() { trap; }\n" +
                 kernel("parent", start("stop", "0", "0") + start("note", "0", "1"))),
            CUDA_SUCCESS);
  CUcontext other = nullptr;
  EXPECT_EQ(run("parent"), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(CALL(cuCtxSynchronize), CUDA_ERROR_LAUNCH_FAILED);
  ASSERT_EQ(CALL(cuCtxCreate_v2, &other, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(load(kernel("parent", start("note", "0", "1"))), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuMemAlloc_v2, &log_, kLogWords * 4), CUDA_SUCCESS);
  clear();
  EXPECT_EQ(run("parent"), CUDA_SUCCESS);
  EXPECT_EQ(log(), Log{1});
  EXPECT_EQ(CALL(cuCtxDestroy_v2, other), CUDA_SUCCESS);
}

// A program does not check a launch that would succeed on a GPU. A launch of a kernel that cannot
// be translated therefore ends the context. A wild pointer for a result is a fault of the kernel,
// which leaves the device usable.
TEST_F(DeviceSideLaunch, UntranslatableChildEndsContext) {
  ASSERT_EQ(load(".visible .entry odd() { tcgen05.wait::ld.sync.aligned; ret; }\n" +
                 kernel("parent", start("odd", "0", "0"))),
            CUDA_SUCCESS);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run("parent"), CUDA_ERROR_INVALID_PTX);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("kernel odd cannot run: "), std::string::npos) << said;

  CUcontext other = nullptr;
  ASSERT_EQ(CALL(cuCtxCreate_v2, &other, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(load(kernel("wild", ask("StreamCreate", {"64:64", "32:1"}))), CUDA_SUCCESS);
  EXPECT_EQ(run("wild"), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(CALL(cuCtxDestroy_v2, other), CUDA_SUCCESS);
}

TEST_F(DeviceSideLaunch, KernelWithoutDeviceRuntimeIsRefused) {
  ASSERT_EQ(load(".extern .func (.param .b32 r) cudaFree(.param .b64 p);\n" +
                 kernel("lacks", "{ " + word("a", "0", 64) +
                                     ".param .b32 r; call.uni (r), cudaFree, (a); }\n")),
            CUDA_SUCCESS);
  CUfunction function = nullptr;
  testing::internal::CaptureStderr();
  EXPECT_EQ(CALL(cuModuleGetFunction, &function, module_, "lacks"), CUDA_ERROR_INVALID_PTX);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("without CUDA's device runtime"), std::string::npos) << said;
}

// Each thread has its own last error, which starts as success.
TEST_F(DeviceSideLaunch, LastErrorIsPerThread) {
  const std::string set =
      "mov.u32 %r1, %tid.x; add.u32 %r2, %r1, 100;\n{ " + word("a", "%r2", 32) +
      ".param .b32 r0; call.uni (r0), __cuda_syscall_cnpv2SetLastError, (a); }\nbar.sync 0;\n"
      "{ .param .b32 r0; call.uni (r0), __cuda_syscall_cnpv2GetLastError, ();\n"
      "ld.param.b32 %r3, [r0]; }\nsetp.ne.u32 %p1, %r2, %r3;\n@%p1 bra wrong;\nret;\nwrong:\n" +
      append("%r3");
  ASSERT_EQ(load(kernel("each", set) + kernel("fresh", ask("GetLastError", {}))), CUDA_SUCCESS);
  ASSERT_EQ(run("each", 0, 64), CUDA_SUCCESS);
  EXPECT_EQ(log(), Log{});
  ASSERT_EQ(run("fresh", 0, 64), CUDA_SUCCESS);
  EXPECT_EQ(log(), Log(64, 0));
}

TEST_F(DeviceSideLaunch, ReportsKernelAndDeviceAttributes) {
  const auto value = [](const std::string& call, const std::vector<std::string>& arguments) {
    return ask(call, arguments) + "ld.local.u32 %r10, [place];\n" + append("%r10");
  };
  ASSERT_EQ(
      load(".visible .entry small() .maxntid 64, 1, 1 {\n"
           ".shared .align 4 .b8 s[40]; .reg .b32 %r0; ld.shared.u32 %r0, [s]; ret; }\n" +
           kernel("ask", "mov.u64 %d2, small;\n" +
                             value("FuncGetAttribute", {"64:%d1", "32:0", "64:%d2"}) +
                             value("FuncGetAttribute", {"64:%d1", "32:1", "64:%d2"}) +
                             value("FuncGetAttribute", {"64:%d1", "32:5", "64:%d2"}) +
                             ask("FuncGetAttribute", {"64:%d1", "32:77", "64:%d2"}) +
                             value("DeviceGetAttribute", {"64:%d1", "32:10", "32:0"}) +
                             ask("DeviceGetAttribute", {"64:%d1", "32:10", "32:9"}) +
                             value("GetDeviceCount", {"64:%d1"}) + value("GetDevice", {"64:%d1"}) +
                             value("GetLimit", {"64:%d1", "32:4"}) +
                             ask("GetLimit", {"64:%d1", "32:99"}) +
                             value("MaxActiveBlocksPerMultiprocessor",
                                   {"64:%d1", "64:%d2", "32:64", "64:0"}))),
      CUDA_SUCCESS);
  ASSERT_EQ(run("ask"), CUDA_SUCCESS);
  CUfunction small = nullptr;
  int blocks = 0;
  ASSERT_EQ(CALL(cuModuleGetFunction, &small, module_, "small"), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, small, 64, 0), CUDA_SUCCESS);
  EXPECT_EQ(log(), (Log{0, 64, 0, 40, 0, 80, 1, 0, 32, 3, 0, 1, 0, 0, 0, 2048, 13, 0,
                        static_cast<unsigned>(blocks)}));
}

// What a program sets for a function holds for launches of it by kernels.
TEST_F(DeviceSideLaunch, HostSettingRaisesChildSharedMemory) {
  ASSERT_EQ(load(kernel("large", start("note", "0", "1", "1", "65536") + append("%r9"))),
            CUDA_SUCCESS);
  ASSERT_EQ(run("large"), CUDA_SUCCESS);
  CUfunction note = nullptr;
  ASSERT_EQ(CALL(cuModuleGetFunction, &note, module_, "note"), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuFuncSetAttribute, note, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536),
            CUDA_SUCCESS);
  ASSERT_EQ(run("large"), CUDA_SUCCESS);
  EXPECT_EQ(log(), (Log{7, 0, 1}));
}

// The watchdog measures a grid and its descendants together.
TEST_F(DeviceSideLaunch, WatchdogCountsDescendantsTogether) {
  ASSERT_EQ(load(kernel("again", start("again", "3", "0"))), CUDA_SUCCESS);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run("again"), CUDA_ERROR_LAUNCH_TIMEOUT);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("together with kernel again, which launched it (number "), std::string::npos)
      << said;
}

}  // namespace
