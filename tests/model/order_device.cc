// OrderDevice: the effect of each driver call on the device's order.
#include "tests/model/order_device.h"

#include <algorithm>

#include "tests/model/model.h"
#include "tests/model/runtime.h"

namespace gpurun::model {
namespace {

constexpr int kNotReady = 600;  // CUDA_ERROR_NOT_READY.

OrderDevice& device() { return *OrderDevice::current(); }
void* pointer(std::uintptr_t value) { return reinterpret_cast<void*>(value); }
std::uintptr_t number(const void* value) { return reinterpret_cast<std::uintptr_t>(value); }

}  // namespace

OrderDevice*& OrderDevice::current() {
  static OrderDevice* one = nullptr;
  return one;
}

void* OrderDevice::add_stream(int context, bool blocking) {
  void* stream = pointer(++last_handle_);
  streams_[stream] = {context, blocking, false};
  return stream;
}

void* OrderDevice::add_event() {
  void* event = pointer(++last_handle_);
  events_[event] = -1;
  return event;
}

int OrderDevice::context_now() const {
  const auto found = thread_context_.find(world.current->id);
  return found == thread_context_.end() ? 0 : found->second;
}

OrderDevice::Stream& OrderDevice::stream_of(void* stream) {
  if (number(stream) <= 1) {
    const int context = context_now();
    check(context != 0, "the legacy stream is used without a context");
    return legacy_.try_emplace(context, Stream{context, true, true}).first->second;
  }
  const auto found = streams_.find(stream);
  check(found != streams_.end(), "the driver is given a stream that it does not have");
  return found->second;
}

void OrderDevice::come_after(Operation& operation, std::ptrdiff_t other) {
  if (other < 0) return;
  const auto at = static_cast<std::size_t>(other);
  operation.after[at] = true;
  const std::vector<bool>& its = operations_[at].after;
  for (std::size_t i = 0; i < its.size(); ++i) {
    if (its[i]) operation.after[i] = true;
  }
}

std::size_t OrderDevice::give(void* given) {
  Stream& stream = stream_of(given);
  const std::size_t self = operations_.size();
  Operation operation{stream.context, false, std::vector<bool>(self)};
  come_after(operation, stream.last);
  if (stream.legacy) {
    for (const auto& [value, other] : streams_) {
      if (other.context == stream.context && other.blocking) come_after(operation, other.last);
    }
  } else if (stream.blocking) {
    const auto legacy = legacy_.find(stream.context);
    if (legacy != legacy_.end()) come_after(operation, legacy->second.last);
  }
  for (std::size_t i = 0; i < self; ++i) {  // Completed operations come before everything later.
    if (operations_[i].complete) come_after(operation, static_cast<std::ptrdiff_t>(i));
  }
  stream.last = static_cast<std::ptrdiff_t>(self);
  operations_.push_back(std::move(operation));
  return self;
}

std::vector<std::ptrdiff_t> OrderDevice::last_of(void* given) {
  const Stream& stream = stream_of(given);
  std::vector<std::ptrdiff_t> last = {stream.last};
  for (const auto& [value, other] : streams_) {
    const bool joined = other.context == stream.context && other.blocking;
    if (stream.legacy && joined) last.push_back(other.last);
  }
  return last;
}

bool OrderDevice::all_done(const std::vector<std::ptrdiff_t>& operations) const {
  return std::all_of(operations.begin(), operations.end(),
                     [this](std::ptrdiff_t each) { return done(each); });
}

// For the legacy stream this includes the work of blocking streams.
bool OrderDevice::stream_done(void* stream) { return all_done(last_of(stream)); }

std::size_t OrderDevice::record(void* event, void* stream) {
  check(events_.count(event) != 0, "the driver is given an event that it does not have");
  const std::size_t self = give(stream);
  events_[event] = static_cast<std::ptrdiff_t>(self);
  return self;
}

std::size_t OrderDevice::wait(void* stream, void* event) {
  const std::ptrdiff_t recorded = events_[event];
  const std::size_t self = give(stream);
  come_after(operations_[self], recorded);
  return self;
}

bool OrderDevice::may_complete(const Operation& operation) const {
  if (operation.complete) return false;
  for (std::size_t i = 0; i < operation.after.size(); ++i) {
    if (operation.after[i] && !operations_[i].complete) return false;
  }
  return true;
}

void OrderDevice::run() {
  const auto next = [this] {
    return std::find_if(operations_.begin(), operations_.end(),
                        [this](const Operation& each) { return may_complete(each); });
  };
  for (;;) {
    const Quiet quiet;
    until([&] { return stopping_ || (!paused_ && next() != operations_.end()); }, "work");
    std::vector<Operation*> able;
    for (Operation& each : operations_) {
      if (may_complete(each)) able.push_back(&each);
    }
    if (able.empty()) return;
    able[choose(static_cast<unsigned>(able.size()))]->complete = true;
  }
}

void OrderDevice::wait_for_context(int context) {
  const std::size_t count = operations_.size();
  until(
      [this, count, context] {
        for (std::size_t i = 0; i < count; ++i) {
          if (operations_[i].context == context && !operations_[i].complete) return false;
        }
        return true;
      },
      "the work of a context");
}

server::DriverFunctions OrderDevice::functions() {
  server::DriverFunctions driver;
  driver.cuCtxSetCurrent = [](void* context) {
    const Quiet quiet;
    device().thread_context_[world.current->id] = static_cast<int>(number(context));
    return 0;
  };
  driver.cuThreadExchangeStreamCaptureMode = [](int*) { return 0; };
  driver.cuStreamIsCapturing = [](void*, int* status) {
    *status = 0;
    return 0;
  };
  driver.cuStreamCreate = [](void** stream, unsigned flags) {
    const Quiet quiet;
    *stream = device().add_stream(device().context_now(), (flags & 1) == 0);
    return 0;
  };
  driver.cuStreamGetFlags = [](void* stream, unsigned* flags) {
    const Quiet quiet;
    *flags = device().stream_of(stream).blocking ? 0 : 1;
    return 0;
  };
  driver.cuStreamGetCtx = [](void* stream, void** context) {
    const Quiet quiet;
    *context = pointer(static_cast<std::uintptr_t>(device().stream_of(stream).context));
    return 0;
  };
  driver.cuStreamQuery = [](void* stream) {
    const Quiet quiet;
    return device().stream_done(stream) ? 0 : kNotReady;
  };
  driver.cuStreamSynchronize = [](void* stream) {
    const Quiet quiet;
    const std::vector<std::ptrdiff_t> last = device().last_of(stream);
    const auto done = [&last] { return device().all_done(last); };
    until(done, "the work of a stream");
    return 0;
  };
  driver.cuEventCreate = [](void** event, unsigned) {
    const Quiet quiet;
    *event = device().add_event();
    return 0;
  };
  driver.cuEventQuery = [](void* event) {
    const Quiet quiet;
    point();
    return device().done(device().events_[event]) ? 0 : kNotReady;
  };
  driver.cuEventSynchronize = [](void* event) {
    const Quiet quiet;
    const std::ptrdiff_t recorded = device().events_[event];
    until([recorded] { return device().done(recorded); }, "an event");
    return 0;
  };
  return driver;
}

}  // namespace gpurun::model
