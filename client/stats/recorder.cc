// Recorder: rings of words. A reader at the program's end meets writers that have not seen it yet.
#include "client/stats/recorder.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "protocol/limits.h"

namespace gpurun::client {
namespace {

using protocol::RecordedEvent;

constexpr std::size_t kEvents = protocol::kRecordedEventsMax;
constexpr std::size_t kWords = sizeof(RecordedEvent) / sizeof(std::uint64_t);
static_assert(kWords * sizeof(std::uint64_t) == sizeof(RecordedEvent));

}  // namespace

// Its pages are allocated as they are written, because only the count is set at first.
struct Recorder::Ring {
  Ring() noexcept {}  // NOLINT: leaves the words alone.

  std::atomic<std::uint64_t> added{0};
  std::uint64_t words[kEvents][kWords];

  static Ring* make() noexcept {
    void* memory = mmap(nullptr, sizeof(Ring), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : ::new (memory) Ring;
  }

  void add(const RecordedEvent& event) noexcept {
    std::uint64_t from[kWords];
    std::memcpy(from, &event, sizeof event);
    const std::uint64_t number = added.load(std::memory_order_relaxed);
    std::uint64_t* const to = words[number % kEvents];
    // Release: a reader of one of them also sees that the event before is there (collect()).
    for (std::size_t i = 0; i < kWords; ++i) {
      std::atomic_ref<std::uint64_t>(to[i]).store(from[i], std::memory_order_release);
    }
    added.store(number + 1, std::memory_order_release);
  }

  RecordedEvent at(std::uint64_t number) noexcept {
    std::uint64_t* const from = words[number % kEvents];
    std::uint64_t to[kWords];
    for (std::size_t i = 0; i < kWords; ++i) {
      to[i] = std::atomic_ref<std::uint64_t>(from[i]).load(std::memory_order_acquire);
    }
    RecordedEvent event;
    std::memcpy(static_cast<void*>(&event), to, sizeof event);
    return event;
  }

  // Returns the oldest event that is not being overwritten after so many. The next event's slot may
  // be written already.
  static std::uint64_t oldest_whole(std::uint64_t count) noexcept {
    return count < kEvents ? 0 : count - kEvents + 1;
  }

  // Appends what is whole, and returns how many older events are not. The lane's thread may go on
  // meanwhile. What it overwrote during the read is left out.
  std::uint64_t collect(std::vector<RecordedEvent>* events) {
    const std::uint64_t end = added.load(std::memory_order_acquire);
    const std::uint64_t begin = oldest_whole(end);
    const auto first = static_cast<std::ptrdiff_t>(events->size());
    for (std::uint64_t number = begin; number < end; ++number) events->push_back(at(number));
    const std::uint64_t whole =
        std::clamp(oldest_whole(added.load(std::memory_order_relaxed)), begin, end);
    const auto torn = events->begin() + first;
    events->erase(torn, torn + static_cast<std::ptrdiff_t>(whole - begin));
    return whole;
  }
};

Recorder::~Recorder() {
  for (std::atomic<Ring*>& ring : rings_) {
    if (Ring* const made = ring.load(std::memory_order_acquire)) munmap(made, sizeof(Ring));
  }
}

bool recording_wanted() noexcept {
  const char* const folder = std::getenv("GPURUN_TRACE");
  return folder != nullptr && *folder != '\0';
}

void Recorder::begin(std::string folder, std::vector<protocol::ClockSample> clocks,
                     std::string no_worker) {
  folder_ = std::move(folder);
  clocks_ = std::move(clocks);
  no_worker_ = std::move(no_worker);
}

std::uint64_t Recorder::now() noexcept {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

void Recorder::add_to(std::atomic<Ring*>& place, const RecordedEvent& event) noexcept {
  if (stopped_.load(std::memory_order_relaxed)) return;
  Ring* ring = place.load(std::memory_order_acquire);
  if (ring == nullptr) {
    ring = Ring::make();
    place.store(ring, std::memory_order_release);
  }
  if (ring == nullptr) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  ring->add(event);
}

void Recorder::add(const RecordedEvent& event) noexcept {
  if (event.thread < kLanesMax) return add_to(rings_[event.thread], event);
  dropped_.fetch_add(1, std::memory_order_relaxed);
}

void Recorder::add_batch(const RecordedEvent& event) noexcept { add_to(rings_.back(), event); }

void Recorder::name_kernel(std::uint64_t handle, std::string_view name) {
  const std::lock_guard<std::mutex> lock(names_mutex_);
  if (names_.size() >= protocol::kRecordedNamesMax) return;
  names_[handle] = name.substr(0, protocol::kRecordedNameBytesMax);
}

protocol::Recording Recorder::take() {
  stopped_.store(true, std::memory_order_relaxed);
  protocol::Recording recording;
  recording.dropped = dropped_.load(std::memory_order_relaxed);
  for (const std::atomic<Ring*>& place : rings_) {
    Ring* const ring = place.load(std::memory_order_acquire);
    if (ring == nullptr) continue;
    recording.dropped += ring->collect(&recording.events);
  }
  const std::lock_guard<std::mutex> lock(names_mutex_);
  recording.names = names_;
  return recording;
}

}  // namespace gpurun::client
