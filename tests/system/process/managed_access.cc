// Managed access: the host touches managed memory while work is under way, and when it may.
#include <sys/mman.h>

#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstring>

#include "tests/system/process/cases.h"

namespace process_cases {
namespace {

// Writes 7 to its parameter after a tenth of a second. So it is still under way when the host
// touches memory behind its launch, also on a busy machine.
constexpr const char* kImage = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry put_seven(.param .u64 to)
{
 .reg .pred %p<2>;
 .reg .b32 %r<2>;
 .reg .b64 %rd<5>;
 ld.param.u64 %rd1, [to];
 cvta.to.global.u64 %rd2, %rd1;
 mov.u64 %rd3, %globaltimer;
 add.u64 %rd3, %rd3, 100000000;
AGAIN:
 mov.u64 %rd4, %globaltimer;
 setp.lt.u64 %p1, %rd4, %rd3;
 @%p1 bra AGAIN;
 mov.u32 %r1, 7;
 st.global.u32 [%rd2], %r1;
 ret;
}
)";

constexpr std::size_t kBytes = 20'000;
constexpr std::size_t kWord = 1'000;  // An index of words.

CUdeviceptr managed(unsigned flags = CU_MEM_ATTACH_GLOBAL) {
  CUdeviceptr memory = 0;
  MUST(cuMemAllocManaged(&memory, kBytes, flags));
  return memory;
}

volatile unsigned* words_at(CUdeviceptr memory) { return reinterpret_cast<unsigned*>(memory); }

void put_seven(CUdeviceptr memory, CUstream stream = nullptr) {
  static CUfunction kernel = [] {
    CUmodule module = nullptr;
    CUfunction found = nullptr;
    MUST(cuModuleLoadData(&module, kImage));
    MUST(cuModuleGetFunction(&found, module, "put_seven"));
    return found;
  }();
  void* parameters[] = {&memory};
  MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
}

// For a while, because accesses beside an exchange of changes are not found.
void write_on(volatile unsigned* word, unsigned value) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (std::chrono::steady_clock::now() < end) *word = value;
}

CUstream new_stream() {
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

void touch_behind_launch() {
  const CUdeviceptr memory = managed();
  put_seven(memory);
  write_on(words_at(memory) + kWord, 5);
  words_at(memory)[kWord + 1] = words_at(memory)[kWord];  // Reported once for each launch.
  MUST(cuCtxSynchronize());
  EXPECT(words_at(memory)[0] == 7 && words_at(memory)[kWord + 1] == 5);
}

void touch_behind_fill() {
  const CUdeviceptr memory = managed();
  CUstream stream = new_stream();
  put_seven(memory, stream);  // Holds the fill up.
  MUST(cuMemsetD8Async(memory, 3, 4, stream));
  write_on(words_at(memory) + kWord, 0);
  MUST(cuStreamSynchronize(stream));
  EXPECT(words_at(memory)[0] == 0x03030303);
}

void touch_behind_waits() {
  const CUdeviceptr memory = managed();
  CUstream stream = new_stream();
  words_at(memory)[kWord] = 4;
  for (unsigned i = 0; i < 3; ++i) {
    put_seven(memory, stream);
    MUST(cuStreamSynchronize(stream));
    EXPECT(words_at(memory)[0] == 7);
    words_at(memory)[0] = i;
  }
  put_seven(memory);
  while (cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY) {
  }
  EXPECT(words_at(memory)[0] == 7 && words_at(memory)[kWord] == 4);
}

void touch_memory_of_the_host() {
  const CUdeviceptr host = managed(CU_MEM_ATTACH_HOST), memory = managed();
  put_seven(memory);
  words_at(host)[0] = 2;
  MUST(cuCtxSynchronize());
  EXPECT(words_at(host)[0] == 2 && words_at(memory)[0] == 7);
}

void touch_memory_of_a_stream(bool with_work) {
  const CUdeviceptr memory = managed(), other = managed();
  CUstream stream = new_stream(), other_stream = new_stream();
  MUST(cuStreamAttachMemAsync(stream, memory, 0, CU_MEM_ATTACH_SINGLE));
  MUST(cuStreamSynchronize(stream));
  put_seven(other, other_stream);
  words_at(memory)[0] = 1;
  if (with_work) {
    put_seven(memory, stream);
    write_on(words_at(memory) + kWord, 1);
  }
  MUST(cuCtxSynchronize());
  EXPECT(words_at(memory)[0] == (with_work ? 7 : 1) && words_at(other)[0] == 7);
}

// The program makes its own pages accessible in a handler, as garbage collectors do.
char* own_page = nullptr;
int own_faults = 0;
void open_own_page(int, siginfo_t* info, void*) {
  if (info->si_addr != own_page) _exit(4);
  ++own_faults;
  mprotect(own_page, 4096, PROT_READ | PROT_WRITE);
}

void own_handler() {
  own_page = static_cast<char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const CUdeviceptr memory = managed();
  struct sigaction own {};
  own.sa_sigaction = &open_own_page;
  own.sa_flags = SA_SIGINFO;
  for (int i = 0; i < 2; ++i) {
    sigaction(SIGSEGV, &own, nullptr);  // The second time after work was issued.
    put_seven(memory);
    write_on(words_at(memory) + kWord, 5);
    mprotect(own_page, 4096, PROT_NONE);
    *own_page = 1;
    EXPECT(own_faults == i + 1);
  }
  MUST(cuCtxSynchronize());
}

}  // namespace

// Word: the access.
void managed_access() {
  use_device();
  const std::string what = word(0);
  if (what == "launch") touch_behind_launch();
  if (what == "fill") touch_behind_fill();
  if (what == "waits") touch_behind_waits();
  if (what == "host") touch_memory_of_the_host();
  if (what == "idle-stream") touch_memory_of_a_stream(false);
  if (what == "stream") touch_memory_of_a_stream(true);
  if (what == "own-handler") own_handler();
  if (what == "crash") {
    put_seven(managed());
    *static_cast<volatile int*>(nullptr) = 1;
  }
}

}  // namespace process_cases
