// Lookup of the context behind a handle or an address.
#include "emulated/api/borrowed_context.h"

#include "emulated/api/entry.h"
#include "emulated/objects/array.h"
#include "emulated/objects/context_module.h"
#include "emulated/objects/event.h"
#include "emulated/objects/memory_registry.h"
#include "emulated/objects/primary_context.h"

namespace gpurun::emulated {
namespace {

using driver_abi::HandleKind;

// A pool belongs to a device. The context that allocated serves, else the device's primary context.
ContextPtr context_of_memory(std::uint64_t address) {
  const auto range = memory_registry().find(address);
  if (!range.has_value()) return nullptr;
  if (range->context_handle != 0) return handles().find<Context>(range->context_handle);
  if (auto maker = handles().find<Context>(range->maker_handle);
      maker != nullptr && maker->is_active()) {
    return maker;
  }
  Device* const device = device_at(range->device);
  return device == nullptr ? nullptr : primary_context(*device).context();
}

template <typename T>
ContextPtr context_of_array(std::uint64_t handle) {
  const auto array = handles().find<T>(handle);
  return array == nullptr ? nullptr : context_of_memory(array->memory());
}

ContextPtr context_of(HandleKind kind, std::uint64_t value) {
  switch (kind) {
    case HandleKind::kNone:
      return context_of_memory(value);
    case HandleKind::kStream: {
      const auto stream = handles().find<Stream>(value);
      return stream == nullptr ? nullptr : stream->shared_context();
    }
    case HandleKind::kEvent: {
      const auto event = handles().find<Event>(value);
      return event == nullptr ? nullptr : event->shared_context();
    }
    case HandleKind::kModule: {
      const auto module = handles().find<ContextModule>(value);
      return module == nullptr ? nullptr : module->context();
    }
    case HandleKind::kFunction: {
      const auto function = handles().find<Function>(value);
      const auto module = function == nullptr ? nullptr : function->module();
      return module == nullptr ? nullptr : module->context();
    }
    case HandleKind::kArray:
      return context_of_array<Array>(value);
    case HandleKind::kMipmappedArray:
      return context_of_array<MipmappedArray>(value);
    default:
      return nullptr;
  }
}

}  // namespace

BorrowedContext::BorrowedContext(HandleKind kind, std::uint64_t value) {
  ThreadState& thread = thread_state();
  if (thread.current() != nullptr) return;
  ContextPtr context = context_of(kind, value);
  if (context == nullptr || !context->is_active()) return;
  thread.contexts.push_back(std::move(context));
  lent_ = true;
}

BorrowedContext::~BorrowedContext() {
  if (lent_) thread_state().contexts.pop_back();
}

}  // namespace gpurun::emulated
