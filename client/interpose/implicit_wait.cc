// The record that has a free's place on the device, and the wait in its stead.
#include "client/interpose/implicit_wait.h"

#include "client/interpose/capture.h"
#include "protocol/device_memory.h"
#include "protocol/features.h"

namespace gpurun::client::interpose {
namespace {

bool worker_keeps_order(const Here& here) {
  return (here.process->features & protocol::feature_bit(protocol::Feature::kFreesInOrder)) != 0;
}

int post_order(const Here& here, Handle context) {
  protocol::MemoryReturn payload;
  payload.kind = protocol::ReturnKind::kOrder;
  CallSite site;
  site.opcode = opcode::cuMemFree_v2;
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kOrderedHost;
  site.flags = protocol::kFlagBarrier;
  site.context = context;
  site.work = Work::kNone;
  return here.session().post(*here.lane, site, bytes_of(payload));
}

}  // namespace

bool may_free_early(const Here& here) {
  if (!here.session().may_answer_early()) return false;
  here.session().await_sources_read();
  return true;
}

int wait_implicitly(const Here& here, Handle context) {
  Session& session = here.session();
  const bool early = may_free_early(here);
  // Nobody may wait for a context that captures.
  if (worker_keeps_order(here) && (early || context_captures(context))) {
    return session.known_complete(context) ? session.health(context) : post_order(here, context);
  }
  if (context_captures(context) || (early && session.known_complete(context))) {
    return session.health(context);
  }
  CallSite site;
  site.context = context;
  site.waits = Waits::kForContext;
  const int result = call_row(here, opcode::cuCtxSynchronize, site, {});
  session.await_sources_read();
  return result;
}

}  // namespace gpurun::client::interpose
