// Report: a ring of the last steps, and addresses as source lines (addr2line).
#include "tests/model/report.h"

#include <limits.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "tests/model/model.h"
#include "tests/model/runtime.h"

namespace gpurun::model {

namespace report {
std::string how;
std::string (*explain)() = nullptr;
const char* finds = nullptr;
}  // namespace report

namespace {

constexpr std::size_t kStepsKept = 4096;
constexpr std::size_t kStepsShown = 150;

struct Step {
  const char* thread;
  const char* what;
  const void* address;
  std::uint64_t value;
  const void* pc;
};
Step steps[kStepsKept];
std::size_t step_count = 0;

std::uintptr_t program_start() {
  std::uintptr_t start = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* out) {
        *static_cast<std::uintptr_t*>(out) = object->dlpi_addr;
        return 1;
      },
      &start);
  return start;
}

// "function at file:line", or the number if addr2line is missing.
std::string place(const void* pc) {
  if (pc == nullptr) return "?";
  char program[PATH_MAX] = {};
  if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) return "?";
  char command[PATH_MAX + 128];
  std::snprintf(command, sizeof command, "addr2line -Cfpse '%s' %#zx 2>/dev/null", program,
                reinterpret_cast<std::uintptr_t>(pc) - program_start() - 1);
  std::string text;
  if (FILE* from = popen(command, "r"); from != nullptr) {
    char line[1024];
    if (std::fgets(line, sizeof line, from) != nullptr) text = line;
    pclose(from);
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() || text[0] == '?' ? "another library" : text;
}

// `finds` may hold several texts with bars between.
bool is_expected(const std::string& what) {
  std::istringstream all(report::finds);
  for (std::string one; std::getline(all, one, '|');) {
    if (what.find(one) != std::string::npos) return true;
  }
  return false;
}

void show_threads() {
  for (int i = 0; i < world.made; ++i) {
    const Fiber& fiber = world.fibers[i];
    const char* state = "can go on";
    if (fiber.state == Fiber::State::kDone) state = "has ended";
    if (fiber.state == Fiber::State::kBlocked) state = "waits for ";
    std::fprintf(stderr, "  %s %s%s\n", fiber.name, state,
                 fiber.state == Fiber::State::kBlocked ? fiber.waits_for : "");
    if (fiber.state == Fiber::State::kDone) continue;
    for (std::size_t at = fiber.calls.size(); at-- > 0 && fiber.calls.size() - at <= 8;) {
      std::fprintf(stderr, "      %s\n", place(fiber.calls[at]).c_str());
    }
  }
}

void show_steps() {
  const std::size_t first = step_count > kStepsShown ? step_count - kStepsShown : 0;
  for (std::size_t i = first; i < step_count; ++i) {
    const Step& step = steps[i % kStepsKept];
    std::fprintf(stderr, "  %-16s %-22s %p %#llx  %s\n", step.thread, step.what, step.address,
                 static_cast<unsigned long long>(step.value), place(step.pc).c_str());
  }
}

}  // namespace

void trace(const char* what, const void* address, std::uint64_t value, const void* pc) {
  steps[step_count++ % kStepsKept] = {world.current->name, what, address, value, pc};
}

void forget_trace() { step_count = 0; }

void violated(const std::string& what) {
  world.inside = 1;
  world.exploring = false;
  std::string text = report::how + ": " + what;
  if (report::explain != nullptr) text += "\n " + report::explain();
  if (report::finds != nullptr) {
    const bool expected = is_expected(what);
    std::printf("%s: %s\n", expected ? "found" : "FOUND SOMETHING ELSE", text.c_str());
    std::fflush(stdout);
    if (expected) std::_Exit(0);
  }
  std::fprintf(stderr, "VIOLATED in %s\n in the thread %s; the threads:\n", text.c_str(),
               world.current == nullptr ? "none" : world.current->name);
  if (world.current != nullptr) show_threads();
  std::fprintf(stderr, " the last steps:\n");
  show_steps();
  std::_Exit(1);
}

}  // namespace gpurun::model
