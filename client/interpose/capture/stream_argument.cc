// Stream argument: the handle is checked, and then what a capture allows.
#include "client/interpose/capture/stream_argument.h"

#include "client/interpose/call/current_call.h"
#include "client/interpose/call/implicit_order.h"
#include "client/interpose/capture/capture.h"

namespace gpurun::client::interpose {

int resolve_stream(const EntryContext& here, CUstream given, Handle* stream) {
  Handle value = handle_of(given);
  if (value == protocol::kStreamNull) value = handle_of(default_stream());
  *stream = value;
  if (value > protocol::kStreamPerThread) {
    if (const int result = here.check(value, HandleKind::kStream); result != 0) return result;
  } else {
    before_default_stream(here, value);
  }
  return capturing_somewhere() ? refuse_stream(here, value) : 0;
}

}  // namespace gpurun::client::interpose
