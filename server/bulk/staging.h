// Staging: the memory through which bulk bytes pass between a connection and the device, as slots
// of limits::kBulkChunkBytes in one mapping.
//
// It is registered with the driver by parts, from the front on, before the driver gets a slot of
// it. A part is registered once, and again only after its context has ended. So a session that
// copies little costs little, and one that copies nothing costs nothing (docs/adr/0026). Slots that
// were ever used stay at the front, too.
//
// It stays registered to the end, because the worker's process ends with its session.
//
// Any thread, except where a comment restricts it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "server/driver/driver_functions.h"

namespace gpurun::server {

class Staging {
 public:
  // `bytes` is a multiple of kPartBytes. ok() is false when there is no address space.
  explicit Staging(std::size_t bytes);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  bool ok() const noexcept { return start_ != nullptr; }
  MutableBytes memory() const noexcept { return {start_, bytes_}; }

  // A slot for the caller alone until give_back(). nullptr: no slot is free.
  std::byte* take();
  void give_back(std::byte* slot);
  std::size_t free_slots() const;

  // The slot that take() returns next, unless one is given back before. nullptr: no slot is free.
  const std::byte* next() const;

  // Whether the driver may be given `slot`: it is registered, or the driver refused. After a
  // refusal copies pass through the driver's own memory, which is slower and as correct.
  bool settled(const std::byte* slot) const noexcept;

  // Requests registration of the slots in use, the next slot, and with `ahead` one part more. True:
  // the caller, or a helper of it, makes `context` current and calls register_next() until it
  // returns kOver. False: nothing is left to do, or another thread registers these, too.
  bool begin_registering(void* context, bool ahead);
  enum class Went : std::uint8_t { kOn, kOver };
  // Registers one part. This may take a millisecond and block in the driver. `refused` is 0, or
  // once the CUresult of a driver that refuses. Such a driver is not asked again. `entered` is the
  // result of making the context current. A value other than 0 counts as a refusal.
  Went register_next(const DriverFunctions& driver, int entered, int* refused);
  // For a driver without registration.
  void settle_all() noexcept;
  // A driver may drop registrations together with their context, and may refuse only in one
  // context. So it is asked again at the next use.
  void context_ended(const void* context);

  static constexpr std::size_t kPartBytes = std::size_t{4} << 20;

 private:
  struct Part {
    bool registered = false;
    const void* context = nullptr;  // The context of the registration.
  };
  std::size_t wanted(bool ahead) const noexcept;
  void settle();

  std::byte* start_ = nullptr;
  const std::size_t bytes_;
  // The end of the furthest slot among those ever taken and the next one, in slots. It grows.
  std::atomic<std::size_t> reach_{1};
  std::atomic<std::size_t> settled_{0};  // The number of settled parts. Written with the lock.
  mutable std::mutex mutex_;             // Guards all below.
  std::vector<std::byte*> free_;         // The last slot given back is taken first.
  std::vector<Part> parts_;              // Their number is constant.
  std::size_t wanted_ = 0;               // The number of parts to be settled.
  bool was_registered_ = false;          // Any part was ever registered.
  bool registering_ = false;             // A thread registers parts, or did last, in `context_`.
  bool outdated_ = false;                // `context_` has ended meanwhile.
  bool refused_ = false;                 // In `context_`: nothing more is requested.
  const void* context_ = nullptr;
};

}  // namespace gpurun::server
