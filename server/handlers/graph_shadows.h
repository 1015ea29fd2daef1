// GraphShadows: memory of the worker that copies of graphs read or write in place of the client's.
//
// It is registered with the driver (cuMemHostRegister), which makes who launches a graph that
// writes other memory wait until it has (seen on an H200), and reads other memory when the graph is
// launched (seen on an H100): before the client, whose answer we could not take meanwhile, has said
// what is there. To unregister may wait for the device, so a helper does, and memory whose graph
// has a copy less is kept for the next copy of its context first: an executable whose copies are
// set anew for each launch maps and unregisters nothing.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace gpurun::server {

class Executor;

// Any thread.
class GraphShadows {
 public:
  class Shadow;

  GraphShadows() = default;
  GraphShadows(const GraphShadows&) = delete;
  GraphShadows& operator=(const GraphShadows&) = delete;

  // By whom helpers are had; nullptr: by nobody any more, and the process ends soon.
  void set_executor(Executor* executor);

  // By a handler: `context` is current. 0 or the CUresult: OUT_OF_MEMORY for none or beyond
  // kGraphShadowBytesMax, or what the driver answered.
  int make(std::uint64_t byte_count, void* context, std::shared_ptr<Shadow>* made);

  // The driver's `context` is about to end, and what was registered in it will not be unregistered
  // any more. Waits for helpers that are at it, which may wait for the device, as that end does.
  void context_ends(void* context);

 private:
  // What is registered in one context.
  struct Registered {
    void* context = nullptr;
    bool over = false;        // The context has ended, or is about to.
    unsigned helpers_at = 0;  // So many unregister something.
  };
  struct Memory {
    std::byte* data = nullptr;
    std::size_t capacity = 0;                // Whole pages.
    std::shared_ptr<Registered> registered;  // nullptr: the driver registers none.
  };

  bool take_spare(std::size_t byte_count, const void* context, Memory* memory);
  bool has_room(std::size_t byte_count) const;
  int map(std::size_t byte_count, Memory* memory);
  int register_memory(Memory* memory, void* context);
  void tell_refusal(int refused);
  void end(const Memory& memory);
  std::vector<Memory> take_spares();
  void unregister(const Memory& memory);
  void give_back(const Memory& memory, bool unmaps);

  std::mutex mutex_;  // Guards all below.
  std::condition_variable unregistered_;
  Executor* executor_ = nullptr;
  std::map<void*, std::shared_ptr<Registered>> contexts_;
  std::multimap<std::size_t, Memory> spares_;  // By capacity.
  std::size_t spare_bytes_ = 0;
  std::uint64_t bytes_ = 0;  // Of all others, until they are given back.
  std::size_t living_ = 0;   // Shadows.
  bool told_of_refusal_ = false;
};

class GraphShadows::Shadow {
 public:
  ~Shadow() { owner_.end(memory_); }
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;
  std::byte* data() const { return memory_.data; }
  std::size_t size() const { return size_; }

 private:
  friend class GraphShadows;
  Shadow(GraphShadows& owner, Memory memory, std::size_t size)
      : owner_(owner), memory_(std::move(memory)), size_(size) {}
  GraphShadows& owner_;
  const Memory memory_;
  const std::size_t size_;
};

}  // namespace gpurun::server
