// Supervisor: starts the program, passes signals on, and waits until it and all that it started
// have ended.
//
// The program stays in gpurun's process group, so that the terminal treats both alike: what is
// typed there (Ctrl-C, Ctrl-Z) reaches the program by itself, and only what somebody sends to
// gpurun's process is passed on. gpurun is a subreaper (prctl(2)): descendants whose parent has
// gone become its children.
//
// One thread, and one Supervisor in a process: it takes the process's signals.
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
  // Blocks the signals that are passed on. kResourceExhausted: no descriptor.
  static Result<std::unique_ptr<Supervisor>> create();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Once. The program is killed when this process dies without having waited for it.
  //   kUnavailable  there is no such file, or its interpreter is missing.
  //   kRefused      the kernel will not execute it.
  Status start(Program program);

  struct Events {
    int link_fd = -1;
    std::function<bool()> on_link;           // It is readable; false: watch it no longer.
    pid_t server = -1;                       // A child that is no part of the program.
    std::function<void(int)> on_server_end;  // With its wait status; it has been reaped.
    std::function<void()> on_left_behind;    // The program has ended, descendants have not.
    // Asked before each wait: milliseconds that it may last; -1: until something happens.
    std::function<int()> on_tick;
  };
  // Returns the program's wait status once it and its descendants have ended. When only descendants
  // are left, a signal that asks to end ends the waiting.
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
