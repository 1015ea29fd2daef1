// MemorySharing: waits for early answers by a new stream, or by contexts.
#include "client/interpose/driver/memory_sharing.h"

#include "client/interpose/capture/capture.h"
#include "client/interpose/custom.h"

namespace gpurun::client::interpose {
namespace {

// The work of a stream that waits for no other begins after the early answers.
int settle_by_stream() {
  CUstream stream = nullptr;
  if (const CUresult made = custom::cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING); made != 0) {
    return made;
  }
  const CUresult result = custom::cuStreamSynchronize(stream);
  (void)custom::cuStreamDestroy_v2(stream);
  return result;
}

// For threads without a current context.
int settle_by_contexts(const EntryContext& here) {
  int first = 0;
  for (const Handle context : here.session().working_contexts()) {
    if (find_context(*here.process, context) == nullptr || context_captures(context)) continue;
    CallSite site;
    site.context = context;
    site.waits = Waits::kForContext;
    const int result = call_row(here, opcode::cuCtxSynchronize, site, {});
    if (first == 0) first = result;
  }
  return first;
}

}  // namespace

MemorySharing::MemorySharing(const EntryContext& here) : here_(here) {
  here_.session().share_memory();
}

MemorySharing::~MemorySharing() {
  if (!kept_) here_.session().unshare_memory();
}

int MemorySharing::settle() const {
  EntryContext current;
  return current.enter_context() == 0 ? settle_by_stream() : settle_by_contexts(here_);
}

}  // namespace gpurun::client::interpose
