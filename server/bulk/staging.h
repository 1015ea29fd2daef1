// Staging: the memory through which bulk bytes pass between a connection and the device: slots of
// limits::kBulkChunkBytes in one mapping. Pages come with their first use and are pinned then, in
// parts, so that a session which copies little costs little.
//
// Any thread, except where a comment says otherwise.
#pragma once

#include <cstddef>
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

  // Before the driver is given `slot`. One thread at a time, with a context current. Where the
  // driver cannot pin, copies pass through its own staging: slower, and as right.
  void pin(const DriverFunctions& driver, const std::byte* slot);

  static constexpr std::size_t kPartBytes = std::size_t{4} << 20;

 private:
  std::byte* start_ = nullptr;
  const std::size_t bytes_;
  std::vector<bool> pinned_;  // By part.
  mutable std::mutex mutex_;
  std::vector<std::byte*> free_;  // The last one given back is taken first.
};

}  // namespace gpurun::server
