// Function settings: the range of each settable attribute.
#include "driver_abi/semantics/function_settings.h"

namespace gpurun::driver_abi {
namespace {

CUresult valid_if(bool valid) { return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

bool is_in(int value, int first, int last) {
  return value >= first && (last == SettingBounds::kUnknown || value <= last);
}

}  // namespace

CUresult check_function_setting(const SettingBounds& bounds, CUfunction_attribute id,
                                int value) noexcept {
  switch (static_cast<int>(id)) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return valid_if(value >= 0 &&
                      (!bounds.dynamic_shared_known || value <= bounds.dynamic_shared_bytes));
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return valid_if(value >= CU_SHAREDMEM_CARVEOUT_DEFAULT &&
                      value <= CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: {
      const int axis = id - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
      return valid_if(!bounds.cluster_fixed[axis] && is_in(value, 0, bounds.cluster_extent));
    }
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return valid_if(value == 0 || value == 1);
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return valid_if(is_in(value, 0, bounds.scheduling_policy));
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace gpurun::driver_abi
