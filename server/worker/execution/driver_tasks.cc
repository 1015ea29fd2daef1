// DriverTasks: a count of helpers, and the waits for it.
#include "server/worker/execution/driver_tasks.h"

#include <utility>

#include "server/worker/execution/thread_context.h"

namespace gpurun::server {

bool DriverTasks::run(void* context, DriverTask task) {
  begin();
  const Status begun = pool_.run([this, context, task = std::move(task)] {
    task(driver_, enter_context(driver_, owner_, context));
    forget_thread_context();
    end();
  });
  if (!begun.ok()) end();
  return begun.ok();
}

void DriverTasks::begin() {
  const std::lock_guard lock(mutex_);
  ++helpers_;
}

void DriverTasks::end() {
  const std::lock_guard lock(mutex_);
  --helpers_;
  none_.notify_all();
}

bool DriverTasks::any() const {
  const std::lock_guard lock(mutex_);
  return helpers_ != 0;
}

void DriverTasks::wait_for_none() {
  std::unique_lock lock(mutex_);
  none_.wait(lock, [this] { return helpers_ == 0; });
}

void DriverTasks::wait_for(const DeviceOrder::OwedEvents& owed) {
  for (const DeviceBarrier::OwedEvent& each : owed) {
    const HandleTable::Found context = handles_.find(each.context, HandleKind::kContext);
    if (context.result != 0) continue;  // The context has ended together with the event.
    if (enter_context(driver_, owner_, reinterpret_cast<void*>(context.value)) != 0) continue;
    (void)driver_.cuEventSynchronize(each.event);
  }
}

}  // namespace gpurun::server
