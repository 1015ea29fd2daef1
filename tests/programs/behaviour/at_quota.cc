// Driver API: at quota. Two processes of one program share a device's memory. Memory of one is
// missing for the other, to the last piece. Memory that one frees, or held when it was killed,
// becomes available to the other. Prints the number of pieces each time.
//
// Without gpurun nothing gives the processes their shared state, so the program makes it: the
// emulated device's ledger.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "driver_test.h"

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Question {
  char what;
  std::size_t count;  // Pieces. For 'a' the maximum.
  std::size_t bytes;  // The size of each.
};

// Runs in a process of its own: executes each request, and replies with a number.
int serve(int from, int to) {
  MUST(cuInit(0));
  CUcontext context;
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  std::vector<CUdeviceptr> all;
  Question asked;
  while (read(from, &asked, sizeof asked) == sizeof asked) {
    std::size_t answer = 0;
    CUdeviceptr piece = 0;
    CUresult result = CUDA_SUCCESS;
    std::size_t total = 0;
    switch (asked.what) {
      case 'a':  // Allocates.
        while (answer < asked.count && (result = cuMemAlloc(&piece, asked.bytes)) == 0) {
          MUST(cuMemsetD8(piece + asked.bytes - 16, 1, 16));
          all.push_back(piece);
          ++answer;
        }
        EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
        break;
      case 'f':  // Frees the last ones, after work that uses them.
        for (; answer < asked.count && !all.empty(); ++answer, all.pop_back()) {
          MUST(cuMemsetD8Async(all.back(), 2, 16, nullptr));
          MUST(cuMemFree(all.back()));
        }
        break;
      case 'i':
        MUST(cuMemGetInfo(&answer, &total));
        break;
    }
    if (write(to, &answer, sizeof answer) != sizeof answer) return 1;
  }
  return 0;
}

class Process {
 public:
  Process() {
    int down[2], up[2];
    EXPECT(pipe(down) == 0 && pipe(up) == 0);
    to_ = down[1];
    from_ = up[0];
    pid_ = fork();
    EXPECT(pid_ >= 0);
    if (pid_ == 0) {
      close(to_);
      close(from_);
      const std::string ends[] = {std::to_string(down[0]), std::to_string(up[1])};
      execl("/proc/self/exe", "at_quota", ends[0].c_str(), ends[1].c_str(), nullptr);
      _exit(127);
    }
    close(down[0]);
    close(up[1]);
  }
  ~Process() {
    close(to_);
    close(from_);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  // Kills the process, and does not reap it.
  void kill() { EXPECT(::kill(pid_, SIGKILL) == 0); }
  void await_end() {
    siginfo_t how;
    EXPECT(waitid(P_PID, static_cast<id_t>(pid_), &how, WEXITED | WNOWAIT) == 0);
  }

  std::size_t operator()(char what, std::size_t count = 0, std::size_t bytes = 0) {
    const Question question{what, count, bytes};
    std::size_t answer = 0;
    EXPECT(write(to_, &question, sizeof question) == sizeof question);
    EXPECT(read(from_, &answer, sizeof answer) == sizeof answer);
    return answer;
  }
  std::size_t all(std::size_t bytes) { return (*this)('a', ~std::size_t{0}, bytes); }
  void free_all() { (*this)('f', ~std::size_t{0}); }

 private:
  int to_ = -1, from_ = -1;
  pid_t pid_ = 0;
};

void share_natively() {
  if (getenv("GPURUN_SESSION") != nullptr) return;
  const int ledger = memfd_create("ledger", 0);
  EXPECT(ledger >= 0);
  const char* device = getenv("GPURUN_EMULATED");
  const std::string more = std::string(device == nullptr ? "" : device) + ";ledger=";
  setenv("GPURUN_EMULATED", (more + std::to_string(ledger)).c_str(), 1);
}

// Through gpurun, memory that one process has just returned may still be on its way when the other
// queries it.
void show_free(Process& first, Process& second) {
  std::size_t of_first = first('i'), of_second = second('i');
  for (int again = 0; of_first != of_second && again < 1000; ++again) {
    of_first = first('i');
    of_second = second('i');
  }
  std::printf("free: %zu of the first, %zu of the second\n", of_first, of_second);
}

void test(std::size_t bytes) {
  std::printf("== pieces of %zu bytes\n", bytes);
  const auto one_more = [bytes](Process& a, Process& b) {
    const std::size_t of_a = a('a', 1, bytes);
    std::printf("one more: %zu, %zu\n", of_a, b('a', 1, bytes));
  };
  Process second;
  Process first;
  // The second has had much, and returned it. It may keep some for later.
  std::printf("second alone: %zu\n", second.all(bytes));
  second.free_all();
  std::printf("first: %zu\n", first('a', 150 * kMiB / bytes, bytes));
  std::printf("second beside it: %zu\n", second.all(bytes));
  one_more(first, second);
  show_free(first, second);
  first.free_all();
  std::printf("after the first's frees: %zu\n", second.all(bytes));
  one_more(first, second);
  second.free_all();
  std::printf("the first alone: %zu\n", first.all(bytes));
  first.free_all();
  show_free(first, second);
  std::printf("the second again: %zu\n", second.all(bytes));
  one_more(first, second);
  second.kill();
  second.await_end();
  std::printf("after the second's death: %zu\n", first.all(bytes));
  first.free_all();
  std::printf("free: %zu\n", first('i'));
}

}  // namespace

int main(int argc, char** argv) {
  end_after(100);
  if (argc == 3) return serve(std::atoi(argv[1]), std::atoi(argv[2]));
  share_natively();
  for (const std::size_t bytes : {kMiB, 4 * kMiB, 80 * kMiB}) test(bytes);
  std::printf("PASSED\n");
  return 0;
}
