// PrimaryContext: the context of a device that the parts of a program share.
#pragma once

#include <memory>
#include <mutex>

#include "emulated/objects/context.h"

namespace gpurun::emulated {

class Device;

// Any thread. Primary contexts are immortal.
class PrimaryContext {
 public:
  explicit PrimaryContext(Device& device) : device_(device) {}
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  // It is always the same object, and active while it is retained.
  const ContextPtr& context();
  ContextPtr retain();
  // False: it was not retained.
  bool release();
  void reset();
  bool is_active();

 private:
  Device& device_;
  std::mutex mutex_;
  ContextPtr context_;  // Guarded by mutex_, and constant once it is made.
  int retained_ = 0;    // Guarded by mutex_.
};

// That of one of the visible devices. It is made at the first call.
PrimaryContext& primary_context(const Device& device);

}  // namespace gpurun::emulated
