// Implicit waits: the record that takes a free's place in the device's order, and the wait.
#include "client/interpose/memory/implicit_wait.h"

#include "client/early_answers/free_answers.h"
#include "client/interpose/capture/capture.h"
#include "protocol/calls/device_memory.h"
#include "protocol/control/features.h"

namespace gpurun::client::interpose {
namespace {

// Returns at once if `early`. Otherwise returns when the work before it is done.
int order(const EntryContext& here, Handle context, bool early) {
  protocol::MemoryReturn payload;
  payload.kind = protocol::ReturnKind::kOrder;
  CallSite site;
  site.opcode = opcode::cuMemFree_v2;
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kOrderedHost;
  site.flags = protocol::kFlagBarrier;
  site.context = context;
  site.work = Work::kNone;
  Session& session = here.session();
  if (early) return session.post(*here.lane, site, bytes_of(payload));
  Reply reply;
  const int result = session.call(*here.lane, site, bytes_of(payload), &reply);
  session.await_sources_read();
  return result;
}

}  // namespace

bool worker_keeps_order(const EntryContext& here) {
  return (here.process->features & protocol::feature_bit(protocol::Feature::kFreesInOrder)) != 0;
}

bool may_free_early(const EntryContext& here) {
  if (!here.session().may_answer_early()) return false;
  here.session().await_sources_read();
  return true;
}

int wait_implicitly(const EntryContext& here, Handle context) {
  Session& session = here.session();
  FreeFacts facts;
  facts.early = may_free_early(here);
  facts.captures = context_captures(context);
  facts.complete = session.known_complete(context);
  facts.worker_keeps_order = worker_keeps_order(here);
  const FreeAnswer answer = answer_free(facts);
  if (answer == FreeAnswer::kNothing) {
    session.take_device_writes(*here.lane);
    return session.health(context);
  }
  if (answer != FreeAnswer::kAwaitContext) {
    return order(here, context, answer == FreeAnswer::kPost);
  }
  CallSite site;
  site.context = context;
  site.waits = Waits::kForContext;
  const int result = call_row(here, opcode::cuCtxSynchronize, site, {});
  session.await_sources_read();
  return result;
}

int wait_for_users(const EntryContext& here, const MemoryRange& range) {
  int result = wait_implicitly(here, range.context);
  const Handle current = here.context->handle;
  const auto wait = [&](Handle context) {
    if (context == 0 || context == range.context ||
        find_context(*here.process, context) == nullptr) {
      return;
    }
    const int each = wait_implicitly(here, context);
    if (result == 0) result = each;
  };
  wait(current);
  if (!range.reached && range.view == 0) return result;
  for (const Handle context : here.session().working_contexts()) {
    if (context != current) wait(context);
  }
  return result;
}

}  // namespace gpurun::client::interpose
