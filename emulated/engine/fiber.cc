// Stacks and switches, with boost.context's assembler.
#include "emulated/engine/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstdlib>

#include "emulated/engine/sanitizers.h"

namespace gpurun::emulated {

namespace context = boost::context::detail;

namespace {

constexpr std::size_t kPage = 4096;
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102  // Linux 6.13: a guard page that does not split the mapping.
#endif

// Makes [page, page + kPage) fault. It may fail at the kernel's limit on mappings. An overflow is
// then not noticed, which is rare enough to accept.
void guard(std::uint8_t* page) {
  if (madvise(page, kPage, MADV_GUARD_INSTALL) == 0) return;
  (void)mprotect(page, kPage, PROT_NONE);
}

}  // namespace

std::unique_ptr<StackSlab> StackSlab::create(std::size_t stack_bytes) {
  const std::size_t bytes = kStacks * (stack_bytes + kPage);
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  (void)madvise(base, bytes, MADV_NOHUGEPAGE);
  std::unique_ptr<StackSlab> slab(new StackSlab(static_cast<std::uint8_t*>(base), stack_bytes));
  for (std::uint32_t i = 0; i < kStacks; ++i) guard(slab->low(i) - kPage);
  return slab;
}

StackSlab::StackSlab(std::uint8_t* base, std::size_t stack_bytes)
    : base_(base), stack_bytes_(stack_bytes) {}

StackSlab::~StackSlab() {
  for (std::uint32_t i = 0; i < kStacks; ++i) sanitizers::forget_stack(low(i), stack_bytes_);
  munmap(base_, kStacks * (stack_bytes_ + kPage));
}

std::uint8_t* StackSlab::low(std::uint32_t index) const {
  return base_ + index * (stack_bytes_ + kPage) + kPage;
}

std::uint8_t* StackSlab::high(std::uint32_t index) const {
  // Five cache lines hold the frames of a thread that waits at a barrier.
  const std::size_t stagger = (index * std::size_t{5} * 64) & (kPage - 1);
  return low(index) + stack_bytes_ - stagger;
}

// A new fiber's first instructions.
struct Fiber::Entry {
  static void run(context::transfer_t transfer) {
    Fiber& from = *static_cast<Fiber*>(transfer.data);
    Fiber& self = *from.next_;
    self.arrived(from, transfer.fctx);
    self.main_(self, self.argument_);
    std::abort();  // main() must not return.
  }
};

FiberGroup::FiberGroup() : tsan_fiber_(sanitizers::create_fiber()) {}

FiberGroup::~FiberGroup() {
  if (tsan_fiber_ != nullptr) sanitizers::destroy_fiber(tsan_fiber_);
}

void FiberGroup::renew() {
  if (tsan_fiber_ != nullptr) sanitizers::destroy_fiber(tsan_fiber_);
  tsan_fiber_ = sanitizers::create_fiber();
  forgotten_ = 0;
}

Fiber::Fiber() : own_tsan_fiber_(sanitizers::current_fiber()) {}

Fiber::Fiber(std::uint8_t* low, std::uint8_t* high, Main main, void* argument, FiberGroup& group)
    : low_(low), high_(high), main_(main), argument_(argument), group_(&group) {
  claim_local_memory();
  thread.engine = this;
  rebuild();
}

void Fiber::claim_local_memory() {
  thread.stack_low = reinterpret_cast<std::uint64_t>(low_);
  thread.stack_high = reinterpret_cast<std::uint64_t>(high_);
}

void Fiber::rebuild() {
  forgotten_ = false;
  asan_stack_ = nullptr;
  sanitizers::forget_stack(low_, static_cast<std::size_t>(high_ - low_));
  group_->forgot();
  context_ = context::make_fcontext(high_, static_cast<std::size_t>(high_ - low_), Entry::run);
}

bool Fiber::guards(std::uint64_t address) const {
  const auto low = reinterpret_cast<std::uint64_t>(low_);
  return address < low && address + kPage >= low;
}

void Fiber::arrived(Fiber& from, void* from_context) {
  from.context_ = from_context;
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  sanitizers::finish_switch(asan_stack_, &bottom, &bytes);
  if (from.main_ == nullptr && bottom != nullptr) {
    // A thread's own stack. Only the sanitizer knows where it is, and only it needs that.
    from.low_ = static_cast<std::uint8_t*>(const_cast<void*>(bottom));
    from.high_ = from.low_ + bytes;
  }
  if (from.forgotten_) from.rebuild();
}

void* Fiber::tsan_fiber() const {
  return group_ != nullptr ? group_->tsan_fiber() : own_tsan_fiber_;
}

void Fiber::switch_to(Fiber& to) {
  next_ = &to;
  sanitizers::start_switch(&asan_stack_, to.low_, static_cast<std::size_t>(to.high_ - to.low_));
  if (to.group_ != group_) sanitizers::switch_fiber(to.tsan_fiber());
  const context::transfer_t transfer = context::jump_fcontext(to.context_, this);
  arrived(*static_cast<Fiber*>(transfer.data), transfer.fctx);
}

void Fiber::abandon_to(Fiber& to) {
  next_ = &to;
  forgotten_ = true;
  sanitizers::start_switch(nullptr, to.low_, static_cast<std::size_t>(to.high_ - to.low_));
  if (to.group_ != group_) sanitizers::switch_fiber(to.tsan_fiber());
  context::jump_fcontext(to.context_, this);
  std::abort();  // A dropped computation is never resumed.
}

}  // namespace gpurun::emulated
