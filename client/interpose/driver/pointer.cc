// Pointers: what a pointer is, answered from the ranges that the client knows.
#include "client/interpose/call/forward.h"
#include "client/interpose/custom.h"
#include "client/interpose/memory/graph_memory.h"
#include "client/interpose/memory/host_arena.h"
#include "client/interpose/memory/memory_ranges.h"
#include "driver_abi/semantics/pointer_attributes.h"

namespace gpurun::client::interpose {
namespace {

driver_abi::PointerFacts facts_of(const MemoryRange& range, CUdeviceptr address) {
  driver_abi::PointerFacts facts;
  facts.address = address;
  facts.base = range.base;
  facts.bytes = range.bytes;
  facts.buffer_id = range.buffer_id;
  facts.context = range.context;
  facts.pool = range.kind == MemoryKind::kPool ? range.owner : Handle{0};
  facts.ordinal = range.ordinal;
  facts.on_host = range.on_host() || range.kind == MemoryKind::kView;
  if (range.kind == MemoryKind::kView) facts.host_address = range.host + (address - range.base);
  if (range.view != 0) facts.device_address = range.view + (address - range.base);
  facts.managed = range.kind == MemoryKind::kManaged;
  facts.device_reaches = !range.on_host() || range.reached;
  facts.legacy_ipc = range.kind == MemoryKind::kDevice;
  return facts;
}

// Prepares a query. An address means the same in every context, so a thread without a context may
// query it. NVIDIA's runtime does that (cudaPointerGetAttributes in a thread that has called
// nothing yet, as in PyTorch's loaders).
int enter_to_ask(EntryContext& here) {
  if (const int result = here.enter(); result != 0) return result;
  const int result = here.enter_context();
  if (result != CUDA_ERROR_INVALID_CONTEXT) return result;
  here.context = nullptr;
  return 0;
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr address) {
  EntryContext here;
  if (const int result = enter_to_ask(here); result != 0) return cuda(result);
  if (here.context != nullptr) {
    if (const int lost = here.session().health(here.context->handle); lost != 0) return cuda(lost);
  }
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool reaches = which == CU_POINTER_ATTRIBUTE_DEVICE_POINTER && here.context != nullptr;
  auto range = reaches ? find_device_range(here, address) : find_range(address);
  if (const int earlier = ask_for_graph_memory(here, address, &range); earlier != 0) {
    return cuda(earlier);
  }
  if (!range.has_value()) return CUDA_ERROR_INVALID_VALUE;
  return driver_abi::pointer_attribute(data, which, facts_of(*range, address));
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* which, void** data,
                                CUdeviceptr address) {
  EntryContext here;
  if (const int result = enter_to_ask(here); result != 0) return cuda(result);
  if (count == 0 || which == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto range = find_range(address);
  if (const int earlier = ask_for_graph_memory(here, address, &range); earlier != 0) {
    return cuda(earlier);
  }
  if (!range.has_value()) {
    return driver_abi::pointer_attributes(count, which, data, nullptr, address);
  }
  const driver_abi::PointerFacts facts = facts_of(*range, address);
  return driver_abi::pointer_attributes(count, which, data, &facts, address);
}

}  // namespace gpurun::client::interpose::custom
