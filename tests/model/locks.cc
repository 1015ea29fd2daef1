// Locks: threads, mutexes, conditions, futexes and time, by the C library's own names. The
// program's definitions take precedence over the library's, also for calls of the C++ library.
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <unordered_map>
#include <vector>

#include "tests/model/model.h"
#include "tests/model/runtime.h"

namespace gpurun::model {
namespace {

struct Mutex {
  int owner = -1;
  Clock clock;
};
struct Waiter {
  int thread;
  bool woken;
};
std::unordered_map<const void*, Mutex>& mutexes() {
  static auto* const all = new std::unordered_map<const void*, Mutex>;
  return *all;
}
std::unordered_map<const void*, std::vector<Waiter*>>& waiters() {
  static auto* const all = new std::unordered_map<const void*, std::vector<Waiter*>>;
  return *all;
}
bool later(const timespec& one, const timespec& other) {
  return one.tv_sec != other.tv_sec ? one.tv_sec > other.tv_sec : one.tv_nsec > other.tv_nsec;
}

constexpr pthread_t kThreads = 0x7E500000;  // The pthread_t of the first thread.

// Nobody holds the mutex.
void take_free(const void* address, const void* pc) {
  Mutex& mutex = mutexes()[address];
  mutex.owner = world.current->id;
  world.current->clock.join(mutex.clock);
  trace("locks", address, 0, pc);
  tick();
}

void take(const void* address, const void* pc) {
  Mutex& mutex = mutexes()[address];
  if (mutex.owner == world.current->id) violated("a thread locks a mutex that it holds");
  block([&mutex] { return mutex.owner == -1; }, "a mutex");
  take_free(address, pc);
}

void give(const void* address, const void* pc) {
  Mutex& mutex = mutexes()[address];
  if (mutex.owner != world.current->id) violated("a thread unlocks a mutex that it does not hold");
  mutex.clock = world.current->clock;
  mutex.owner = -1;
  trace("unlocks", address, 0, pc);
  tick();
}

// Returns true when woken, false after the timeout.
bool sleep_on(const void* address, const char* what, bool timed) {
  Waiter self{world.current->id, false};
  waiters()[address].push_back(&self);
  const bool woken = block([&self] { return self.woken; }, what, timed);
  if (!woken) std::erase(waiters()[address], &self);
  return woken;
}

int wake(const void* address, int count) {
  std::vector<Waiter*>& all = waiters()[address];
  int woken = 0;
  for (; woken < count && !all.empty(); ++woken) {
    const unsigned chosen = world.exploring && all.size() > 1 && count == 1
                                ? next_choice(static_cast<unsigned>(all.size()), false)
                                : 0;
    all[chosen]->woken = true;
    all.erase(all.begin() + chosen);
  }
  return woken;
}

// `deadline` is nullptr in a wait without one.
int wait_for_condition(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* deadline,
                       const void* pc) {
  if (!seen()) std::abort();
  const Inside inside;
  trace("waits", condition, 0, pc);
  give(mutex, pc);
  const bool woken = sleep_on(condition, "a condition", deadline != nullptr);
  if (!woken && later(*deadline, world.now)) world.now = *deadline;
  take(mutex, pc);
  return woken ? 0 : ETIMEDOUT;
}

long futex(const std::uint32_t* word, int operation, std::uint32_t value, const void* pc) {
  const Inside inside;
  schedule_point();
  if ((operation & FUTEX_CMD_MASK) == FUTEX_WAKE) {
    trace("wakes", word, 0, pc);
    return wake(word, static_cast<int>(value));
  }
  trace("waits", word, *word, pc);
  if (*word != value) {
    errno = EAGAIN;
    return -1;
  }
  sleep_on(word, "a futex", false);
  return 0;
}

}  // namespace

void forget_locks() {
  mutexes().clear();
  waiters().clear();
}

}  // namespace gpurun::model

using namespace gpurun::model;  // NOLINT: the functions below stand in no namespace.

#define PC __builtin_return_address(0)
#define OF_PROGRAM __attribute__((visibility("default")))
extern "C" {

OF_PROGRAM int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  if (!seen()) return 0;
  const Inside inside;
  take(mutex, PC);
  return 0;
}
OF_PROGRAM int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  if (!seen()) return 0;
  const Inside inside;
  schedule_point();
  if (mutexes()[mutex].owner != -1) return EBUSY;
  take_free(mutex, PC);
  return 0;
}
OF_PROGRAM int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  if (!seen()) return 0;
  const Inside inside;
  give(mutex, PC);
  return 0;
}
OF_PROGRAM int pthread_mutex_destroy(pthread_mutex_t* mutex) noexcept {
  if (!seen()) return 0;
  const Inside inside;
  const auto found = mutexes().find(mutex);
  if (found == mutexes().end()) return 0;
  if (found->second.owner != -1) violated("a mutex is destroyed while it is held");
  mutexes().erase(found);
  return 0;
}

OF_PROGRAM int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  return wait_for_condition(condition, mutex, nullptr, PC);
}
OF_PROGRAM int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                      const timespec* deadline) {
  return wait_for_condition(condition, mutex, deadline, PC);
}
OF_PROGRAM int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t,
                                      const timespec* deadline) {
  return wait_for_condition(condition, mutex, deadline, PC);
}
OF_PROGRAM int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  if (!seen()) return 0;
  const Inside inside;
  schedule_point();
  trace("notifies one", condition, 0, PC);
  wake(condition, 1);
  return 0;
}
OF_PROGRAM int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  if (!seen()) return 0;
  const Inside inside;
  schedule_point();
  trace("notifies all", condition, 0, PC);
  wake(condition, kThreadsMax);
  return 0;
}
OF_PROGRAM int pthread_cond_destroy(pthread_cond_t* condition) noexcept {
  if (!seen()) return 0;
  const Inside inside;
  const auto found = waiters().find(condition);
  if (found == waiters().end()) return 0;
  if (!found->second.empty()) violated("a condition is destroyed while somebody waits for it");
  waiters().erase(found);
  return 0;
}

OF_PROGRAM int pthread_create(pthread_t* thread, const pthread_attr_t*, void* (*body)(void*),
                              void* argument) noexcept {
  if (!seen()) std::abort();
  const Inside inside;
  Fiber* fiber = start_fiber("thread", [body, argument] { return body(argument); });
  *thread = kThreads + static_cast<pthread_t>(fiber->id);
  trace("starts a thread", nullptr, static_cast<std::uint64_t>(fiber->id), PC);
  return 0;
}
OF_PROGRAM int pthread_join(pthread_t thread, void** result) {
  if (!seen()) std::abort();
  join(static_cast<int>(thread - kThreads));
  if (result != nullptr) *result = world.fibers[thread - kThreads].result;
  return 0;
}
OF_PROGRAM int pthread_setname_np(pthread_t thread, const char* name) noexcept {
  if (thread >= kThreads && thread < kThreads + kThreadsMax) {
    world.fibers[thread - kThreads].name = name;  // Our names are literals.
  }
  return 0;
}
OF_PROGRAM pthread_t pthread_self() noexcept {
  return kThreads + static_cast<pthread_t>(world.current == nullptr ? 0 : world.current->id);
}
OF_PROGRAM int pthread_sigmask(int, const sigset_t*, sigset_t*) noexcept { return 0; }

// Time advances when a wait reaches its deadline.
OF_PROGRAM int clock_gettime(clockid_t, timespec* now) noexcept {
  *now = world.now;
  return 0;
}

OF_PROGRAM long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& each : arguments) each = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && seen()) {
    return futex(reinterpret_cast<const std::uint32_t*>(arguments[0]),
                 static_cast<int>(arguments[1]), static_cast<std::uint32_t>(arguments[2]), PC);
  }
  static const auto real = reinterpret_cast<long (*)(long, ...)>(dlsym(RTLD_NEXT, "syscall"));
  return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
              arguments[5]);
}

}  // extern "C"
