// Fiber: a stack with a suspended computation, switched to in user space. It knows nothing of CUDA.
// It tells the sanitizers about switches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {

// A group of equal stacks, mapped at once. Below each lies an inaccessible page, so that an
// overflow faults. The tops are staggered. With equal low address bits, the hot frames of all
// stacks would share a few cache sets, which makes switches slower.
class StackSlab {
 public:
  static constexpr std::uint32_t kStacks = 32;

  // nullptr when memory is short. `stack_bytes` is a multiple of the page size.
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

// The fibers of a block, which ThreadSanitizer sees as one thread, because one of them runs at a
// time. If it distinguished them, every switch would cost time in proportion to their number. Does
// nothing without ThreadSanitizer.
class FiberGroup {
 public:
  FiberGroup();
  ~FiberGroup();
  FiberGroup(const FiberGroup&) = delete;
  FiberGroup& operator=(const FiberGroup&) = delete;

  // Records that a computation was dropped. Its frames stay on the sanitizer's own stack, which is
  // bounded.
  void forgot() { ++forgotten_; }
  // Whether that stack should be renewed. Only while no computation is suspended on any fiber.
  bool worn() const { return tsan_fiber_ != nullptr && forgotten_ >= kForgottenMax; }
  void renew();
  void* tsan_fiber() const { return tsan_fiber_; }

 private:
  // The sanitizer's stack has 65,536 frames. A block of 1,024 threads that leave ten frames each
  // adds to these.
  static constexpr std::uint32_t kForgottenMax = 1000;

  void* tsan_fiber_;
  std::uint32_t forgotten_ = 0;
};

// One thread at a time. Not movable, because suspended computations point at it.
class Fiber {
 public:
  // The function that a fiber runs. Must not return.
  using Main = void (*)(Fiber& self, void* argument);

  // The fiber that stands for the calling thread's own stack.
  Fiber();
  // A fiber on [low, high) that runs `main` when it is first switched to. `group` must outlive it.
  Fiber(std::uint8_t* low, std::uint8_t* high, Main main, void* argument, FiberGroup& group);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Suspends this fiber, which must be the running one, and continues `to`.
  void switch_to(Fiber& to);
  // As switch_to(), but drops what this fiber was doing. It starts anew at its next turn.
  [[noreturn]] void abandon_to(Fiber& to);
  // Drops what a suspended fiber was doing.
  void rebuild();

  // Sets the thread's local memory to this stack.
  void claim_local_memory();
  // Whether `address` is just below the stack, where an overflow faults.
  bool guards(std::uint64_t address) const;

  // The CUDA thread that this fiber runs now.
  ThreadContext thread{};
  // The phase of its thread's last arrival at the cluster's barrier, until the thread has waited
  // for it.
  std::uint32_t cluster_phase = 0;
  bool cluster_arrived = false;

 private:
  struct Entry;
  void arrived(Fiber& from, void* from_context);
  void* tsan_fiber() const;

  void* context_ = nullptr;  // boost.context's fcontext_t while suspended.
  // The fiber that it last switched to. A new fiber finds itself by this.
  Fiber* next_ = nullptr;
  std::uint8_t* low_ = nullptr;
  std::uint8_t* high_ = nullptr;
  Main main_ = nullptr;
  void* argument_ = nullptr;
  bool forgotten_ = false;      // To be rebuilt by the fiber that runs next.
  void* asan_stack_ = nullptr;  // AddressSanitizer's fake stack while suspended.
  FiberGroup* group_ = nullptr;
  // Of a thread's own stack, which has no group.
  void* own_tsan_fiber_ = nullptr;
};

}  // namespace gpurun::emulated
