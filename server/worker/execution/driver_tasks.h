// DriverTasks: driver calls on helper threads, for callers that must not call the driver or must
// not block. It also counts the helpers that need their contexts.
//
// A helper counts from begin() to end(), because it may use an event or a stream of its context. A
// call that destroys a context waits until the count is 0. Any thread. The mutex is a
// leaf.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "server/driver/driver_functions.h"
#include "server/worker/execution/device_order.h"
#include "server/worker/execution/handles.h"
#include "server/worker/execution/thread_pool.h"

namespace gpurun::server {

class DriverTasks {
 public:
  using DriverTask = std::function<void(const DriverFunctions& driver, int entered)>;

  // `owner` is that of enter_context(). Borrows all references.
  DriverTasks(const DriverFunctions& driver, HandleTable& handles, HelperThreadPool& pool,
              std::uint64_t owner)
      : driver_(driver), handles_(handles), pool_(pool), owner_(owner) {}
  DriverTasks(const DriverTasks&) = delete;
  DriverTasks& operator=(const DriverTasks&) = delete;

  // Runs `task` in `context` on a helper thread that counts. `entered` is 0, or the CUresult for a
  // context that is not valid any more. False: no helper is available.
  bool run(void* context, DriverTask task);

  // A helper of the caller's counts. begin() comes before it is started, with the role.
  void begin();
  void end();
  bool any() const;
  // Blocks until no helper counts. On a helper thread that does not count.
  void wait_for_none();

  // Blocks until the events are complete. On a helper thread that counts. The device's next call
  // reports a failure.
  void wait_for(const DeviceOrder::OwedEvents& owed);

 private:
  const DriverFunctions& driver_;
  HandleTable& handles_;
  HelperThreadPool& pool_;
  const std::uint64_t owner_;

  mutable std::mutex mutex_;
  std::condition_variable none_;
  int helpers_ = 0;  // Under mutex_.
};

}  // namespace gpurun::server
