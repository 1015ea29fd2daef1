// Fiber: a stack with a suspended computation on it, switched to in user space. Knows nothing of
// CUDA; the sanitizers are told of switches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/emulated/runtime/device_abi.h"

namespace gpurun::emulated {

// A group of equal stacks, mapped at once. Below each lies a page that nothing may touch, so that
// an overflow is a fault; the tops are staggered, because equal low address bits of all the hot
// frames would share a few cache sets (measured: twice the cost of a switch).
class StackSlab {
 public:
  static constexpr std::uint32_t kStacks = 32;

  // nullptr when the memory cannot be had. `stack_bytes` is a multiple of the page size.
  static std::unique_ptr<StackSlab> create(std::size_t stack_bytes);
  ~StackSlab();
  StackSlab(const StackSlab&) = delete;
  StackSlab& operator=(const StackSlab&) = delete;

  std::uint8_t* low(std::uint32_t index) const;
  std::uint8_t* high(std::uint32_t index) const;

 private:
  StackSlab(std::uint8_t* base, std::size_t stack_bytes);
  std::uint8_t* const base_;
  const std::size_t stack_bytes_;
};

// What ThreadSanitizer takes for one thread: the fibers of a block, of which one runs at a time. A
// switch between two that it knew apart would cost time in proportion to their number (measured:
// two thirds of a kernel's). Without ThreadSanitizer nothing.
class FiberGroup {
 public:
  FiberGroup();
  ~FiberGroup();
  FiberGroup(const FiberGroup&) = delete;
  FiberGroup& operator=(const FiberGroup&) = delete;

  // A computation was forgotten: its frames stay on the sanitizer's own stack, which is bounded.
  void forgot() { ++forgotten_; }
  // Whether that stack should be renewed; only while no computation is suspended on any fiber.
  bool worn() const { return tsan_fiber_ != nullptr && forgotten_ >= kForgottenMax; }
  void renew();
  void* tsan_fiber() const { return tsan_fiber_; }

 private:
  // Of 65,536 frames; a block of 1,024 threads that leaves ten each comes on top.
  static constexpr std::uint32_t kForgottenMax = 1000;

  void* tsan_fiber_;
  std::uint32_t forgotten_ = 0;
};

// One thread at a time. Not movable: suspended computations point at it.
class Fiber {
 public:
  // What a fiber runs; must not return.
  using Main = void (*)(Fiber& self, void* argument);

  // The fiber that stands for the calling thread's own stack.
  Fiber();
  // A fiber on [low, high) that runs `main` when it is first switched to. `group` outlives it.
  Fiber(std::uint8_t* low, std::uint8_t* high, Main main, void* argument, FiberGroup& group);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Suspends this fiber, which must be the running one, and continues `to`.
  void switch_to(Fiber& to);
  // As switch_to, but what this fiber was doing is forgotten: it starts anew at its next turn.
  [[noreturn]] void abandon_to(Fiber& to);
  // Forgets what a suspended fiber was doing.
  void rebuild();

  // Where the thread's local memory is: on this stack.
  void claim_local_memory();
  // Whether `address` is just below the stack, where an overflow faults.
  bool guards(std::uint64_t address) const;

  // The CUDA thread that this fiber runs at present.
  ThreadContext thread{};
  // Its thread's last arrival at the cluster's barrier, while not waited for.
  std::uint32_t cluster_phase = 0;
  bool cluster_arrived = false;

 private:
  struct Entry;
  void arrived(Fiber& from, void* from_context);
  void* tsan_fiber() const;

  void* context_ = nullptr;  // boost.context's fcontext_t while suspended.
  Fiber* next_ = nullptr;    // Whom it switched to last: tells a new fiber who it is.
  std::uint8_t* low_ = nullptr;
  std::uint8_t* high_ = nullptr;
  Main main_ = nullptr;
  void* argument_ = nullptr;
  bool forgotten_ = false;      // To be rebuilt by the fiber that runs next.
  void* asan_stack_ = nullptr;  // AddressSanitizer's fake stack while suspended.
  FiberGroup* group_ = nullptr;
  void* own_tsan_fiber_ = nullptr;  // Of a thread's own stack, which has no group.
};

}  // namespace gpurun::emulated
