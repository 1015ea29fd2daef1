// Memset: fills of memory that the device reaches. CUDA waits for none of them when the memory is
// the device's.
#include "client/early_answers/quiet_work.h"
#include "client/interpose/call/forward.h"
#include "client/interpose/call/stream.h"
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "client/interpose/memory/graph_memory.h"
#include "client/interpose/memory/host_arena.h"
#include "client/interpose/memory/kept_frees.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {
namespace {

// `synchronous`: waits if the program can look at the memory (manual, "API synchronization
// behavior").
CUresult fill(std::uint16_t code, CUdeviceptr to, std::uint32_t value, std::uint32_t element_bytes,
              size_t count, CUstream given, bool synchronous) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Handle stream = 0;
  if (const int result = resolve_stream(here, given, &stream); result != 0) return cuda(result);
  if (count == 0) return cuda(here.session().health(here.context->handle));
  if (to == 0 || to % element_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  auto range = find_device_range(here, to);
  if (range.has_value() && !may_be_posted(here, *range)) range.reset();
  const bool unreached = range.has_value() && range->on_host() && !range->reached;
  const bool bounded = range.has_value() && range->is_sure();
  if (bounded && (unreached || count > range->bytes / element_bytes ||
                  !range->covers(to, count * element_bytes))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!range.has_value() && device_of_window(to) >= 0) return CUDA_ERROR_INVALID_VALUE;
  protocol::MemsetPayload payload;
  payload.destination = to;
  payload.width = count;
  payload.height = 1;
  payload.value = value;
  payload.element_bytes = element_bytes;
  CallSite site = here.stream_site(stream);
  site.opcode = code;
  site.form = protocol::Form::kMemset;
  if (range.has_value()) site.work = work_of_fill(count * element_bytes, range->end(site.context));
  if (range.has_value()) {
    const bool waits = synchronous && range->reached;
    if (waits) post_kept_frees(here);  // The program then knows that they are done.
    const int result = here.session().post(*here.lane, site, bytes_of(payload));
    return cuda(waits && result == 0 ? synchronize_stream(here, stream) : result);
  }
  // Only the worker's driver can decide whether an address that we do not know is valid.
  settle_unknown(here, to);
  Reply reply;
  return cuda(here.session().call(*here.lane, site, bytes_of(payload), &reply));
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return fill(opcode::cuMemsetD8_v2, to, value, 1, count, nullptr, true);
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return fill(opcode::cuMemsetD16_v2, to, value, 2, count, nullptr, true);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return fill(opcode::cuMemsetD32_v2, to, value, 4, count, nullptr, true);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return fill(opcode::cuMemsetD8Async, to, value, 1, count, stream, false);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return fill(opcode::cuMemsetD16Async, to, value, 2, count, stream, false);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return fill(opcode::cuMemsetD32Async, to, value, 4, count, stream, false);
}

}  // namespace gpurun::client::interpose::custom
