// Supervisor: starts the program, forwards signals to it, and waits until the program and all its
// descendants have ended.
//
// The program stays in gpurun's process group, so that the terminal treats both alike. Keys such as
// Ctrl-C and Ctrl-Z reach the program directly. Only signals that another process sends to gpurun
// are forwarded. gpurun is a subreaper (prctl(2)): descendants become its children when their
// parent ends.
//
// One thread, and one Supervisor in a process, because it takes over the process's signals.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "tools/gpurun/environment.h"

namespace gpurun::tools {

struct Program {
  std::string path;
  std::vector<std::string> command;  // argv; command[0] as the user wrote it.
  Environment environment;
};

class Supervisor {
 public:
  // Blocks the signals that are forwarded. kResourceExhausted: no descriptor.
  static Result<std::unique_ptr<Supervisor>> create();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Call once. The kernel kills the program when this process dies before it has waited for the
  // program.
  //   kUnavailable  there is no such file, or its interpreter is missing.
  //   kRefused      the kernel does not execute it.
  Status start(Program program);

  struct Events {
    int link_fd = -1;
    std::function<bool()> on_link;           // It is readable. False: stop watching it.
    pid_t server = -1;                       // A child that is not part of the program.
    std::function<void(int)> on_server_end;  // Gets its wait status. It has been reaped.
    std::function<void()> on_left_behind;    // The program has ended, but descendants have not.
    // Called before each wait. Returns the longest wait in milliseconds, or -1 for no bound.
    std::function<int()> on_tick;
  };
  // Returns the program's wait status once it and its descendants have ended. When only descendants
  // are left, a signal that asks to end ends the wait.
  Result<int> wait(const Events& events);

 private:
  Supervisor() = default;

  bool reap(const Events& events);
  void pass_on();

  UniqueFd signals_;
  sigset_t mask_before_ = {};
  struct sigaction child_action_before_ = {};
  pid_t program_ = -1;
  bool program_ended_ = false;
  bool told_to_end_ = false;
  int status_ = 0;
};

// Ends this process as the program ended: with its exit status, or by the same signal.
[[noreturn]] void end_like(int wait_status);

}  // namespace gpurun::tools
