// GraphShadows: memory of the worker that copies of graphs read or write in place of the client's.
//
// It is registered with the driver (cuMemHostRegister). If a graph writes other memory, its launch
// blocks until the write is done (seen on an H200). If a graph reads other memory, the driver reads
// it at the launch (seen on an H100). That is before the client has sent the bytes, which the
// worker could not take while it blocks.
//
// Unregistering may wait for the device, so a helper does it. Memory of a copy that ended is first
// kept for the next copy of its context. So an executable with new copies for each launch maps and
// unregisters nothing.
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

  // Sets the executor that provides helpers. nullptr: no executor exists any more, and the process
  // ends soon.
  void set_executor(Executor* executor);

  // For a handler, with `context` current. Returns 0 or the CUresult. OUT_OF_MEMORY for 0 bytes or
  // beyond kGraphShadowBytesMax, else the driver's error.
  int make(std::uint64_t byte_count, void* context, std::shared_ptr<Shadow>* made);

  // The driver's `context` is about to end, and memory registered in it is not unregistered any
  // more. Waits for helpers that unregister, which may wait for the device, as the end of the
  // context does.
  void context_ends(void* context);

 private:
  // The registrations in one context.
  struct Registered {
    void* context = nullptr;
    bool over = false;        // The context has ended, or is about to.
    unsigned helpers_at = 0;  // Helpers that unregister memory now.
  };
  struct Memory {
    std::byte* data = nullptr;
    std::size_t capacity = 0;                // A multiple of the page size.
    std::shared_ptr<Registered> registered;  // nullptr: the driver cannot register memory.
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
  std::uint64_t bytes_ = 0;  // Of all memory that is not spare, until it is given back.
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
