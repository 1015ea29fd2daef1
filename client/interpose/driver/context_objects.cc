// What becomes of the objects of handles whose context ends.
#include "client/interpose/context.h"
#include "client/interpose/stream.h"

namespace gpurun::client::interpose {

void end_object(HandleKind kind, void* object) noexcept {
  if (object == nullptr) return;
  switch (kind) {
    case HandleKind::kStream:
      return end_stream(object);
    default:
      return;
  }
}

}  // namespace gpurun::client::interpose
