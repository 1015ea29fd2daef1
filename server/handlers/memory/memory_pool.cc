// Memory pools: the handlers that read and set a pool's attributes.
#include "server/handlers/memory/memory_pool.h"

#include <cstring>

#include "protocol/calls/memory_pool.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

using protocol::PoolAttributePayload;

// Copies, then checks. Returns 0 and the driver's pool, or the CUresult.
int open(Call& call, PoolAttributePayload* payload, CUmemoryPool* pool) {
  if (call.payload().size() != sizeof *payload) return kErrorInvalidValue;
  std::memcpy(payload, call.payload().data(), sizeof *payload);
  if (protocol::pool_attribute_bytes(payload->attribute) == 0) return kErrorInvalidValue;
  const HandleTable::Found found = call.handles().find(payload->pool, HandleKind::kMemoryPool);
  *pool = reinterpret_cast<CUmemoryPool>(found.value);
  return found.result;
}

CallOutcome run_set(Call& call) {
  PoolAttributePayload payload;
  CUmemoryPool pool = nullptr;
  if (const int result = open(call, &payload, &pool); result != 0) return CallOutcome::done(result);
  return CallOutcome::done(GPURUN_DRIVER(HandlerState::of(call).driver(), cuMemPoolSetAttribute,
                                         pool, static_cast<CUmemPool_attribute>(payload.attribute),
                                         &payload.value));
}

CallOutcome run_get(Call& call) {
  PoolAttributePayload payload;
  CUmemoryPool pool = nullptr;
  if (const int result = open(call, &payload, &pool); result != 0) return CallOutcome::done(result);
  std::uint64_t value = 0;  // Room for either size.
  const int result = GPURUN_DRIVER(HandlerState::of(call).driver(), cuMemPoolGetAttribute, pool,
                                   static_cast<CUmemPool_attribute>(payload.attribute), &value);
  if (result == 0) call.set_reply(bytes_of(value));
  return CallOutcome::done(result);
}

}  // namespace

void add_memory_pool_handlers(Handlers& handlers) {
  set_handler(handlers, "cuMemPoolSetAttribute", &run_set);
  set_handler(handlers, "cuMemPoolGetAttribute", &run_get);
}

}  // namespace gpurun::server
