// The registry of lanes: one for each living thread that has called CUDA.
#include "client/lane.h"

#include <pthread.h>

#include <array>

#include "client/fork_guard.h"
#include "client/lane_registry.h"

namespace gpurun::client {
namespace {

// Plain pointers: no thread_local with a destructor, which would pin or outlive this library.
thread_local Lane* current_lane = nullptr;

constexpr std::size_t kChunkLanes = 1024;
constexpr std::size_t kChunks = limits::kLanesMax / kChunkLanes;

struct Registry {
  std::mutex mutex;
  std::vector<Lane*> idle;  // Lanes of dead threads, to be used again.
  std::size_t made = 0;     // Lanes ever made: their ids are 0 to made - 1.
  std::size_t live = 0;
  pthread_key_t key{};
  bool key_made = false;
  std::array<std::atomic<std::atomic<Lane*>*>, kChunks> chunks{};
};

// Immortal: threads end after the library's own end.
Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

}  // namespace

Lane* LaneRegistry::take() {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.key_made) {
    if (pthread_key_create(&all.key, &LaneRegistry::thread_ends) != 0) return nullptr;
    all.key_made = true;
  }
  Lane* lane;
  if (!all.idle.empty()) {
    lane = all.idle.back();
    all.idle.pop_back();
  } else {
    if (all.made == limits::kLanesMax) return nullptr;
    const std::size_t id = all.made++;
    lane = new Lane;
    lane->id_ = static_cast<std::uint32_t>(id);
    auto& chunk = all.chunks[id / kChunkLanes];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
      chunk.store(
          new std::atomic<Lane*>[kChunkLanes] {}, std::memory_order_release);
    }
    chunk.load(std::memory_order_relaxed)[id % kChunkLanes].store(lane, std::memory_order_release);
  }
  ++all.live;
  pthread_setspecific(all.key, lane);
  return lane;
}

void LaneRegistry::thread_ends(void* value) {
  Lane* lane = static_cast<Lane*>(value);
  // In a forked child lanes are the parent's, and another thread may have held their mutexes.
  if (fork_guard::forked()) return;
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

void for_each_lane(void (*visit)(Lane& lane)) {
  std::size_t made;
  {
    Registry& all = registry();
    const std::lock_guard<std::mutex> lock(all.mutex);
    made = all.made;
  }
  for (std::size_t id = 0; id < made; ++id) {
    if (Lane* lane = lane_of_id(static_cast<std::uint32_t>(id))) visit(*lane);
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

void Lane::forget_context(Handle context) { std::erase(contexts_, context); }

}  // namespace gpurun::client
