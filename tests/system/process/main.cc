// process_program CASE [WORD...]: runs one case, and has the parts that cases share. Prints PASSED
// when a case ends by returning.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/system/process/cases.h"

namespace process_cases {
namespace {

constexpr const char* kImage =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry nothing(.param .u64 a, .param .u32 n)\n{\n ret;\n}\n";

char** words = nullptr;
int word_count = 0;

}  // namespace

void say(const std::string& line) {
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) _exit(9);
}

CUcontext use_device() {
  MUST(cuInit(0));
  CUcontext context = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  return context;
}

CUfunction nothing_kernel() {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  MUST(cuModuleLoadData(&module, kImage));
  MUST(cuModuleGetFunction(&kernel, module, "nothing"));
  return kernel;
}

int try_to_compute(unsigned char value) {
  constexpr std::size_t kBytes = 100'000;
  CUdeviceptr memory = 0;
  std::vector<unsigned char> sent(kBytes / 2, static_cast<unsigned char>(value + 1));
  std::vector<unsigned char> got(kBytes);
  int result = cuMemAlloc_v2(&memory, kBytes);
  if (result == 0) result = cuMemsetD8_v2(memory, value, kBytes);
  if (result == 0) result = cuMemcpyHtoD_v2(memory, sent.data(), sent.size());
  if (result == 0) result = cuMemcpyDtoH_v2(got.data(), memory, kBytes);
  if (result == 0) result = cuMemFree_v2(memory);
  if (result != 0) return result;
  const std::vector<unsigned char> rest(kBytes - sent.size(), value);
  EXPECT(std::memcmp(got.data(), sent.data(), sent.size()) == 0);
  EXPECT(std::memcmp(got.data() + sent.size(), rest.data(), rest.size()) == 0);
  return 0;
}

void compute(unsigned char value) { MUST(try_to_compute(value)); }

std::string end_of(pid_t child) {
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? "exit " + std::to_string(WEXITSTATUS(status))
                           : "signal " + std::to_string(WTERMSIG(status));
}

std::string word(unsigned n) {
  return static_cast<int>(n) + 2 < word_count ? words[n + 2] : std::string();
}

void work() {
  use_device();
  compute(7);
}

}  // namespace process_cases

int main(int argc, char** argv) {
  using namespace process_cases;
  words = argv;
  word_count = argc;
  struct Case {
    const char* name;
    void (*run)();
  };
#define PROCESS_ROW(name) {#name, name},
  constexpr Case kCases[] = {PROCESS_CASES(PROCESS_ROW)};
#undef PROCESS_ROW
  for (const Case& each : kCases) {
    if (argc < 2 || std::strcmp(argv[1], each.name) != 0) continue;
    each.run();
    say("PASSED\n");
    return 0;
  }
  return 2;
}
