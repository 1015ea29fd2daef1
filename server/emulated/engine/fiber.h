// Fiber: a stack with a suspended computation on it, switched to in user space. Knows nothing of
// CUDA; the sanitizers are told of every switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/emulated/codegen/device_abi.h"

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

// One thread at a time. Not movable: suspended computations point at it.
class Fiber {
 public:
  // What a fiber runs; must not return.
  using Main = void (*)(Fiber& self, void* argument);

  // The fiber that stands for the calling thread's own stack.
  Fiber();
  // A fiber on [low, high) that runs `main` when it is first switched to.
  Fiber(std::uint8_t* low, std::uint8_t* high, Main main, void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Suspends this fiber, which must be the running one, and continues `to`.
  void switch_to(Fiber& to);
  // As switch_to, but what this fiber was doing is forgotten: it starts anew at its next turn.
  [[noreturn]] void abandon_to(Fiber& to);
  // Forgets what a suspended fiber was doing.
  void rebuild();

  // Whether `address` is just below the stack, where an overflow faults.
  bool guards(std::uint64_t address) const;

  // The CUDA thread that this fiber runs at present.
  ThreadContext thread{};
  // Result of a wait, left by whoever ended it.
  std::uint32_t value = 0;
  // Its thread's last arrival at the cluster's barrier, while not waited for.
  std::uint32_t cluster_phase = 0;
  bool cluster_arrived = false;

 private:
  struct Entry;
  void arrived(Fiber& from, void* from_context);

  void* context_ = nullptr;  // boost.context's fcontext_t while suspended.
  Fiber* next_ = nullptr;    // Whom it switched to last: tells a new fiber who it is.
  std::uint8_t* low_ = nullptr;
  std::uint8_t* high_ = nullptr;
  Main main_ = nullptr;
  void* argument_ = nullptr;
  bool forgotten_ = false;      // To be rebuilt by the fiber that runs next.
  void* asan_stack_ = nullptr;  // AddressSanitizer's fake stack while suspended.
  void* tsan_fiber_ = nullptr;  // ThreadSanitizer's identity of this fiber.
};

}  // namespace gpurun::emulated
