// The life of primary contexts.
#include "emulated/objects/primary_context.h"

#include <utility>
#include <vector>

#include "emulated/objects/context_end.h"
#include "emulated/objects/device.h"

namespace gpurun::emulated {

const ContextPtr& PrimaryContext::context() {
  const std::lock_guard lock(mutex_);
  if (context_ == nullptr) context_ = handles().add(std::make_shared<Context>(device_, 0, true));
  return context_;
}

ContextPtr PrimaryContext::retain() {
  const ContextPtr& context = this->context();
  const std::lock_guard lock(mutex_);
  ++retained_;
  context->activate();
  return context;
}

bool PrimaryContext::release() {
  const ContextPtr& context = this->context();
  {
    const std::lock_guard lock(mutex_);
    if (retained_ == 0) return false;
    if (--retained_ > 0) return true;
  }
  if (context->is_active()) end_context(*context);
  return true;
}

// Its users must still release it (manual, cuDevicePrimaryCtxReset).
void PrimaryContext::reset() {
  const ContextPtr& context = this->context();
  if (context->is_active()) end_context(*context);
}

bool PrimaryContext::is_active() { return context()->is_active(); }

PrimaryContext& primary_context(const Device& device) {
  static const auto* all = [] {
    auto* made = new std::vector<std::unique_ptr<PrimaryContext>>;
    for (const auto& each : devices()) made->push_back(std::make_unique<PrimaryContext>(*each));
    return made;
  }();
  return *(*all)[static_cast<std::size_t>(device.ordinal())];
}

}  // namespace gpurun::emulated
