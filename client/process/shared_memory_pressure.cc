// SharedMemoryPressure: the number of the last question, as a futex, and a place for each process.
#include "client/process/shared_memory_pressure.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/unique_fd.h"

namespace gpurun::client {
namespace {

struct Place {
  std::atomic<std::uint32_t> process;   // 0: the place is free.
  std::atomic<std::uint32_t> answered;  // The last question that it answered.
  std::atomic<std::uint32_t> silent;    // 1: it did not answer in time.
  std::atomic<std::uint32_t> contexts;  // A bit for each device with a context.
  std::atomic<std::uint64_t> died;      // ms of CLOCK_MONOTONIC at the discovery. 0: not yet.
  std::atomic<std::uint64_t> idle[SharedMemoryPressure::kDevices];
  std::atomic<std::uint64_t> used[SharedMemoryPressure::kDevices];
};
constexpr int kPlaces = 200;

struct Pages {
  alignas(64) std::atomic<std::uint32_t> question;  // A futex; ask_all().
  alignas(64) Place places[kPlaces];
};
static_assert(sizeof(Pages) <= SharedMemoryPressure::kBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<std::uint32_t>) == 4, "a futex is a 32-bit word");

constexpr timespec kBetweenLooks = {0, 200'000};

Pages* pages_of(SharedMemoryPressure* board) noexcept { return reinterpret_cast<Pages*>(board); }

// The last bits of a question are the place of its asker.
constexpr unsigned kAskerBits = 8;
constexpr std::uint32_t kAskers = std::uint32_t{1} << kAskerBits;
static_assert(kPlaces < kAskers, "the last one has no place");

// A question is a count and its asker. Of two, the earlier has the smaller count.
bool is_before(std::uint32_t a, std::uint32_t b) noexcept {
  return static_cast<std::int32_t>(a - b) < 0;
}

bool is_by(int place, std::uint32_t question) noexcept {
  return question % kAskers == static_cast<std::uint32_t>(place) % kAskers;
}

bool is_right_behind(std::uint32_t earlier, std::uint32_t question) noexcept {
  return ((question >> kAskerBits) - (earlier >> kAskerBits)) << kAskerBits == kAskers;
}

std::uint32_t ask_all(Pages& pages, int place) noexcept {
  std::uint32_t last = pages.question.load(std::memory_order_acquire);
  std::uint32_t next = 0;
  do {
    next = ((last >> kAskerBits) + 1) << kAskerBits | static_cast<std::uint32_t>(place) % kAskers;
  } while (!pages.question.compare_exchange_weak(last, next, std::memory_order_acq_rel));
  syscall(SYS_futex, &pages.question, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  return next;
}

bool on_board(int device) noexcept {
  return device >= 0 && device < SharedMemoryPressure::kDevices;
}

std::uint64_t now_ms() noexcept {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000 + 1;
}

// Returns whether its process lives, and notes a death.
bool lives(Place& place) noexcept {
  const std::uint32_t process = place.process.load(std::memory_order_acquire);
  if (process == 0 || place.died.load(std::memory_order_acquire) != 0) return false;
  if (SharedMemoryPressure::lives(process)) return true;
  place.died.store(now_ms(), std::memory_order_release);
  return false;
}

}  // namespace

SharedMemoryPressure* SharedMemoryPressure::map(int fd) noexcept {
  struct stat about = {};
  // Beyond the file's end lies SIGBUS.
  if (fstat(fd, &about) != 0 || about.st_size != static_cast<off_t>(kOffset + kBytes)) {
    return nullptr;
  }
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, kOffset);
  return memory == MAP_FAILED ? nullptr : static_cast<SharedMemoryPressure*>(memory);
}

SharedMemoryPressure* SharedMemoryPressure::open(const std::string& path) noexcept {
  if (path.empty()) return nullptr;
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  return fd.valid() ? map(fd.get()) : nullptr;
}

bool SharedMemoryPressure::lives(std::uint32_t process) noexcept {
  if (kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH) return false;
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%u/stat", process);
  const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  char text[512];
  const ssize_t got = file.valid() ? read(file.get(), text, sizeof text - 1) : 0;
  if (got <= 0) return true;
  text[got] = '\0';
  // "NUMBER (NAME) STATE ...": the name may hold anything (proc(5)).
  const char* end = std::strrchr(text, ')');
  return end == nullptr || (end[1] != '\0' && end[2] != 'Z' && end[2] != 'X');
}

int SharedMemoryPressure::join(std::uint32_t process) noexcept {
  Pages& pages = *pages_of(this);
  const auto take = [&](int at, std::uint32_t from) {
    Place& place = pages.places[at];
    if (!place.process.compare_exchange_strong(from, process, std::memory_order_acq_rel)) {
      return false;
    }
    for (auto& bytes : place.idle) bytes.store(0, std::memory_order_relaxed);
    for (auto& bytes : place.used) bytes.store(0, std::memory_order_relaxed);
    place.contexts.store(0, std::memory_order_relaxed);
    place.died.store(0, std::memory_order_relaxed);
    place.silent.store(0, std::memory_order_relaxed);
    place.answered.store(pages.question.load(), std::memory_order_release);
    return true;
  };
  // First a place of the same number, from this process earlier or from a dead one.
  for (const std::uint32_t owner : {process, std::uint32_t{0}}) {
    for (int at = 0; at < kPlaces; ++at) {
      if (pages.places[at].process.load() == owner && take(at, owner)) return at;
    }
  }
  for (int at = 0; at < kPlaces; ++at) {
    const std::uint32_t owner = pages.places[at].process.load();
    if (!client::lives(pages.places[at]) && take(at, owner)) return at;
  }
  return -1;
}

void SharedMemoryPressure::say_idle(int place, int device, std::uint64_t bytes) noexcept {
  if (place < 0 || !on_board(device)) return;
  pages_of(this)->places[place].idle[device].store(bytes, std::memory_order_release);
}

void SharedMemoryPressure::say_used(int place, int device, std::uint64_t bytes) noexcept {
  if (place < 0 || !on_board(device)) return;
  pages_of(this)->places[place].used[device].store(bytes, std::memory_order_release);
}

void SharedMemoryPressure::say_contexts(int place, int device, bool any) noexcept {
  if (place < 0 || !on_board(device)) return;
  std::atomic<std::uint32_t>& contexts = pages_of(this)->places[place].contexts;
  const std::uint32_t bit = std::uint32_t{1} << device;
  if (any) {
    contexts.fetch_or(bit, std::memory_order_acq_rel);
  } else {
    contexts.fetch_and(~bit, std::memory_order_acq_rel);
  }
}

unsigned SharedMemoryPressure::users(int device, User* users, unsigned capacity) noexcept {
  if (!on_board(device)) return 0;
  unsigned count = 0;
  for (Place& place : pages_of(this)->places) {
    const std::uint32_t process = place.process.load(std::memory_order_acquire);
    const std::uint64_t bytes = place.used[device].load(std::memory_order_acquire);
    const bool context = (place.contexts.load(std::memory_order_acquire) >> device & 1) != 0;
    if (count == capacity || (bytes == 0 && !context) || !client::lives(place)) continue;
    users[count++] = {process, bytes};
  }
  return count;
}

std::uint64_t SharedMemoryPressure::idle_elsewhere(int place, int device) noexcept {
  if (!on_board(device)) return 0;
  std::uint64_t sum = 0;
  for (int at = 0; at < kPlaces; ++at) {
    Place& other = pages_of(this)->places[at];
    const std::uint64_t bytes = other.idle[device].load(std::memory_order_acquire);
    if (at != place && bytes != 0 && client::lives(other)) sum += bytes;
  }
  return sum;
}

bool SharedMemoryPressure::ask(int place, std::chrono::milliseconds patience) noexcept {
  Pages& pages = *pages_of(this);
  bool asked = false;
  std::uint32_t number = 0;
  const auto end = std::chrono::steady_clock::now() + patience;
  for (int at = 0; at < kPlaces; ++at) {
    Place& other = pages.places[at];
    if (at == place || other.silent.load(std::memory_order_acquire) != 0) continue;
    if (!client::lives(other)) continue;
    if (!asked) number = ask_all(pages, place);
    asked = true;
    while (is_before(other.answered.load(std::memory_order_acquire), number) &&
           client::lives(other)) {
      if (std::chrono::steady_clock::now() >= end) {
        other.silent.store(1, std::memory_order_release);
        break;
      }
      nanosleep(&kBetweenLooks, nullptr);  // Only a process without memory waits for this.
    }
  }
  return asked;
}

bool SharedMemoryPressure::some_just_died(int place, std::chrono::milliseconds patience) noexcept {
  bool some = false;
  for (int at = 0; at < kPlaces; ++at) {
    Place& other = pages_of(this)->places[at];
    std::uint32_t process = other.process.load(std::memory_order_acquire);
    if (at == place || process == 0 || client::lives(other)) continue;
    if (now_ms() - other.died.load(std::memory_order_acquire) <
        static_cast<std::uint64_t>(patience.count())) {
      some = true;
    } else {
      other.process.compare_exchange_strong(process, 0, std::memory_order_acq_rel);
    }
  }
  return some;
}

void SharedMemoryPressure::stay_silent(int place) noexcept {
  pages_of(this)->places[place].silent.store(1, std::memory_order_release);
}

std::uint32_t SharedMemoryPressure::answered(int place) noexcept {
  return pages_of(this)->places[place].answered.load(std::memory_order_acquire);
}

std::uint32_t SharedMemoryPressure::await_question(int place, std::uint32_t seen) noexcept {
  std::atomic<std::uint32_t>& question = pages_of(this)->question;
  for (;;) {
    const std::uint32_t number = question.load(std::memory_order_acquire);
    if (number != seen && !(is_by(place, number) && is_right_behind(seen, number))) return number;
    seen = number;
    syscall(SYS_futex, &question, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  }
}

void SharedMemoryPressure::answer(int place, std::uint32_t question) noexcept {
  Place& own = pages_of(this)->places[place];
  own.answered.store(question, std::memory_order_release);
  own.silent.store(0, std::memory_order_release);
}

int join_memory_board() noexcept {
  SharedMemoryPressure* const board = shared_memory_board.load(std::memory_order_acquire);
  int place = shared_memory_place.load(std::memory_order_acquire);
  if (board == nullptr || place >= 0) return board == nullptr ? -1 : place;
  place = board->join(static_cast<std::uint32_t>(getpid()));
  shared_memory_place.store(place, std::memory_order_release);
  return place;
}

}  // namespace gpurun::client
