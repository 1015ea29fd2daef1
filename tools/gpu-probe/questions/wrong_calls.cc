// Question: what does every wrong call of the table return? Each call runs in a process of its own,
// a few at a time.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "child.h"
#include "questions/questions.h"
#include "wrong_call.h"

namespace gpurun::probe {
namespace {

constexpr int kSecondsPerCall = 20;

// Makes the call in the child. Exit code 0 and the CUresult as text, or the reason why it could not
// be made.
int make_call(const std::string& libcuda, const WrongCall& call, int fd) {
  std::string line;
  try {
    const Driver driver(libcuda);
    WrongStage stage(driver, call.level);
    line = std::to_string(static_cast<int>((stage.*call.make)()));
  } catch (const MissingFunction& missing) {
    line = "missing " + missing.name;
  } catch (const CallFailed& failed) {
    line = "before it " + failed.call + " gave " + std::to_string(static_cast<int>(failed.result));
  }
  return write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()) ? 0 : 5;
}

// Compares the result with the expected one. nullptr: there is nothing to compare, because no
// source gives a code, or the call could not be made.
const char* verdict(const WrongCall& call, bool made, const std::string& output) {
  if (call.expected == kOpen || !made) return nullptr;
  return output == std::to_string(call.expected) ? "as expected" : "differs";
}

Json report(const WrongCall& call, const ChildResult& result) {
  const std::string failure = failure_of(result);
  const bool is_code =
      failure.empty() && result.output.find_first_not_of("0123456789") == std::string::npos;
  const Json got = !failure.empty() ? Json::text(failure)
                   : is_code ? Json::result(static_cast<CUresult>(std::atoi(result.output.c_str())))
                             : Json::text(result.output);
  const char* compared = verdict(call, is_code || !failure.empty(), result.output);
  return Json::object(
      {{"function", Json::text(call.function)},
       {"how", Json::text(call.how)},
       {"got", got},
       {"expected", call.expected == kOpen ? Json::null() : Json::integer(call.expected)},
       {"source", Json::text(call.source)},
       {"lacking", Json::text(call.lacking)},
       {"verdict", compared == nullptr ? Json::null() : Json::text(compared)}});
}

}  // namespace

void ask_wrong_calls(const std::string& libcuda, Answer* answer) {
  std::vector<const WrongCall*> calls;
  for (const WrongCall& call : wrong_calls()) calls.push_back(&call);
  answer->fact("count", Json::integer(static_cast<std::int64_t>(calls.size())));
  // Helpers are processes, not threads, because a forking process must hold no other thread's lock.
  // Their lines are shorter than what a pipe writes in one piece.
  constexpr std::size_t kHelpers = 8;
  std::vector<pid_t> helpers;
  for (std::size_t helper = 0; helper < kHelpers; ++helper) {
    const pid_t pid = fork();
    if (pid == 0) {
      for (std::size_t i = helper; i < calls.size(); i += kHelpers) {
        const ChildResult result = run_child(kSecondsPerCall, [&libcuda, &calls, i](int fd) {
          return make_call(libcuda, *calls[i], fd);
        });
        char name[32];
        std::snprintf(name, sizeof name, "call.%03zu", i);
        answer->fact(name, report(*calls[i], result));
      }
      _exit(0);
    }
    if (pid > 0) helpers.push_back(pid);
  }
  for (const pid_t pid : helpers) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (!WIFEXITED(status)) answer->unanswerable("a helper process died; its calls are missing");
  }
}

}  // namespace gpurun::probe
