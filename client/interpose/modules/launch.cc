// Launch: the checks of a launch, and the packing of the parameter block.
#include "client/interpose/modules/launch.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/log.h"
#include "driver_abi/semantics/clusters.h"
#include "driver_abi/semantics/launch_attributes.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose::modules {
namespace {

// CU_LAUNCH_PARAM_* (cuda.h).
const auto kEnd = reinterpret_cast<const void*>(std::uintptr_t{0});
const auto kBufferPointer = reinterpret_cast<const void*>(std::uintptr_t{1});
const auto kBufferSize = reinterpret_cast<const void*>(std::uintptr_t{2});
static_assert(limits::kKernelParameterBytesMax == driver_abi::kKernelParameterBytesMax);
// The most keys of an `extra` list. A longer list counts as endless.
constexpr int kExtraKeysMax = 16;

// Reads the program's own block.
int read_extra(void* const* extra, ByteView* block) {
  const void* start = nullptr;
  const std::size_t* bytes = nullptr;
  for (int i = 0; i < kExtraKeysMax; ++i, extra += 2) {
    if (extra[0] == kEnd) {
      if (bytes == nullptr || (start == nullptr && *bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
      if (*bytes > limits::kKernelParameterBytesMax) return CUDA_ERROR_INVALID_VALUE;
      *block = byte_view(start, *bytes);
      return 0;
    }
    if (extra[0] == kBufferPointer) {
      start = extra[1];
    } else if (extra[0] == kBufferSize) {
      bytes = static_cast<const std::size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// Most parameters are pointers and numbers, for which a general memcpy() call is slow.
void copy_parameter(std::byte* to, const void* from, std::size_t bytes) noexcept {
  if (bytes == 8) {
    std::memcpy(to, from, 8);
  } else if (bytes == 4) {
    std::memcpy(to, from, 4);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

driver_abi::LaunchShape shape_of(const protocol::LaunchPayload& launch) noexcept {
  driver_abi::LaunchShape shape;
  std::copy(std::begin(launch.grid), std::end(launch.grid), shape.grid);
  std::copy(std::begin(launch.block), std::end(launch.block), shape.block);
  shape.dynamic_shared_bytes = launch.shared_bytes;
  return shape;
}

int check_launch(const LaunchLimits& limits, const protocol::LaunchPayload& launch) noexcept {
  return driver_abi::check_launch(limits, shape_of(launch));
}

int check_cluster(const Kernel& kernel, const std::array<int, 3>& required,
                  const protocol::LaunchPayload& launch,
                  std::span<const protocol::LaunchAttribute> attributes) noexcept {
  std::uint32_t cluster[3] = {};
  for (unsigned axis = 0; axis < 3; ++axis) {
    cluster[axis] = static_cast<std::uint32_t>(std::max(required[axis], 0));
  }
  for (const protocol::LaunchAttribute& each : attributes) {
    // Its value begins with x, y and z (cuda.h, CUlaunchAttributeValue).
    if (each.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      std::memcpy(cluster, each.value, sizeof cluster);
    }
  }
  if (driver_abi::check_cluster(cluster, launch.grid, driver_abi::kClusterBlocksMax) != 0) return 0;
  if (driver_abi::cluster_blocks(cluster, driver_abi::kClusterBlocksMax) == 1) return 0;
  GPURUN_LOG(kWarning,
             "emulated device: kernel %s wants clusters of %ux%ux%u blocks; a cluster of more than "
             "one block is not supported",
             kernel.name.c_str(), cluster[0], cluster[1], cluster[2]);
  return CUDA_ERROR_NOT_SUPPORTED;
}

int PackedParameters::pack(const Kernel& kernel, void* const* parameters, void* const* extra) {
  if (parameters != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) {
    layout_hash = 0;
    if (const int result = read_extra(extra, &block); result != 0) return result;
    // A block may end before the parameters do. NCCL leaves out the rest of a large one.
    const bool lacks = kernel.layout_known && block.empty() && kernel.block_bytes != 0;
    return lacks ? int{CUDA_ERROR_INVALID_VALUE} : 0;
  }
  if (!kernel.layout_known) {
    if (parameters == nullptr) return 0;
    GPURUN_LOG(kWarning, "kernel %s: the server's driver does not report its parameters",
               kernel.name.c_str());
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  layout_hash = kernel.layout_hash;
  if (kernel.parameters.empty()) return 0;
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::byte* to = small_.data();
  if (kernel.block_bytes > small_.size()) {
    large_.resize(kernel.block_bytes);
    to = large_.data();
  } else {
    std::memset(to, 0, kernel.block_bytes);  // Gaps must not leak bytes of our stack.
  }
  std::size_t index = 0;
  for (const protocol::KernelParameter& each : kernel.parameters) {
    const void* from = parameters[index++];
    if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
    copy_parameter(to + each.offset, from, each.bytes);
  }
  block = ByteView(to, kernel.block_bytes);
  return 0;
}

int pack_attributes(const CUlaunchAttribute* attributes, unsigned count,
                    std::span<protocol::LaunchAttribute> into, unsigned* written) {
  *written = 0;
  if (count == 0) return 0;
  if (attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    static_assert(sizeof(CUlaunchAttribute) == sizeof(protocol::LaunchAttribute));
    const int id = static_cast<int>(attributes[i].id);
    const driver_abi::LaunchAttributeUse use =
        driver_abi::launch_attribute(static_cast<std::uint32_t>(id)).use;
    if (use == driver_abi::LaunchAttributeUse::kIgnored) continue;
    if (use == driver_abi::LaunchAttributeUse::kDeviceHandle) {
      GPURUN_LOG(kWarning, "launch attribute %d is not supported: it returns a device handle", id);
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (*written == into.size()) return CUDA_ERROR_INVALID_VALUE;
    protocol::LaunchAttribute& to = into[(*written)++];
    to.id = static_cast<std::uint32_t>(id);
    to.reserved = 0;
    static_assert(sizeof attributes[i].value == sizeof to.value);
    std::memcpy(to.value, &attributes[i].value, sizeof to.value);
  }
  return 0;
}

}  // namespace gpurun::client::interpose::modules
