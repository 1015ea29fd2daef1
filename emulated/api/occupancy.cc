// Occupancy: how many blocks of a kernel fit.
#include "driver_abi/semantics/clusters.h"
#include "emulated/api.h"
#include "emulated/api/entry.h"
#include "emulated/objects/context_module.h"
#include "emulated/objects/launch_limits.h"
#include "emulated/settings.h"

namespace gpurun::emulated {
namespace {

// The number of blocks of the function that a multiprocessor holds at once. 0: not even one.
int resident_blocks(const Function& function, std::uint64_t block_threads,
                    std::uint64_t dynamic_shared_bytes) {
  return resident_blocks(function.attributes(), function.dynamic_shared_bytes_max(), block_threads,
                         dynamic_shared_bytes);
}

driver_abi::OccupancyFunction occupancy_of(const Function& function) {
  return occupancy_of(function.attributes(), function.dynamic_shared_bytes_max());
}

CUresult enter_function(CUfunction handle, ContextPtr* context, FunctionPtr* function,
                        std::shared_ptr<ContextModule>* module) {
  GPURUN_TRY(enter_context(context));
  GPURUN_TRY(find_function(*context, handle, function));
  *module = (*function)->module();
  return *module == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace

}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle,
                                                              int block_threads,
                                                              size_t dynamic_shared_bytes,
                                                              unsigned int flags) {
  ContextPtr context;
  FunctionPtr function;
  std::shared_ptr<ContextModule> module;
  GPURUN_TRY(enter_function(handle, &context, &function, &module));
  if (blocks == nullptr || block_threads <= 0 ||
      (flags & ~static_cast<unsigned>(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *blocks = resident_blocks(*function, static_cast<unsigned>(block_threads), dynamic_shared_bytes);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                     int block_threads,
                                                     size_t dynamic_shared_bytes) {
  return api::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_threads,
                                                                   dynamic_shared_bytes, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid_blocks, int* block_threads,
                                                   CUfunction handle,
                                                   CUoccupancyB2DSize shared_of_block,
                                                   size_t dynamic_shared_bytes, int block_limit,
                                                   unsigned int flags) {
  ContextPtr context;
  FunctionPtr function;
  std::shared_ptr<ContextModule> module;
  GPURUN_TRY(enter_function(handle, &context, &function, &module));
  if (grid_blocks == nullptr || block_threads == nullptr || block_limit < 0 ||
      (flags & ~static_cast<unsigned>(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  driver_abi::SharedNeed need{shared_of_block, dynamic_shared_bytes};
  const driver_abi::PotentialBlock best =
      driver_abi::best_block(occupancy_of_device(), occupancy_of(*function),
                             &driver_abi::SharedNeed::of, &need, block_limit);
  *grid_blocks = best.grid_blocks;
  *block_threads = best.block_threads;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int* grid_blocks, int* block_threads, CUfunction function,
                                          CUoccupancyB2DSize shared_of_block,
                                          size_t dynamic_shared_bytes, int block_limit) {
  return api::cuOccupancyMaxPotentialBlockSizeWithFlags(
      grid_blocks, block_threads, function, shared_of_block, dynamic_shared_bytes, block_limit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks,
                                                 int block_threads) {
  ContextPtr context;
  FunctionPtr function;
  std::shared_ptr<ContextModule> module;
  GPURUN_TRY(enter_function(handle, &context, &function, &module));
  if (bytes == nullptr || blocks <= 0 || block_threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  const auto available = driver_abi::available_dynamic_shared(
      occupancy_of_device(), occupancy_of(*function), blocks, block_threads);
  if (!available) return CUDA_ERROR_INVALID_VALUE;
  *bytes = *available;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int* blocks, CUfunction handle,
                                            const CUlaunchConfig* config) {
  ContextPtr context;
  FunctionPtr function;
  std::shared_ptr<ContextModule> module;
  GPURUN_TRY(enter_function(handle, &context, &function, &module));
  if (blocks == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *blocks = 1;  // A launch of larger clusters is refused (launch_kernel.cc).
  return CUDA_SUCCESS;
}

// No clusters of a size that a launch refuses.
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle,
                                      const CUlaunchConfig* config) {
  ContextPtr context;
  FunctionPtr function;
  std::shared_ptr<ContextModule> module;
  GPURUN_TRY(enter_function(handle, &context, &function, &module));
  if (clusters == nullptr || config == nullptr ||
      (config->numAttrs != 0 && config->attrs == nullptr) || config->numAttrs > 64) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto& required = function->attributes().required_cluster;
  std::uint64_t cluster_blocks =
      required[0] == 0 ? 1 : std::uint64_t{required[0]} * required[1] * required[2];
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const auto& size = config->attrs[i].value.clusterDim;
    cluster_blocks =
        driver_abi::cluster_blocks({size.x, size.y, size.z}, driver_abi::kClusterBlocksMax);
    if (cluster_blocks == 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  const std::uint64_t threads =
      std::uint64_t{config->blockDimX} * config->blockDimY * config->blockDimZ;
  const auto blocks =
      static_cast<std::uint64_t>(resident_blocks(*function, threads, config->sharedMemBytes)) *
      static_cast<std::uint64_t>(settings().multiprocessors);
  *clusters = cluster_blocks == 1 ? static_cast<int>(blocks) : 0;
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
