// Launch attributes: the table.
#include "driver_abi/semantics/launch_attributes.h"

namespace gpurun::driver_abi {

LaunchAttributeRule launch_attribute(std::uint32_t id) noexcept {
  using Use = LaunchAttributeUse;
  using Stream = StreamAttributeUse;
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
      return {Use::kIgnored, Stream::kNone, false};
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      return {Use::kHint, Stream::kEveryDriver, true};
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return {Use::kHint, Stream::kNewDriver, true};
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      return {Use::kRequest, Stream::kNone, true};
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:  // NCCL asks for it.
    case CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE:
    case CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE:
      return {Use::kHint, Stream::kNone, true};
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return {Use::kEvent, Stream::kNone, false};
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return {Use::kDeviceHandle, Stream::kNone, false};
    default:
      return {};
  }
}

int check_node_attribute(std::uint32_t id) noexcept {
  const LaunchAttributeRule rule = launch_attribute(id);
  if (rule.use == LaunchAttributeUse::kDeviceHandle) return CUDA_ERROR_NOT_SUPPORTED;
  return rule.crosses ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int check_stream_attribute(std::uint32_t id) noexcept {
  const LaunchAttributeRule rule = launch_attribute(id);
  const bool of_stream = rule.stream != StreamAttributeUse::kNone && rule.crosses;
  return of_stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpurun::driver_abi
