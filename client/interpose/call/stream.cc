// Stream: a stream's facts, by its handle.
#include "client/interpose/call/stream.h"

namespace gpurun::client::interpose {

Stream* find_stream(const EntryContext& here, Handle stream) noexcept {
  if (claimed_kind(stream) != HandleKind::kStream) return nullptr;
  return static_cast<Stream*>(here.handles().object_of(stream));
}

Handle context_of_stream(const EntryContext& here, Handle stream) noexcept {
  if (stream <= protocol::kStreamPerThread) {
    return here.context == nullptr ? 0 : here.context->handle;
  }
  return here.handles().context_of(stream);
}

int synchronize_stream(const EntryContext& here, Handle stream) {
  return wait_row(here, opcode::cuStreamSynchronize, here.stream_site(stream), Waits::kForStream,
                  as<CUstream>(stream));
}

}  // namespace gpurun::client::interpose
