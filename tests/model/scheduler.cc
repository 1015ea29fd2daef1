// Scheduler: fibers that take turns. One runs until a point at which another may continue.
#include <link.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/model/model.h"
#include "tests/model/runtime.h"

namespace gpurun::model {

World world;

namespace {

constexpr std::size_t kStackBytes = std::size_t{512} << 10;
// An execution with this many points counts as endless.
constexpr std::uint64_t kStepsMax = 200'000;

ucontext_t outside;

// The program's thread_local variables. Each fiber has its own copy, which is put in place when it
// runs.
struct ThreadLocals {
  char* start = nullptr;
  std::size_t bytes = 0;
  std::vector<char> first;
};
ThreadLocals thread_locals;

void find_thread_locals() {
  if (thread_locals.start != nullptr) return;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void*) {
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          if (object->dlpi_phdr[i].p_type != PT_TLS || object->dlpi_tls_data == nullptr) continue;
          thread_locals.start = static_cast<char*>(object->dlpi_tls_data);
          thread_locals.bytes = object->dlpi_phdr[i].p_memsz;
        }
        return 1;  // The program itself is the first object.
      },
      nullptr);
  world.locals_start = reinterpret_cast<std::uintptr_t>(thread_locals.start);
  world.locals_bytes = thread_locals.bytes;
  thread_locals.first.assign(thread_locals.start, thread_locals.start + thread_locals.bytes);
}

void switch_to(Fiber& to) {
  Fiber& from = *world.current;
  if (&from == &to) return;
  if (thread_locals.bytes != 0) {
    from.thread_locals.assign(thread_locals.start, thread_locals.start + thread_locals.bytes);
    std::copy(to.thread_locals.begin(), to.thread_locals.end(), thread_locals.start);
  }
  from.inside = world.inside;
  world.inside = to.inside;
  world.current = &to;
  swapcontext(&from.context, &to.context);
}

bool can_go(Fiber& fiber) {
  return fiber.state == Fiber::State::kReady ||
         (fiber.state == Fiber::State::kBlocked && fiber.ready());
}

// Whether the fiber's wait may reach its deadline before all others wait.
bool may_expire(const Fiber& fiber) {
  return world.exploring && world.expiries_left != 0 && fiber.state == Fiber::State::kBlocked &&
         fiber.timed && std::strcmp(fiber.name, world.expiring) == 0;
}

void expire(Fiber& fiber) {
  --world.expiries_left;
  fiber.timed_out = true;
  fiber.state = Fiber::State::kReady;
}

// The fiber that continues. nullptr: none can. The current one comes first, if it can continue.
Fiber* choose_next() {
  Fiber* able[kThreadsMax];
  unsigned count = 0;
  Fiber* const current = world.current;
  const bool goes_on = can_go(*current);
  if (goes_on) {
    if (world.exploring && world.preemptions_left == 0) return current;
    able[count++] = current;
  }
  for (int i = 1; i <= world.made; ++i) {
    Fiber& other = world.fibers[(current->id + i) % world.made];
    if (&other != current && (can_go(other) || may_expire(other))) able[count++] = &other;
  }
  if (count == 0) return nullptr;
  if (count == 1 || (!world.exploring && goes_on)) return able[0];
  const unsigned chosen = world.exploring ? next_choice(count, goes_on) : 0;
  if (goes_on && chosen != 0) --world.preemptions_left;
  if (!can_go(*able[chosen])) expire(*able[chosen]);
  return able[chosen];
}

// No fiber can continue, so a wait with a deadline times out. Without one this is a violation.
Fiber* wake_timed() {
  for (int i = 0; i < world.made; ++i) {
    Fiber& fiber = world.fibers[i];
    if (fiber.state != Fiber::State::kBlocked || !fiber.timed) continue;
    fiber.timed_out = true;
    fiber.state = Fiber::State::kReady;
    return &fiber;
  }
  violated("nobody can go on (a deadlock, or a lost wake-up)");
}

void count_step() {
  if (++world.steps > kStepsMax) violated("no end (a livelock)");
}

void enter_fiber() {
  Fiber& self = *world.current;
  self.result = self.body();
  world.inside = 1;
  self.body = nullptr;
  self.state = Fiber::State::kDone;
  if (self.id == 0) {
    world.current = nullptr;
    world.exploring = false;
    world.inside = 0;
    setcontext(&outside);
  }
  Fiber* next = choose_next();
  switch_to(next != nullptr ? *next : *wake_timed());
  std::abort();
}

}  // namespace

void tick() {
  const auto own = static_cast<std::size_t>(world.current->id);
  world.current->clock.known[own] = ++world.current->clock.at[own];
}

void schedule_point() {
  count_step();
  if (!world.exploring) return;
  switch_to(*choose_next());
}

bool block(const std::function<bool()>& ready, const char* waits_for, bool timed) {
  Fiber& self = *world.current;
  count_step();
  self.state = Fiber::State::kBlocked;
  self.ready = ready;
  self.waits_for = waits_for;
  self.timed = timed;
  self.timed_out = false;
  Fiber* next = choose_next();
  switch_to(next != nullptr ? *next : *wake_timed());
  self.state = Fiber::State::kReady;
  return !self.timed_out;
}

Fiber* start_fiber(const char* name, std::function<void*()> body) {
  if (world.made == kThreadsMax) violated("more threads than the model has");
  Fiber& fiber = world.fibers[world.made];
  fiber.id = world.made++;
  fiber.name = name;
  fiber.state = Fiber::State::kReady;
  fiber.body = std::move(body);
  fiber.clock = world.current != nullptr ? world.current->clock : Clock();
  const auto own = static_cast<std::size_t>(fiber.id);
  fiber.clock.at[own] = fiber.clock.known[own] = 1;
  fiber.acquired = fiber.released = Clock();
  fiber.inside = 0;
  fiber.thread_locals = thread_locals.first;
  fiber.calls.clear();
  fiber.rests_until = 0;
  if (fiber.stack == nullptr) {
    void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    fiber.stack = static_cast<char*>(memory);
  }
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, enter_fiber, 0);
  if (world.current != nullptr) tick();
  return &fiber;
}

void run_world(const std::function<void()>& main) {
  find_thread_locals();
  __libc_single_threaded = 0;  // Otherwise the C++ library counts references without atomics.
  for (Fiber& fiber : world.fibers) fiber.state = Fiber::State::kFree;
  world.made = 0;
  world.steps = 0;
  world.exploring = false;
  world.fences = Clock();
  world.now = {1'000'000, 0};
  world.expiries_left = 0;
  world.compared.clear();
  forget_memory();
  forget_locks();
  forget_trace();
  Fiber* first = start_fiber("main", [&main] {
    main();
    return nullptr;
  });
  world.current = first;
  world.inside = 0;
  swapcontext(&outside, &first->context);
  for (int i = 1; i < world.made; ++i) {
    if (world.fibers[i].state == Fiber::State::kDone) continue;
    std::fprintf(stderr, "the scenario has left the thread %s\n", world.fibers[i].name);
    std::_Exit(1);
  }
}

// Functions for scenarios.

int spawn(const char* name, std::function<void()> body) {
  const Inside inside;
  return start_fiber(name,
                     [body = std::move(body)] {
                       body();
                       return nullptr;
                     })
      ->id;
}

void join(int thread) {
  const Inside inside;
  Fiber& other = world.fibers[thread];
  block([&other] { return other.state == Fiber::State::kDone; }, "the end of a thread");
  world.current->clock.join(other.clock);
}

void until(const std::function<bool()>& ready, const char* what) {
  const Inside inside;
  block(ready, what);
}

void begin_anew() {
  for (int i = 1; i < world.made; ++i) {
    check(world.fibers[i].state == Fiber::State::kDone, "the scenario has left a thread");
  }
  world.made = 1;
  world.steps = 0;
  const Inside inside;
  forget_memory();
  forget_locks();
  forget_trace();
}

void settle() {
  const Inside inside;
  const Fiber* self = world.current;
  const auto settled = [self] {
    for (int i = 0; i < world.made; ++i) {
      if (&world.fibers[i] != self && can_go(world.fibers[i])) return false;
    }
    return true;
  };
  block(settled, "the others to wait");
}

void point() {
  const Inside inside;
  schedule_point();
}

// The wait itself is a step, too. Of two threads that rest, the one with the earlier end
// goes on first.
void rest(std::uint64_t steps) {
  const Inside inside;
  Fiber& self = *world.current;
  const std::uint64_t end = world.steps + 1 + steps;
  self.rests_until = end;
  const auto over = [end] {
    if (world.steps >= end) return true;
    for (int i = 0; i < world.made; ++i) {
      Fiber& other = world.fibers[i];
      if (other.rests_until == 0 ? can_go(other) : other.rests_until < end) return false;
    }
    return true;
  };
  block(over, "other threads' steps");
  self.rests_until = 0;
}

unsigned choose(unsigned count) {
  const Inside inside;
  return world.exploring ? next_choice(count, false) : 0;
}

void let_expire(const char* name, unsigned count) {
  world.expiring = name;
  world.expiries_left = count;
}

void exploring(bool on) { world.exploring = on; }

void Passage::in() {
  clock_.know(world.current->clock);
  tick();
}
void Passage::out() { world.current->clock.know(clock_); }

Quiet::Quiet() { ++world.inside; }
Quiet::~Quiet() { --world.inside; }

}  // namespace gpurun::model
