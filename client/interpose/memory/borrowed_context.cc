// BorrowedContext: finds the context behind a handle or an address.
#include "client/interpose/memory/borrowed_context.h"

#include <new>

#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {
namespace {

Handle context_behind(const Process& process, HandleKind kind, Handle value) {
  if (kind == HandleKind::kNone) {
    const auto range = find_range(value);
    return range.has_value() ? range->context : 0;
  }
  return claimed_kind(value) == kind ? process.session->handles().context_of(value) : 0;
}

}  // namespace

BorrowedContext::BorrowedContext(HandleKind kind, Handle value) noexcept {
  const Process* const process = connected_already();
  Lane* const lane = process == nullptr ? nullptr : Lane::current();
  if (lane == nullptr || lane->context() != 0) return;
  const Context* const context = find_context(*process, context_behind(*process, kind, value));
  if (context == nullptr || !context->active.load(std::memory_order_acquire)) return;
  try {
    lane->push_context(context->handle);
    lane_ = lane;
  } catch (const std::bad_alloc&) {
  }
}

BorrowedContext::~BorrowedContext() {
  if (lane_ != nullptr) lane_->pop_context();
}

}  // namespace gpurun::client::interpose
