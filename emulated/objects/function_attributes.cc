// Attributes of a function (manual, cuFuncGetAttribute).
#include "emulated/objects/context_module.h"

namespace gpurun::emulated {
namespace {

// There are no registers here. Programs use the number to compute how many threads fit. This number
// never limits them.
constexpr int kRegisters = 32;

}  // namespace

bool Function::attribute(CUfunction_attribute attribute, int* value) const {
  const KernelAttributes& fixed = attributes();
  const FunctionSettings& set = settings();
  const auto number = [value](std::uint64_t answer) {
    *value = static_cast<int>(answer);
    return true;
  };
  switch (static_cast<int>(attribute)) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return number(fixed.max_threads);
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return number(fixed.static_shared_bytes);
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      return number(fixed.const_bytes);
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return number(fixed.local_bytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return number(kRegisters);
    // Not the version of the language, but the architecture that the code was compiled for
    // (manual).
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return number(fixed.ptx_target);
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      return number(0);
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return number(dynamic_shared_bytes_max());
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = set.shared_carveout;
      return true;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      return number(0);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: {
      const int axis = attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
      const std::uint32_t required = fixed.required_cluster[axis];
      *value = required != 0 ? static_cast<int>(required) : set.cluster[axis].load();
      return true;
    }
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = set.non_portable_cluster;
      return true;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      *value = set.cluster_scheduling;
      return true;
    default:
      return false;
  }
}

}  // namespace gpurun::emulated
