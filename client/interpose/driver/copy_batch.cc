// Copy batches: each copy is made by itself, in the order of the stream. CUDA allows that order
// (cuda.h, cuMemcpyBatchAsync: a batch has no order of its own). Each copy is a record that nothing
// waits for.
#include "driver_abi/semantics/copy_batch.h"

#include <cstdint>

#include "client/interpose/call/stream.h"
#include "client/interpose/capture/capture.h"
#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/custom.h"
#include "client/interpose/driver/copy_memory.h"
#include "client/interpose/driver/run_copy.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::CopyBatch;

CopySide side(CUdeviceptr address, std::size_t bytes) {
  return {place_of(address, bytes), address, 0, 0};
}

// Makes one copy. `order` decides when its source is read:
//   STREAM           In the stream's turn. Pageable memory is read now, as by other copies, after
//                    earlier work that may still write there.
//   DURING_API_CALL  Now, before the call returns, pinned or not. A device source sets `*await`.
//   ANY              At any time: as STREAM.
int copy_one(const EntryContext& here, std::uint16_t code, Handle stream, Copy copy,
             CUmemcpySrcAccessOrder order, bool* await) {
  if (copy.width != 0 && (copy.source.address == 0 || copy.destination.address == 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A captured copy reads its source at each launch, whatever order was given.
  if (is_captured(here, stream)) return run_copy(here, code, stream, copy, Waiting::kAsynchronous);
  if (order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL) {
    if (copy.source.place != Place::kDevice) {
      return run_copy(here, code, stream, copy, Waiting::kReadNow);
    }
    *await = true;
  } else if (order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && copy.source.place == Place::kPageable) {
    const auto* source = reinterpret_cast<const void*>(copy.source.address);
    if (here.session().may_still_write(byte_view(source, copy.width))) {
      if (const int result = synchronize_stream(here, stream); result != 0) return result;
    }
  }
  return run_copy(here, code, stream, copy, Waiting::kAsynchronous);
}

// `failed`: the index of the first copy that failed. SIZE_MAX: no copy caused the failure.
CUresult copy_all(std::uint16_t code, const CopyBatch& batch, std::size_t* failed, CUstream given,
                  bool legacy_too) {
  *failed = SIZE_MAX;
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  Handle stream = 0;
  if (const int result = resolve_stream(here, given, &stream); result != 0) return cuda(result);
  if (!batch.valid()) return CUDA_ERROR_INVALID_VALUE;
  // cuda.h on batches: "must not be legacy NULL stream".
  if (!legacy_too && (stream == 0 || stream == protocol::kStreamLegacy)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  bool await = false;
  const int result = batch.visit(failed, [&](std::size_t i, CUmemcpySrcAccessOrder order) {
    Copy copy;
    copy.destination = side(batch.destinations[i], batch.bytes[i]);
    copy.source = side(batch.sources[i], batch.bytes[i]);
    copy.width = batch.bytes[i];
    return copy_one(here, code, stream, copy, order, &await);
  });
  if (result != 0 || !await) return cuda(result);
  return cuda(synchronize_stream(here, stream));
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuMemcpyBatchAsync(CUdeviceptr* destinations, CUdeviceptr* sources, size_t* bytes,
                            size_t count, CUmemcpyAttributes* attributes, size_t* firsts,
                            size_t attribute_count, size_t* failed, CUstream stream) {
  std::size_t nobody_asks = 0;
  return copy_all(opcode::cuMemcpyBatchAsync,
                  {destinations, sources, bytes, count, attributes, firsts, attribute_count},
                  failed != nullptr ? failed : &nobody_asks, stream, false);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* destinations, CUdeviceptr* sources, size_t* bytes,
                               size_t count, CUmemcpyAttributes* attributes, size_t* firsts,
                               size_t attribute_count, CUstream stream) {
  std::size_t nobody_asks = 0;
  return copy_all(opcode::cuMemcpyBatchAsync_v2,
                  {destinations, sources, bytes, count, attributes, firsts, attribute_count},
                  &nobody_asks, stream, false);
}

CUresult cuMemcpyWithAttributesAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                                     CUmemcpyAttributes* attributes, CUstream stream) {
  std::size_t nobody_asks = 0;
  const std::size_t first = 0;
  return copy_all(opcode::cuMemcpyWithAttributesAsync,
                  {&destination, &source, &bytes, 1, attributes, &first, 1}, &nobody_asks, stream,
                  true);
}

}  // namespace gpurun::client::interpose::custom
