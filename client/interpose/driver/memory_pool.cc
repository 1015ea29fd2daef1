// Memory pools: attributes of memory pools, which have values of different sizes.
#include "protocol/calls/memory_pool.h"

#include <cstring>

#include "client/interpose/call/forward.h"
#include "client/interpose/custom.h"
#include "client/interpose/memory/kept_frees.h"

namespace gpurun::client::interpose {
namespace {

using protocol::pool_attribute_bytes;
using protocol::PoolAttributePayload;

int enter_pool(EntryContext& here, CUmemoryPool pool, CUmemPool_attribute attribute,
               const void* value, PoolAttributePayload* payload) {
  if (const int result = here.enter(); result != 0) return result;
  payload->pool = handle_of(pool);
  payload->attribute = static_cast<std::uint32_t>(attribute);
  if (const int result = here.check(payload->pool, HandleKind::kMemoryPool); result != 0) {
    return result;
  }
  return value == nullptr || pool_attribute_bytes(payload->attribute) == 0
             ? int{CUDA_ERROR_INVALID_VALUE}
             : 0;
}

// Pools belong to no context.
CallSite pool_site(std::uint16_t code) {
  CallSite site;
  site.opcode = code;
  site.form = protocol::Form::kRaw;
  // A query of a pool depends on what the streams have freed, so only a setting passes streams.
  if (code == opcode::cuMemPoolSetAttribute) site.flags = protocol::kFlagPassesStreams;
  return site;
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  EntryContext here;
  PoolAttributePayload payload;
  if (const int result = enter_pool(here, pool, attribute, value, &payload); result != 0) {
    return cuda(result);
  }
  std::memcpy(&payload.value, value, pool_attribute_bytes(payload.attribute));
  if (!driver_abi::is_pool_setting(payload.attribute, payload.value))
    return CUDA_ERROR_INVALID_VALUE;
  note_pool_attribute(here, payload.pool, payload.attribute, payload.value);
  return cuda(
      here.session().post(*here.lane, pool_site(opcode::cuMemPoolSetAttribute), bytes_of(payload)));
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  EntryContext here;
  PoolAttributePayload payload;
  if (const int result = enter_pool(here, pool, attribute, value, &payload); result != 0) {
    return cuda(result);
  }
  Reply reply;
  const int result = here.session().call(*here.lane, pool_site(opcode::cuMemPoolGetAttribute),
                                         bytes_of(payload), &reply);
  // The result may be an earlier call's failure although this call has done its work.
  if (reply.result != 0 || reply.payload.empty()) return cuda(result != 0 ? result : reply.result);
  const std::size_t bytes = pool_attribute_bytes(payload.attribute);
  if (reply.payload.size() < bytes) return CUDA_ERROR_UNKNOWN;
  std::memcpy(value, reply.payload.data(), bytes);
  return cuda(result);
}

}  // namespace gpurun::client::interpose::custom
