// Staging: the memory through which bulk bytes pass between a connection and the device: slots of
// limits::kBulkChunkBytes in one mapping. It is registered with the driver by parts, from the front
// on, each once and before a slot of it is given to the driver; so a session that copies little
// costs little, and one that copies nothing, nothing (docs/adr/0026). Slots are taken so that those
// that were ever used are at the front, too.
//
// It stays registered to the end: the worker's process ends with its session.
//
// Any thread, except where a comment says otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "server/driver/driver_functions.h"

namespace gpurun::server {

class Staging {
 public:
  // A multiple of kPartBytes. ok() is false when there is no address space.
  explicit Staging(std::size_t bytes);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  bool ok() const noexcept { return start_ != nullptr; }

  // A slot that nobody else uses until give_back(); nullptr: none is free.
  std::byte* take();
  void give_back(std::byte* slot);
  std::size_t free_slots() const;

  // The one that take() gives, if nobody gives one back before; nullptr: none is free.
  const std::byte* next() const;

  // The driver may be given `slot`: it is registered, or the driver refused to; then copies pass
  // through the driver's own memory, slower and as right.
  bool settled(const std::byte* slot) const noexcept;

  // What is in use, the next slot, and with `ahead` a part more, are to be registered. True: the
  // caller, or a thread that it has, makes `context` current and calls register_next() until it
  // says kOver. False: it is done, or somebody is at it and will see to this, too.
  bool begin_registering(void* context, bool ahead);
  enum class Went : std::uint8_t { kOn, kOver };
  // One part; may take a millisecond, and wait in the driver. `refused` is 0, or the CUresult,
  // once, of a driver that refuses; it is asked for nothing more. `entered`: what came of making
  // the context current, a refusal unless 0.
  Went register_next(const DriverFunctions& driver, int entered, int* refused);
  // Of a driver without registration.
  void settle_all() noexcept;
  // A driver may drop with a context what was registered in it, and refuse only in it: asked again
  // at the next use.
  void context_ended(const void* context);

  static constexpr std::size_t kPartBytes = std::size_t{4} << 20;

 private:
  struct Part {
    bool registered = false;
    const void* context = nullptr;  // In this one.
  };
  std::size_t wanted(bool ahead) const noexcept;
  void settle();

  std::byte* start_ = nullptr;
  const std::size_t bytes_;
  // Of the slots that were ever taken and the next one, the end of the last, in slots. Grows.
  std::atomic<std::size_t> reach_{1};
  std::atomic<std::size_t> settled_{0};  // So many parts are. Written with the lock.
  mutable std::mutex mutex_;             // Guards all below.
  std::vector<std::byte*> free_;         // The last one given back is taken first.
  std::vector<Part> parts_;              // As many always.
  std::size_t wanted_ = 0;               // So many are to be settled.
  bool was_registered_ = false;          // Any part, ever.
  bool registering_ = false;             // Somebody is, or did last, in `context_`.
  bool outdated_ = false;                // Which has ended meanwhile.
  bool refused_ = false;                 // In `context_`: nothing more is asked for.
  const void* context_ = nullptr;
};

}  // namespace gpurun::server
