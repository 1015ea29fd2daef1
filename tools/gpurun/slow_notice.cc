// SlowNotice: the thread waits for the end of the operation, with a time limit.
#include "tools/gpurun/slow_notice.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/deadline.h"

namespace gpurun::tools {
namespace {

constexpr std::chrono::seconds kExpected{2};

}  // namespace

SlowNotice::SlowNotice(std::function<void(const std::string&)> say, std::string text)
    : say_(std::move(say)), text_(std::move(text)) {
  if (!say_) return;
  over_ = eventfd(0, EFD_CLOEXEC);
  if (over_ >= 0) static_cast<void>(thread_.start("slow-notice", watch, this).ok());
}

SlowNotice::~SlowNotice() {
  if (thread_.started()) {
    eventfd_write(over_, 1);
    thread_.join();
  }
  if (over_ >= 0) close(over_);
}

void* SlowNotice::watch(void* notice) {
  const auto* self = static_cast<const SlowNotice*>(notice);
  pollfd over = {self->over_, POLLIN, 0};
  const Deadline deadline = Deadline::in(kExpected);
  while (poll(&over, 1, deadline.poll_timeout_ms()) == 0) {
    if (!deadline.passed()) continue;
    self->say_(self->text_);
    break;
  }
  return nullptr;
}

}  // namespace gpurun::tools
