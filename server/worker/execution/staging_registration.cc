// StagingRegistration: one part after the other, until no copy needs more.
#include "server/worker/execution/staging_registration.h"

#include "base/log.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {

void StagingRegistration::begin(const Call& call, Staging& staging, std::uint64_t bytes) {
  if (driver_.cuMemHostRegister == nullptr) return staging.settle_all();
  void* const context = call.driver_context();
  if (!staging.begin_registering(context, bytes > Staging::kPartBytes)) return;
  const auto work = [this, &staging, context] { register_parts(staging, context); };
  if (!pool_.run(work).ok()) work();
}

void StagingRegistration::register_parts(Staging& staging, void* context) {
  const int entered = enter_context(driver_, owner_, context);
  Staging::Went went = Staging::Went::kOn;
  while (went == Staging::Went::kOn) {
    int refused = 0;
    went = staging.register_next(driver_, entered, &refused);
    if (refused != 0 && !reported_.exchange(true)) {
      GPURUN_LOG(kWarning,
                 "the driver does not register memory for copies (error %d): they are slower",
                 refused);
    }
    inbox_.wake();
  }
}

}  // namespace gpurun::server
