// StagingRegistration: registers staging memory with the driver, on helper threads. Such a driver
// call takes a millisecond, for which the role is not held.
//
// Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "server/bulk/staging.h"
#include "server/driver/driver_functions.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/executor_inbox.h"
#include "server/worker/execution/thread_pool.h"

namespace gpurun::server {

class StagingRegistration {
 public:
  // `owner` is that of enter_context(). Borrows all references.
  StagingRegistration(const DriverFunctions& driver, HelperThreadPool& pool, ExecutorInbox& inbox,
                      std::uint64_t owner)
      : driver_(driver), pool_(pool), inbox_(inbox), owner_(owner) {}
  StagingRegistration(const StagingRegistration&) = delete;
  StagingRegistration& operator=(const StagingRegistration&) = delete;

  // Registers what `call` uses of `staging`, which copies `bytes` through it. A large copy gets one
  // part more. The executor's thread is woken after each part.
  void begin(const Call& call, Staging& staging, std::uint64_t bytes);
  // As begin(). Returns whether the driver may be given `slot`.
  bool may_use(const Call& call, Staging& staging, const std::byte* slot, std::uint64_t bytes) {
    begin(call, staging, bytes);
    return staging.settled(slot);
  }

 private:
  void register_parts(Staging& staging, void* context);

  const DriverFunctions& driver_;
  HelperThreadPool& pool_;
  ExecutorInbox& inbox_;
  const std::uint64_t owner_;
  std::atomic<bool> reported_{false};  // A refused registration was reported.
};

}  // namespace gpurun::server
