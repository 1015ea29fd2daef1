// FaultHandlers: the signal handlers that let faults of device code (SIGSEGV, SIGBUS, SIGFPE,
// SIGILL) end the kernel and not the process. Signals from other code go to the handlers that were
// installed before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace gpurun::emulated {

struct Fault {
  int signal = 0;             // SIGSEGV, ...
  int code = 0;               // si_code
  std::uint64_t address = 0;  // Address touched (SIGSEGV, SIGBUS) or executed.
  std::uint64_t pc = 0;
};

// The handlers are installed while at least one of these objects lives. Then the earlier handlers
// are restored. Any thread.
class FaultHandlers {
 public:
  FaultHandlers();
  ~FaultHandlers();
  FaultHandlers(const FaultHandlers&) = delete;
  FaultHandlers& operator=(const FaultHandlers&) = delete;

  // Installs our handlers again, after a program has installed its own. Ours then chain to those.
  // It makes a few system calls, so it is for idle moments.
  static void refresh();
};

// Catches the faults of one host thread. Create, arm and destroy it on that thread.
class FaultCatcher {
 public:
  // Called after a fault, on a small stack of its own. Must not return.
  using Landed = void (*)(void* argument);

  FaultCatcher(Landed landed, void* argument);
  ~FaultCatcher();
  FaultCatcher(const FaultCatcher&) = delete;
  FaultCatcher& operator=(const FaultCatcher&) = delete;

  // Between arm() and disarm() this thread executes device code.
  void arm();
  void disarm();

  const Fault& fault() const { return fault_; }

 private:
  friend struct FaultSignal;
  static void land(FaultCatcher* self);

  const Landed landed_;
  void* const argument_;
  Fault fault_;
  std::uint8_t* stacks_ = nullptr;  // Signal stack, then landing stack.
  bool own_signal_stack_ = false;
};

}  // namespace gpurun::emulated
