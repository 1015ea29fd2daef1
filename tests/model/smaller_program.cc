// Smaller programs: runs a failing program again and again, with one step less, each time in its
// own process.
#include "tests/model/smaller_program.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/model/report.h"

namespace gpurun::model {
namespace {

bool fails(const CudaProgram& program) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    setenv("GPURUN_MODEL_PROGRAM", text_of(program).c_str(), 1);
    setenv("GPURUN_MODEL_EXECUTIONS", "200", 1);
    setenv("GPURUN_MODEL_SEED", "1", 1);
    setenv("GPURUN_MODEL_AS_IT_IS", "1", 1);
    static_cast<void>(std::freopen("/dev/null", "w", stdout));
    static_cast<void>(std::freopen("/dev/null", "w", stderr));
    execl("/proc/self/exe", "order_model", "programs", nullptr);
    _exit(2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

}  // namespace

CudaProgram& failing_program() {
  static CudaProgram one;
  return one;
}

std::string explain_program() {
  const CudaProgram& failing = failing_program();
  if (failing.empty()) return "";
  std::string text = "the program: " + text_of(failing);
  const bool as_it_is = std::getenv("GPURUN_MODEL_AS_IT_IS") != nullptr;
  if (as_it_is || report::finds != nullptr) return text;
  CudaProgram smaller = failing;
  for (std::size_t i = smaller.size(); i-- > 0;) {
    CudaProgram without = smaller;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    if (!without.empty() && fails(without)) smaller = without;
  }
  if (smaller.size() < failing.size()) text += "\n as small: " + text_of(smaller);
  return text;
}

}  // namespace gpurun::model
