// Faults of device code: SIGSEGV, SIGBUS, SIGFPE and SIGILL that a kernel raises end the kernel and
// not the process. Signals from anywhere else go to whoever handled them before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace gpurun::emulated {

struct Fault {
  int signal = 0;             // SIGSEGV, ...
  int code = 0;               // si_code
  std::uint64_t address = 0;  // What was touched (SIGSEGV, SIGBUS) or executed.
  std::uint64_t pc = 0;
};

// The handlers are installed while at least one of these lives, and give way to what was there
// before. Any thread.
class FaultHandlers {
 public:
  FaultHandlers();
  ~FaultHandlers();
  FaultHandlers(const FaultHandlers&) = delete;
  FaultHandlers& operator=(const FaultHandlers&) = delete;

  // Takes the signals back from a program that has installed handlers of its own since (they become
  // what we chain to). A few system calls: for moments of idleness.
  static void refresh();

  // Called in the signal handler, before a fault counts as the kernel's: true when `address` has
  // been made accessible and the instruction is to be repeated (memory that moves on demand).
  // Must be async-signal-safe. nullptr: none.
  using Pager = bool (*)(std::uint64_t address, bool write);
  static void set_pager(Pager pager);
};

// Catches the faults of one host thread. Create, arm and destroy it on that thread.
class FaultCatcher {
 public:
  // Called on a small stack of its own after a fault; must not return.
  using Landed = void (*)(void* argument);

  FaultCatcher(Landed landed, void* argument);
  ~FaultCatcher();
  FaultCatcher(const FaultCatcher&) = delete;
  FaultCatcher& operator=(const FaultCatcher&) = delete;

  // From here on this thread executes device code.
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
