// Pointers: attributes of addresses.
#include "driver_abi/semantics/pointer_attributes.h"
#include "emulated/api/entry.h"
#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated::api {
namespace {

driver_abi::PointerFacts facts_of(const MemoryRange& range, CUdeviceptr address) {
  driver_abi::PointerFacts facts;
  facts.address = address;
  facts.base = range.base;
  facts.bytes = range.bytes;
  facts.buffer_id = range.buffer_id;
  facts.context = range.context_handle;
  facts.pool = range.kind == MemoryKind::kPool ? range.owner_handle : 0;
  facts.ordinal = range.device;
  facts.on_host = range.on_host();
  facts.managed = range.kind == MemoryKind::kManaged;
  facts.mapped = range.accessible;
  facts.legacy_ipc = range.kind == MemoryKind::kDevice;
  return facts;
}

// An address means the same in every context, so a thread without a context may query it. NVIDIA's
// runtime does (cudaPointerGetAttributes in a thread that has made no call yet, as PyTorch's
// loaders have).
CUresult enter_to_ask() {
  if (thread_state().current() == nullptr) return enter_driver();
  GPURUN_ENTER(context);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr address) {
  GPURUN_TRY(enter_to_ask());
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto range = memory_registry().find(address);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  return driver_abi::pointer_attribute(data, which, facts_of(*range, address));
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* which, void** data,
                                CUdeviceptr address) {
  GPURUN_TRY(enter_to_ask());
  if (count == 0 || which == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto range = memory_registry().find(address);
  if (!range) return driver_abi::pointer_attributes(count, which, data, nullptr, address);
  const driver_abi::PointerFacts facts = facts_of(*range, address);
  return driver_abi::pointer_attributes(count, which, data, &facts, address);
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute which, CUdeviceptr address) {
  GPURUN_ENTER(context);
  if (value == nullptr || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return memory_registry().find(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpurun::emulated::api
