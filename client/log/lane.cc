// Lane registry: one lane for each living thread that has called CUDA.
#include "client/log/lane.h"

#include <pthread.h>

#include <array>

#include "client/log/lane_registry.h"
#include "client/process/fork_guard.h"

namespace gpurun::client {
namespace {

// A plain pointer: a thread_local with a destructor would pin or outlive this library.
thread_local Lane* current_lane = nullptr;

constexpr std::size_t kChunkLanes = 1024;
constexpr std::size_t kChunks = limits::kLanesMax / kChunkLanes;

struct Registry {
  std::mutex mutex;
  std::vector<Lane*> idle;  // Lanes of dead threads, to be used again.
  std::size_t made = 0;     // Lanes ever made: their ids are 0 to made - 1.
  std::size_t live = 0;
  std::array<std::atomic<std::atomic<Lane*>*>, kChunks> chunks{};
};

// Immortal, because threads end after the library's own end. A forked child makes its own.
std::atomic<Registry*> current_registry{nullptr};

// The key outlives forks. In a child, its value is cleared if it is a lane of the parent.
std::atomic<bool> key_made{false};
pthread_key_t key;  // Once key_made.

// The parent's lanes stay where they are: threads that do not exist here may hold their mutexes.
void forget_parents_lanes() {
  current_registry.store(nullptr, std::memory_order_release);
  current_lane = nullptr;
  if (key_made.load(std::memory_order_acquire)) pthread_setspecific(key, nullptr);
}

Registry& registry() {
  Registry* found = current_registry.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  fork_guard::in_each_child(&forget_parents_lanes);
  auto* const made = new Registry;
  if (current_registry.compare_exchange_strong(found, made, std::memory_order_acq_rel)) {
    return *made;
  }
  delete made;
  return *found;
}

// Under the registry's mutex.
bool make_key() {
  if (key_made.load(std::memory_order_acquire)) return true;
  if (pthread_key_create(&key, &LaneRegistry::thread_ends) != 0) return false;
  key_made.store(true, std::memory_order_release);
  return true;
}

}  // namespace

Lane* LaneRegistry::take() {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!make_key()) return nullptr;
  Lane* lane;
  if (!all.idle.empty()) {
    lane = all.idle.back();
    all.idle.pop_back();
  } else {
    if (all.made == limits::kLanesMax) return nullptr;
    const std::size_t id = all.made++;
    lane = new Lane;
    lane->id_ = static_cast<std::uint32_t>(id);
    lane->home_ = &all;
    auto& chunk = all.chunks[id / kChunkLanes];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
      chunk.store(
          new std::atomic<Lane*>[kChunkLanes] {}, std::memory_order_release);
    }
    chunk.load(std::memory_order_relaxed)[id % kChunkLanes].store(lane, std::memory_order_release);
  }
  ++all.live;
  pthread_setspecific(key, lane);
  return lane;
}

void LaneRegistry::thread_ends(void* value) {
  Lane* lane = static_cast<Lane*>(value);
  // In a child that clone() made, the lane may be the parent's (forget_parents_lanes()).
  static_cast<void>(fork_guard::generation());
  if (lane->home_ != current_registry.load(std::memory_order_acquire)) return;
  current_lane = nullptr;  // A later destructor of this thread that calls CUDA gets a new lane.
  if (lane->free_attachment != nullptr && lane->attachment != nullptr) {
    lane->free_attachment(lane->attachment);
  }
  lane->attachment = nullptr;
  lane->contexts_.clear();
  lane->capture_mode_ = CaptureMode::kGlobal;
  lane->seen_.clear();
  lane->session_ = 0;
  lane->posted_ = false;
  lane->forget_polls();
  if (lane->reply_.capacity() > 4096) Bytes().swap(lane->reply_);
  {
    const std::lock_guard<std::mutex> lock(lane->mutex_);
    lane->awaited_ = 0;
  }
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.idle.push_back(lane);
  --all.live;
}

Lane* lane_of_id(std::uint32_t id) noexcept {
  if (id >= limits::kLanesMax) return nullptr;
  std::atomic<Lane*>* chunk = registry().chunks[id / kChunkLanes].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : chunk[id % kChunkLanes].load(std::memory_order_acquire);
}

void for_each_lane(void (*visit)(Lane& lane, void* user), void* user) {
  std::size_t made;
  {
    Registry& all = registry();
    const std::lock_guard<std::mutex> lock(all.mutex);
    made = all.made;
  }
  for (std::size_t id = 0; id < made; ++id) {
    if (Lane* lane = lane_of_id(static_cast<std::uint32_t>(id))) visit(*lane, user);
  }
}

Lane* Lane::current() noexcept {
  if (current_lane == nullptr) current_lane = LaneRegistry::take();
  return current_lane;
}

std::size_t Lane::live_count() noexcept {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.live;
}

std::size_t Lane::peak_count() noexcept {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.made;
}

void Lane::set_context(Handle context) {
  if (contexts_.empty()) {
    if (context != 0) contexts_.push_back(context);
  } else if (context == 0) {
    contexts_.pop_back();
  } else {
    contexts_.back() = context;
  }
}

void Lane::push_context(Handle context) { contexts_.push_back(context); }

Handle Lane::pop_context() {
  if (contexts_.empty()) return 0;
  const Handle top = contexts_.back();
  contexts_.pop_back();
  return top;
}

}  // namespace gpurun::client
