// BulkOpener: opens one connection at a time, and the next only after Bulk has tried the last.
#include "client/bulk/bulk_opener.h"

#include <utility>

#include "base/log.h"
#include "client/process/fork_guard.h"

namespace gpurun::client {

void BulkOpener::look() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopping_ || running_) return;
  thread_.join();  // The last thread has nothing left to do.
  running_ = thread_
                 .start(
                     "gpurun-bulk-new",
                     [](void* of) -> void* {
                       static_cast<BulkOpener*>(of)->run();
                       return nullptr;
                     },
                     this)
                 .ok();
  if (!running_) bulk_.cannot_add();
}

void BulkOpener::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    if (opening_ != nullptr) opening_->give_up();
  }
  thread_.join();
  for (const int fd : watched_) fork_guard::forget(fd);
  watched_.clear();
}

bool BulkOpener::begins(OpeningDescriptor& opening) {
  const std::lock_guard<std::mutex> lock(mutex_);
  running_ = !stopping_ && bulk_.open() < bulk_.wanted();
  if (running_) opening_ = &opening;
  return running_;
}

void BulkOpener::has_ended() {
  const std::lock_guard<std::mutex> lock(mutex_);
  opening_ = nullptr;
}

void BulkOpener::run() {
  for (;;) {
    OpeningDescriptor opening;
    if (!begins(opening)) return;
    Result<ExtraBulkConnections::Joined> joined = from_.open(opening);
    has_ended();
    if (!joined.ok()) {
      GPURUN_LOG(kInfo, "no further connection for copies' bytes: %s",
                 joined.status().message().c_str());
      bulk_.cannot_add();
      continue;
    }
    watched_.push_back(opening.keep_watched());
    bulk_.add(std::move(joined->connection), joined->cores);
    GPURUN_LOG(kInfo, "copies' bytes have %u connections to try", bulk_.open());
  }
}

}  // namespace gpurun::client
