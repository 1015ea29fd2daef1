// Context objects: what happens to the objects of handles when their context ends.
#include "client/interpose/driver/context_objects.h"

namespace gpurun::client::interpose {

void end_object(HandleKind kind, void* object) noexcept {
  if (object == nullptr) return;
  switch (kind) {
    case HandleKind::kStream:
      return end_stream(object);
    case HandleKind::kArray:
      return end_array(object);
    case HandleKind::kMipmappedArray:
      return end_mipmapped_array(object);
    default:
      return;
  }
}

}  // namespace gpurun::client::interpose
